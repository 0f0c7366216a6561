"""Backends of a sweep: processes that end cleanly, Ray and Slurm."""

import contextlib
import importlib.util
import json
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import regard
from regard.errors import InputError, MachineError
from regard.io import hold_lock
from regard.sweep import backends
from regard.sweep.backends import Driver, Ray, Slurm, measure_on_machine, run_in_processes
from regard.sweep.comparison import compare
from regard.sweep.job import Job
from regard.training.trust_code import code_digests
from regard.version import __version__
from tests.conftest import Command
from tests.processes import CONTEXT
from tests.sweep.cluster import LostError, job, lose_at, short_checkpoints


def started_runs(folder: Path) -> list[Path]:
    """Return the runs that have written metrics."""
    return [metrics.parent for metrics in folder.rglob("metrics.jsonl")]


@pytest.mark.parametrize(
    ("sent", "to_all", "status"),
    [
        (signal.SIGINT, True, 130),  # Ctrl-C
        pytest.param(signal.SIGINT, False, 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, True, -signal.SIGTERM, marks=pytest.mark.slow),
        (signal.SIGKILL, False, -signal.SIGKILL),
    ],
)
def test_stopping_a_comparison_ends_its_processes(
    tmp_path: Path, sent: signal.Signals, to_all: bool, status: int
) -> None:
    cores = len(os.sched_getaffinity(0))
    flags = f"--vary lr=0.01,0.02 --seeds {cores} --steps 10000000".split()
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", "compare", "counting", *flags, "--savepath", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while len(started_runs(tmp_path)) < cores and time.monotonic() < deadline:
            time.sleep(0.1)
        (os.killpg if to_all else os.kill)(process.pid, sent)
        # `communicate` returns when the last process has closed its output.
        out, _ = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == status
    assert "Traceback" not in out
    if sent == signal.SIGINT:
        assert out.splitlines()[-1] == "regard: stopped; repeat the command to continue"
    # No further job started, and each run was saved at its current step.
    assert len(started_runs(tmp_path)) == cores
    for run in started_runs(tmp_path):
        loaded = regard.load(run)
        assert 0 <= loaded.step - loaded.metrics[-1]["step"] < 10


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the workers from a server that has imported Regard, because a new process takes seconds to start."""
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: CONTEXT)


def square_or_die(number: int) -> int:
    """Return the square of a number. 3 kills the process, and 100 raises an error."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 100:
        raise regard.InputError("100 is out of range")
    return number**2


