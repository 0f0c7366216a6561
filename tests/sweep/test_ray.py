"""The Ray backend: transferred files, lost machines and messages."""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import regard
from regard.errors import InputError, MachineError
from regard.sweep import Ray, compare, ray
from regard.sweep.file_transfer import Code, Files, measure_with_code, pack, read_last_step
from regard.sweep.job import Job
from regard.sweep.trainer import TrainingUpdate
from regard.training import RunFolder
from tests.sweep.cluster import LostError, lose_at, short_checkpoints

Command = Callable[..., tuple[int, str, str]]
SMALL: dict[str, Any] = {"steps": 30, "hidden": 4, "batchsize": 8, "seeds": 2, "progress": False}


class Machine:
    """A trainer in this process.

    `ends`: the step at which each started trainer is lost; 0: before the first reply, None: never.
    """

    ends: list[int | None]
    begun: list[list[str]]
    stopped: int
    fails: Exception | None
    folder: Path

    def begin(
        self, version: str, stored: dict[str, Any], files: Files, code: Code, threads: int
    ) -> TrainingUpdate:
        end = Machine.ends.pop(0) if Machine.ends else None
        Machine.begun.append(sorted(Path(name).name for name in files if "trainer" in name))
        if end == 0:
            raise FakeRay.exceptions.RayError
        self.job = Job(stored, Machine.folder / str(len(Machine.begun)))
        for name, content in files.items():
            (self.job.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.job.folder / name).write_bytes(content)
        self.updates: list[TrainingUpdate | Exception] = []
        with pytest.MonkeyPatch.context() as patch:
            if end is not None:
                lose_at(end, patch)
            try:
                measured = measure_with_code(([], None), self.job)
            except LostError:
                self.updates = [
                    TrainingUpdate(files=pack(self.job.folder, {})[0]),
                    FakeRay.exceptions.RayError(),
                ]
            else:
                self.updates = [TrainingUpdate(files=pack(self.job.folder, {})[0], measured=measured)]
        if Machine.fails is not None:
            self.updates = [TrainingUpdate(error=Machine.fails)]
        return TrainingUpdate()

    def poll(self, seconds: float) -> TrainingUpdate:
        update = self.updates.pop(0)
        if isinstance(update, Exception):
            raise update
        return update

    def stop(self) -> TrainingUpdate:
        Machine.stopped += 1
        return TrainingUpdate(files=pack(self.job.folder, {})[0], ended=True)


class FakeRay:
    """The used part of Ray's interface; all calls run at once in this process."""

    exceptions = SimpleNamespace(
        RayError=type("RayError", (Exception,), {}), RayTaskError=type("No", (Exception,), {})
    )
    held = 0

    @staticmethod
    def remote(cls: type) -> Any:
        def make() -> Any:
            FakeRay.held += 1
            made = cls()

            def call(name: str) -> Any:
                return SimpleNamespace(remote=lambda *args: FakeRay.done(getattr(made, name), *args))

            return SimpleNamespace(**{name: call(name) for name in ("begin", "poll", "stop")})

        return SimpleNamespace(options=lambda num_cpus: SimpleNamespace(remote=make))

    @staticmethod
    def done(method: Callable[..., Any], *args: Any) -> Any:
        try:
            value = method(*args)
        except Exception as error:
            return SimpleNamespace(error=error)
        return SimpleNamespace(error=None, value=value)

    @staticmethod
    def get(answer: Any, timeout: float | None) -> Any:
        if answer.error is not None:
            raise answer.error
        return answer.value

    @staticmethod
    def wait(answers: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return answers, []

    @staticmethod
    def kill(trainer: Any) -> None:
        FakeRay.held -= 1

    @staticmethod
    def cluster_resources() -> dict[str, float]:
        return {"CPU": 1.0}

    @staticmethod
    def nodes() -> list[dict[str, bool]]:
        return [{"Alive": True}, {"Alive": False}]

    @staticmethod
    def get_runtime_context() -> Any:
        return SimpleNamespace(gcs_address="10.0.0.1:6379")

    @staticmethod
    def is_initialized() -> bool:
        return True


@pytest.fixture(autouse=True)
def _fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    Machine.ends, Machine.begun, Machine.stopped, Machine.fails = [], [], 0, None
    Machine.folder = tmp_path / "there"
    FakeRay.held = 0
    short_checkpoints(monkeypatch)
    monkeypatch.setattr(ray, "Trainer", Machine)
    yield
    assert FakeRay.held == 0  # all machines are released


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay)


def losses(comparison: regard.Comparison) -> list[tuple[float, float]]:
    return [(seed.loss, seed.exact_match) for seeds in comparison.measured.values() for seed in seeds]


@pytest.mark.usefixtures("faked")
def test_trainings_of_a_lost_machine_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Machine.ends = [20, None, None]
    flags = {**SMALL, "progress": True}
    result = compare("counting", {"score": ["dot"]}, savepath=tmp_path / "ray", on=Ray(), **flags)
    err = capsys.readouterr().err
    assert "Ray cluster at 10.0.0.1:6379: 1 machine, 1 core" in err
    assert "score=dot, seed-0: process or machine lost; resumes from step 20" in err
    assert Machine.begun[:2] == [[], []] and "step-20.safetensors" in Machine.begun[2]
    assert err.splitlines()[-1] == "compare: 2 of 2 done"
    here = compare("counting", {"score": ["dot"]}, savepath=tmp_path / "here", on=_InThisProcess(), **SMALL)
    assert losses(result) == losses(here)
    names = {str(path.relative_to(tmp_path / "ray")) for path in (tmp_path / "ray").rglob("*")}
    assert names == {str(path.relative_to(tmp_path / "here")) for path in (tmp_path / "here").rglob("*")}