def test_a_signal_right_after_a_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal arrives before the parent process has registered the worker process."""
    start = SpawnProcess.start

    def begin(process: SpawnProcess) -> None:
        start(process)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(SpawnProcess, "start", begin)
    with pytest.raises(KeyboardInterrupt):
        list(run_in_processes(square_or_die, [1, 2]))
    assert not multiprocessing.active_children()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def hold(folder: Path) -> None:
    """Acquire a lock, and fail in folder 0 while the other job is still running."""
    with hold_lock(folder / "run"):
        (folder / "held").touch()
        deadline = time.monotonic() + 60
        while not all((other / "held").exists() for other in folder.parent.iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if folder.name == "0":
            raise regard.InputError("one fails")
        time.sleep(60)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two jobs at once need two cores")
def test_a_stopped_worker_leaves_no_lock(forked: None, tmp_path: Path) -> None:
    for name in ("0", "1"):
        (tmp_path / name).mkdir()
    with pytest.raises(regard.InputError, match="one fails"):
        list(run_in_processes(hold, [tmp_path / "0", tmp_path / "1"]))
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["held", "held"]


def test_a_killed_process_loses_only_its_job(forked: None) -> None:
    results: dict[int, int] = {}
    with pytest.raises(regard.MachineError, match="1 of 6 processes were terminated .* to train the missing"):
        for number, result in run_in_processes(square_or_die, range(6)):
            results[number] = result
    assert results == {0: 0, 1: 1, 2: 4, 4: 16, 5: 25}


def test_errors_of_jobs_are_raised(forked: None) -> None:
    with pytest.raises(regard.InputError, match="100 is out of range"):
        list(run_in_processes(square_or_die, [1, 100]))


# The Ray backend: shared storage, lost machines and messages.
SMALL: dict[str, Any] = {"steps": 30, "hidden": 4, "batchsize": 8, "seeds": 2, "progress": False}


class FakeRay:
    """Replacement for the parts of Ray's interface that Regard uses. All tasks run immediately in this process.

    `ends`: the step at which each started training job is lost. 0: before the first step, None: never.
    """

    class exceptions:  # noqa: N801
        """Ray's exceptions."""

        RayError = type("RayError", (Exception,), {})
        RayTaskError = type("RayTaskError", (RayError,), {"cause": None})
        TaskCancelledError = type("TaskCancelledError", (RayError,), {})

    ends: list[int | None]
    begun: list[list[str]]
    """Names of the training states at the start of each training job."""
    cancelled: int
    free: float

    @staticmethod
    def remote(work: Callable[..., Any]) -> Any:
        def options(num_cpus: int, max_retries: int) -> Any:
            assert max_retries == 0
            return SimpleNamespace(remote=lambda *args: FakeRay.start(work, *args))

        return SimpleNamespace(options=options)

    @staticmethod
    def start(work: Callable[..., Any], driver: Driver, job: Job, *args: Any) -> Any:
        end = FakeRay.ends.pop(0) if FakeRay.ends else None
        FakeRay.begun.append([path.name for path in (job.run.path / "trainer").glob("*")])
        outcome: Any = FakeRay.exceptions.RayError("lost")
        with pytest.MonkeyPatch.context() as patch:
            if end:
                lose_at(end, patch)
            if end != 0:
                with contextlib.suppress(LostError):
                    outcome = FakeRay.call(work, driver, job, *args)
        return Reference(outcome)

    @staticmethod
    def call(work: Callable[..., Any], *args: Any) -> Any:
        try:
            return work(*pickle.loads(pickle.dumps(args)))
        except InputError as error:
            failure = FakeRay.exceptions.RayTaskError("a traceback")
            failure.cause = pickle.loads(pickle.dumps(error))
            return failure

    @staticmethod
    def get(reference: "Reference") -> Any:
        if isinstance(reference.outcome, Exception):
            raise reference.outcome
        return reference.outcome

    @staticmethod
    def wait(references: list[Any], num_returns: int = 1, timeout: float = 0.0) -> tuple[list[Any], list[Any]]:
        return references, []

    @staticmethod
    def cancel(reference: Any) -> None:
        FakeRay.cancelled += 1

    @staticmethod
    def cluster_resources() -> dict[str, float]:
        return {"CPU": 1.0}

    @staticmethod
    def available_resources() -> dict[str, float]:
        return {"CPU": FakeRay.free} if FakeRay.free else {}

    @staticmethod
    def nodes() -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 1.0}}, {"Alive": False, "Resources": {"CPU": 8.0}}]

    @staticmethod
    def get_runtime_context() -> Any:
        return SimpleNamespace(gcs_address="10.0.0.1:6379")

    @staticmethod
    def is_initialized() -> bool:
        return True


@dataclass(eq=False)
class Reference:
    """Reference to the outcome of a task."""

    outcome: Any


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeRay.ends, FakeRay.begun, FakeRay.cancelled, FakeRay.free = [], [], 0, 1.0
    short_checkpoints(monkeypatch)
    monkeypatch.setitem(sys.modules, "ray", FakeRay)
    monkeypatch.setattr(sys, "path", [*sys.path])


def losses(comparison: regard.Comparison) -> list[tuple[float, float]]:
    return [(seed.loss, seed.exact_match) for seeds in comparison.measured.values() for seed in seeds]


@pytest.mark.usefixtures("faked")
def test_trainings_of_a_lost_machine_resume(
    in_this_process: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    FakeRay.ends = [20, None, None]
    flags = {**SMALL, "progress": True}
    result = compare("counting", {"score": ["dot"]}, savepath=tmp_path / "ray", on=Ray(), **flags)
    err = capsys.readouterr().err
    assert "Ray cluster at 10.0.0.1:6379: 1 machine, 1 core" in err and "training jobs wait" not in err
    assert "score=dot, seed-0: process or machine lost; resumes from step 20" in err
    assert FakeRay.begun[:2] == [[], []] and FakeRay.begun[2] == ["step-20.safetensors"]
    assert err.splitlines()[-1] == "compare: 2 of 2 done"
    here = compare("counting", {"score": ["dot"]}, savepath=tmp_path / "here", **SMALL)
    assert losses(result) == losses(here)
    names = {str(path.relative_to(tmp_path / "ray")) for path in (tmp_path / "ray").rglob("*")}
    assert names == {str(path.relative_to(tmp_path / "here")) for path in (tmp_path / "here").rglob("*")}


@pytest.mark.usefixtures("faked")
@pytest.mark.parametrize(("free", "cpus"), [(0.0, 1), (1.0, 2)])
def test_reports_that_trainings_wait_for_cores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], free: float, cpus: int
) -> None:
    FakeRay.free = free
    flags = {**SMALL, "progress": True}
    compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Ray(cpus=cpus), **flags)
    assert f"has {cpus} free cores yet: training jobs wait" in capsys.readouterr().err


@pytest.mark.usefixtures("faked")
def test_gives_up_after_repeated_losses(tmp_path: Path) -> None:
    FakeRay.ends = [0, None, 10, 0, 0, 0]  # two losses at step 0, which is saved first, then at step 10
    with pytest.raises(MachineError, match="1 of 2 training jobs were lost 3 times without a new checkpoint"):
        compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Ray(), **SMALL)
    assert len(FakeRay.begun) == 5
    result = compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Ray(), **SMALL)
    assert len(losses(result)) == 2


@pytest.mark.usefixtures("faked")
def test_errors_of_trainings_are_raised_and_stop_the_others(tmp_path: Path) -> None:
    run = tmp_path / "counting" / "score=dot" / "seed-0" / "counting"
    with hold_lock(run), pytest.raises(InputError, match=f"on {socket.gethostname()}: .* is being written by"):
        compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Ray(), **SMALL)
    assert FakeRay.cancelled == 1
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]  # neither a lock nor the marker