class _InThisProcess:
    def run(self, jobs: Any, tell: Any) -> Iterator[Any]:
        for job in jobs:
            yield job, measure_with_code(([], None), job)


@pytest.mark.usefixtures("faked")
def test_gives_up_after_repeated_losses(tmp_path: Path) -> None:
    Machine.ends = [0, None, 0, 0]
    with pytest.raises(MachineError, match="1 of 2 trainings were lost 3 times without a new checkpoint"):
        compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Ray(), **SMALL)
    result = compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Ray(), **SMALL)
    assert len(Machine.begun) == 5 and len(losses(result)) == 2


@pytest.mark.usefixtures("faked")
def test_stopping_fetches_saved_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    Machine.ends = [10, 20]
    with monkeypatch.context() as patch:
        patch.setattr(ray, "read_last_step", stop)
        with pytest.raises(KeyboardInterrupt):
            compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Ray(), **SMALL)
    assert Machine.stopped == 1
    folders = [tmp_path / "counting" / "score=dot" / f"seed-{seed}" / "counting" for seed in range(2)]
    assert [read_last_step(RunFolder(folder)) for folder in folders] == [10, 20]
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]  # no run is locked


@pytest.mark.usefixtures("faked")
def test_errors_of_trainings_are_raised(tmp_path: Path) -> None:
    Machine.fails = InputError("on node-7: file '/data/de.txt' does not exist")
    with pytest.raises(InputError, match="on node-7: file"):
        compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Ray(), **SMALL)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--on", "raay"), "invalid choice 'raay' for argument '--on'"),
        (("--memory", "4"), "--memory does not apply to --on here: leave it out, or give --on slurm"),
        (("--on", "ray", "--partition", "long"), "--partition does not apply to --on ray"),
        (("--on", "ray", "--cpus", "0"), "cpus 0 is out of range"),
        (("--on", "ray", "--address", "head"), "address 'head' is not of the form host:port"),
        (("--on", "ray", "--address", "127.0.0.1:1"), "no Ray cluster answers at 127.0.0.1:1"),
        (("--on", "ray", "--vary", "score=dto"), "score 'dto' is unknown"),
    ],
)
def test_refuses_an_unavailable_cluster_before_writing(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], message: str
) -> None:
    connected = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "ray", connected)
    status, out, err = command("compare", "counting", "--vary", "lr=0.1", "--savepath", tmp_path / "new", *argv)
    assert (status, out) == (2, "") and message in err and err.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_without_ray(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    argv = ("compare", "counting", "--vary", "lr=0.1", "--on", "ray", "--savepath", tmp_path)
    assert command(*argv) == (
        2,
        "",
        "regard: training on Ray needs ray: pip install 'regard[cluster]'\n",
    )


@pytest.fixture
def cluster() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a cluster of two single-core nodes; yield its address and the process of the worker node."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # a short path: sockets have names of 107 bytes
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str) -> None:
        ray = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start"]
        shared = ["--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats", "--block"]
        before = len(started)
        log = Path(folder) / f"log-{before}"
        with log.open("wb") as out:
            started.append(
                subprocess.Popen([*ray, *argv, *shared], stdout=out, stderr=out, start_new_session=True)
            )
        deadline = time.monotonic() + 120
        while b"Ray runtime started" not in log.read_bytes():
            assert time.monotonic() < deadline and started[-1].poll() is None, log.read_text()
            time.sleep(0.2)

    try:
        start("--head", f"--port={address.split(':')[1]}", "--include-dashboard=false", f"--temp-dir={folder}")
        start(f"--address={address}")
        yield address, started[1]
    finally:
        for process in reversed(started):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_a_killed_machine_loses_only_the_steps_since_the_checkpoint(
    tmp_path: Path, cluster: tuple[str, subprocess.Popen[bytes]]
) -> None:
    address, other = cluster
    # Slow steps, so that the machine can be killed before the training ends.
    (tmp_path / "slow.py").write_text(SLOW)
    argv = ["compare", "slow.py", "--vary", "lr=0.01", "--seeds", "2", "--steps", "1000", "--hidden", "4"]
    command = [sys.executable, "-m", "regard", *argv]
    process = subprocess.Popen(
        [*command, "--on", "ray", "--address", address, "--savepath", "ray"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    kept = tmp_path / "ray" / "slow" / "lr=0.01"
    runs = [RunFolder(kept / f"seed-{seed}" / "slow") for seed in range(2)]
    try:
        deadline = time.monotonic() + 180
        while not all(run.exists() and read_last_step(run) >= 500 for run in runs):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.1)
        os.killpg(other.pid, signal.SIGKILL)
        out, _ = process.communicate(timeout=240)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, out
    assert re.search(r"seed-[01]: process or machine lost; resumes from step 500\b", out), out
    assert "compare: 2 of 2 done" in out and "Traceback" not in out
    subprocess.run([*command, "--savepath", "here"], cwd=tmp_path, capture_output=True, check=True, timeout=240)
    summaries = [
        json.loads((tmp_path / place / "slow" / "summary.json").read_text()) for place in ("ray", "here")
    ]
    for summary in summaries:
        del summary["means"][0]["seconds"]
    assert summaries[0] == summaries[1]
    for run in runs:
        same = tmp_path / "here" / run.path.relative_to(tmp_path / "ray")
        assert run.model_file.read_bytes() == (same / "model.safetensors").read_bytes()
        assert run.metrics_file.read_bytes() == (same / "metrics.jsonl").read_bytes()


SLOW = """
import time

from regard.tasks.counting import Counting


class Slow(Counting):
    \"\"\"Counting with slow steps.\"\"\"

    name = "slow"

    def answer(self, inputs):
        time.sleep(0.01)
        return super().answer(inputs)
"""