@pytest.mark.usefixtures("faked")
def test_a_lost_training_waits_for_its_former_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lost machine may keep the lock, because the machine may still be running."""
    training = job(tmp_path / "seed-0")
    with ExitStack() as lock:
        lock.enter_context(hold_lock(training.run.path))
        monkeypatch.setattr(time, "sleep", lambda seconds: lock.close())
        assert measure_on_machine(driver(tmp_path), training, {}, True).parameters > 0


def driver(folder: Path, **changes: Any) -> Driver:
    """Return the driver of a comparison in a folder."""
    (folder / "marker").touch()
    return replace(Driver(__version__, "head", folder / "marker", folder, [], 1), **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": "0.0.1"}, f"Regard {__version__} is installed, but 0.0.1 is required: install that"),
        ({"marker": Path("/no/such/marker")}, "the folder '/no/such' of head is not visible: start the command on"),
        ({"working_folder": Path("/no/such")}, "the folder '/no/such' of head is not visible: start the command on"),
    ],
)
def test_refuses_a_machine_without_the_version_or_the_disk(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(f"on {socket.gethostname()}: {message}")):
        measure_on_machine(driver(tmp_path, **changes), job(tmp_path / "seed-0"), {}, False)
    assert not (tmp_path / "seed-0").exists()


@pytest.mark.usefixtures("faked")
@pytest.mark.parametrize(
    ("example", "task", "flags", "named"),
    [
        ("doubles.py", "./doubles.py", {}, "task file '.*doubles.py'"),
        ("lookback.py", "reverse", {"model": "lookback:LookBack"}, "model 'lookback:LookBack'"),
    ],
)
def test_a_machine_needs_the_same_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str, task: str, flags: dict[str, Any], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "lookback", raising=False)  # another test may have imported its own copy
    own = tmp_path / example
    own.write_text((Path(__file__).parents[2] / "examples" / example).read_text())
    training = job(tmp_path / "seed-0", task, steps=10, **flags)
    digests = code_digests(training.stored)
    assert [re.fullmatch(named, name) is not None for name in digests] == [True]
    monkeypatch.chdir("/")  # the task changes to the folder of the command
    assert measure_on_machine(driver(tmp_path), training, digests, False).parameters > 0
    own.write_text(own.read_text() + "\n")
    with pytest.raises(InputError, match=f"{named} is missing, or differs from the code on head"):
        measure_on_machine(driver(tmp_path), training, digests, False)


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
        (("--on", "slurm", "--time", "1"), "time 1 is out of range: choose from 2 to 525600"),
        (("--on", "slurm", "--memory", "0"), "memory 0 is out of range"),
        (("--on", "slurm", "--address", "127.0.0.1:1"), "--address does not apply to --on slurm"),
        (("--on", "slurm"), "this machine has no sbatch and srun"),
    ],
)
def test_refuses_an_unavailable_cluster_before_writing(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], message: str
) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
    monkeypatch.setitem(sys.modules, "submitit", SimpleNamespace())
    monkeypatch.setattr("shutil.which", lambda name: None)
    status, out, err = command("compare", "counting", "--vary", "lr=0.1", "--savepath", tmp_path / "new", *argv)
    assert (status, out) == (2, "") and message in err and err.count("\n") == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("on", "library"), [("ray", "ray"), ("slurm", "submitit")])
def test_without_a_library(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: str, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    status, out, err = command("compare", "counting", "--vary", "lr=0.1", "--on", on, "--savepath", tmp_path)
    assert (status, out) == (2, "") and err.endswith(f"needs {library}: pip install 'regard[cluster]'\n")
    assert err.count("\n") == 1


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a cluster of two single-core nodes, and yield its address and the process of the worker node."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # otherwise the head uses a token of ~/.ray, the node does not
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
            started.append(subprocess.Popen([*ray, *argv, *shared], stdout=out, stderr=out, start_new_session=True))
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


def start_slow(folder: Path, address: str, steps: int) -> tuple[list[str], subprocess.Popen[str], list[Job]]:
    """Start a comparison with slow steps on a cluster, so that the comparison can be stopped before its end.

    Return the command without cluster flags, the process, and its two jobs.
    """
    own = folder / "slow.py"
    own.write_text(SLOW)
    argv = ["compare", "slow.py", "--vary", "lr=0.01", "--seeds", "2", "--steps", str(steps), "--hidden", "4"]
    command = [sys.executable, "-m", "regard", *argv]
    process = subprocess.Popen(
        [*command, "--on", "ray", "--address", address, "--savepath", "ray"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    runs = [folder / "ray" / "slow" / "lr=0.01" / f"seed-{seed}" for seed in range(2)]
    return command, process, [job(run, str(own)) for run in runs]


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait until a condition holds while a process runs."""
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.1)


needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


@pytest.mark.slow
@needs_ray
def test_a_killed_machine_loses_only_the_steps_since_the_checkpoint(
    tmp_path: Path, cluster: tuple[str, subprocess.Popen[bytes]]
) -> None:
    address, other = cluster
    command, process, jobs = start_slow(tmp_path, address, 2000)
    try:
        wait_until(lambda: all(training.run.exists() and training.last_step >= 500 for training in jobs), process)
        os.killpg(other.pid, signal.SIGKILL)
        out, _ = process.communicate(timeout=240)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, out
    assert re.search(r"seed-[01]: process or machine lost; resumes from step (500|1000|1500)\b", out), out
    assert "compare: 2 of 2 done" in out and "Traceback" not in out
    subprocess.run([*command, "--savepath", "here"], cwd=tmp_path, capture_output=True, check=True, timeout=240)
    summaries = [json.loads((tmp_path / place / "slow" / "summary.json").read_text()) for place in ("ray", "here")]
    for summary in summaries:
        del summary["means"][0]["seconds"]
    assert summaries[0] == summaries[1]
    for run in [training.run for training in jobs]:
        same = tmp_path / "here" / run.path.relative_to(tmp_path / "ray")
        assert run.model_file.read_bytes() == (same / "model.safetensors").read_bytes()
        assert run.metrics_file.read_bytes() == (same / "metrics.jsonl").read_bytes()


@pytest.mark.slow
@needs_ray
def test_a_stopped_comparison_saves(tmp_path: Path, cluster: tuple[str, subprocess.Popen[bytes]]) -> None:
    steps = [0, 0]
    # Ray replaces the exit status by 1 if the process exits while Ray waits.
    for sent, status in ((signal.SIGINT, 130), (signal.SIGTERM, 1)):
        _, process, jobs = start_slow(tmp_path, cluster[0], 1_000_000)

        def further(jobs: list[Job] = jobs, steps: list[int] = steps) -> bool:
            return all(
                training.run.exists() and (training.run.read_metrics() or [{"step": 0}])[-1]["step"] > step + 50
                for training, step in zip(jobs, steps, strict=True)
            )

        try:
            wait_until(further, process)
            process.send_signal(sent)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == status and "Traceback" not in out, out
        for index, training in enumerate(jobs):
            metrics = training.run.known_metrics()[-1]
            assert 0 <= training.last_step - metrics["step"] < 10 and training.last_step > steps[index] + 50
            steps[index] = training.last_step
        assert not [path for path in tmp_path.rglob(".*") if path.is_file()]  # neither a lock nor the marker


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


# The Slurm backend: submitted jobs, their results, and resumed training jobs.


needs_submitit = pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason="submitit is not installed")


class FakeTask:
    """Task with a result file in the folder, or with an ID in the queue."""

    def __init__(self, folder: Path, job_id: str) -> None:
        self.job_id, self.folder = job_id, folder
        self.paths = SimpleNamespace(result_pickle=folder / f"{job_id}.pkl", stderr=folder / f"{job_id}.err")

    def result(self) -> Any:
        return pickle.loads(self.paths.result_pickle.read_bytes())


class FakeSlurm:
    """Replacement for the parts of submitit and of Slurm's commands that Regard uses. All jobs run when the
    queue is queried."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.core = SimpleNamespace(utils=SimpleNamespace(FailedJobError=type("FailedJobError", (Exception,), {})))
        self.SlurmJob = FakeTask
        self.submitted: list[list[Job]] = []
        self.queue: dict[str, tuple[Path, Job]] = {}
        self.parameters: dict[str, Any] = {}
        self.cancelled: list[str] = []
        self.ends: set[str] = set()
        """Tasks that end without a result."""
        self.keeps: set[str] = set()
        """Tasks that remain in the queue."""
        monkeypatch.setitem(sys.modules, "submitit", self)
        monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
        monkeypatch.setattr(backends, "POLL_INTERVAL", 0.0)
        monkeypatch.setattr(backends.subprocess, "run", self.run)

    def AutoExecutor(self, folder: Path, **options: Any) -> Any:  # noqa: N802
        def map_array(work: Any, jobs: Sequence[Job]) -> list[FakeTask]:
            folder.mkdir(parents=True, exist_ok=True)
            self.submitted.append(list(jobs))
            tasks = [FakeTask(folder, f"{len(self.submitted)}_{number}") for number in range(len(jobs))]
            self.queue |= {task.job_id: (folder, training) for task, training in zip(tasks, jobs, strict=True)}
            return tasks

        return SimpleNamespace(update_parameters=self.parameters.update, map_array=map_array)

    def run(self, argv: list[str], **options: Any) -> Any:
        if argv[0] == "scancel":
            self.cancelled += argv[1:]
            return None
        shown = list(self.queue)
        for number in shown:
            if number in self.keeps:
                continue
            folder, training = self.queue.pop(number)
            if number not in self.ends:
                try:
                    outcome: Any = (None, training.measure())
                except InputError as error:
                    outcome = (error, None)
                (folder / f"{number}.pkl").write_bytes(pickle.dumps(outcome))
        return SimpleNamespace(returncode=0, stdout="\n".join(self.queue))


@pytest.fixture
def faked_slurm(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    return FakeSlurm(monkeypatch)


def test_a_comparison_is_a_job_array(tmp_path: Path, faked_slurm: FakeSlurm) -> None:
    on = Slurm(partition="long", time=90, memory=3, cpus=2)
    result = compare("counting", {"score": ["dot", "additive"]}, savepath=tmp_path, on=on, **SMALL)
    assert [len(jobs) for jobs in faked_slurm.submitted] == [4] and len(result.measured["score=dot"]) == 2
    parameters = {
        name: faked_slurm.parameters[name] for name in ("timeout_min", "mem_gb", "cpus_per_task", "slurm_partition")
    }
    assert parameters == {"timeout_min": 90, "mem_gb": 3, "cpus_per_task": 2, "slurm_partition": "long"}
    assert not list(tmp_path.rglob(backends.NOTE))


def test_large_comparisons_are_several_arrays(
    tmp_path: Path, faked_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "LARGEST_ARRAY", 3)
    compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Slurm(), **{**SMALL, "seeds": 4})
    assert [len(jobs) for jobs in faked_slurm.submitted] == [3, 1]


def test_reports_terminated_trainings_after_all_others(tmp_path: Path, faked_slurm: FakeSlurm) -> None:
    faked_slurm.ends = {"1_0"}
    with pytest.raises(MachineError, match=r"1 of 2 training jobs were terminated.*1_0\.err"):
        compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Slurm(), **SMALL)
    compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Slurm(), **SMALL)
    assert [len(jobs) for jobs in faked_slurm.submitted] == [2, 1]


def test_an_error_stops_the_other_trainings(tmp_path: Path, faked_slurm: FakeSlurm) -> None:
    faked_slurm.keeps = {"1_1"}
    (tmp_path / "counting" / "score=dot" / "seed-0" / "counting").mkdir(parents=True)
    (tmp_path / "counting" / "score=dot" / "seed-0" / "counting" / "thesis.txt").touch()
    with pytest.raises(InputError, match="exists and is not a run"):
        compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Slurm(), **SMALL)
    assert faked_slurm.cancelled == ["1_1"] and not list(tmp_path.rglob(backends.NOTE))


def test_the_same_command_finds_submitted_trainings(
    tmp_path: Path, faked_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    class GoneError(BaseException):
        """The submitting process is killed."""

    def gone(seconds: float) -> None:
        raise GoneError

    with monkeypatch.context() as patch:
        patch.setattr(backends.time, "sleep", gone)
        patch.setattr(backends.Slurm, "_cancel", lambda self, waiting: None)
        with pytest.raises(GoneError):
            compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Slurm(), **SMALL)
    assert len(list(tmp_path.rglob(backends.NOTE))) == 2
    del faked_slurm.queue["1_1"]  # like scancel
    faked_slurm.keeps = {"1_0"}
    queries = 0

    def count_query(seconds: float) -> None:
        nonlocal queries
        queries += 1
        faked_slurm.keeps = set()

    monkeypatch.setattr(backends.time, "sleep", count_query)
    result = compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Slurm(), **SMALL)
    assert queries and [len(jobs) for jobs in faked_slurm.submitted] == [2, 1]
    assert faked_slurm.submitted[1][0].folder.name == "seed-1" and len(result.measured["score=dot"]) == 2


@pytest.mark.slow
@needs_submitit
def test_submitit_with_local_processes(tmp_path: Path) -> None:
    result = compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Slurm(executor="local"), **SMALL)
    measured = result.measured["score=dot"][1]
    assert job(tmp_path / "alone", seed=1, score="dot").measure().loss == measured.loss


@pytest.mark.slow
@needs_submitit
def test_the_time_limit_saves_and_requeues(tmp_path: Path) -> None:
    long_job = job(tmp_path, steps=1_000_000)
    training = backends._Training(threads=1)
    submissions: list[Any] = []

    def soon() -> None:
        while not (long_job.run.exists() and long_job.run.metrics_file.exists()):
            time.sleep(0.1)
        time.sleep(0.5)
        submissions.append(training.checkpoint(long_job))

    timer = threading.Thread(target=soon)
    timer.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(backends, "SLURM_GRACE", 0.0)
            with pytest.raises((backends.EndedError, OSError)):
                training(long_job)
    finally:
        timer.join()
    step = long_job.last_step
    assert step > 0 and step == regard.load(long_job.run.path).step
    [submission] = submissions
    again: Any = pickle.loads(pickle.dumps(submission.function))
    assert isinstance(again, backends._Training) and submission.args == (long_job,)


def test_trainings_ignore_the_time_limit_signal() -> None:
    """Slurm sends the signal to all processes of a job."""
    seen: list[Any] = []
    training: Any = SimpleNamespace(measure=lambda: seen.append(signal.getsignal(signal.SIGUSR2)))
    before = signal.getsignal(signal.SIGUSR2)
    try:
        backends._measure_on_slurm(training)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert seen == [signal.SIG_IGN]
