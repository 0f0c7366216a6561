"""The Slurm backend: submitted jobs, their results, and resumed training jobs."""

import importlib.util
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import regard
from regard.errors import InputError, MachineError
from regard.sweep import backends
from regard.sweep.backends import Slurm
from regard.sweep.comparison import compare
from regard.sweep.job import Job
from tests.sweep.cluster import job

Command = Callable[..., tuple[int, str, str]]
SMALL: dict[str, Any] = {"steps": 30, "hidden": 4, "batchsize": 8, "seeds": 2, "progress": False}
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
def faked(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    return FakeSlurm(monkeypatch)


def test_a_comparison_is_a_job_array(tmp_path: Path, faked: FakeSlurm) -> None:
    on = Slurm(partition="long", time=90, memory=3, cpus=2)
    result = compare("counting", {"score": ["dot", "additive"]}, savepath=tmp_path, on=on, **SMALL)
    assert [len(jobs) for jobs in faked.submitted] == [4] and len(result.measured["score=dot"]) == 2
    parameters = {
        name: faked.parameters[name] for name in ("timeout_min", "mem_gb", "cpus_per_task", "slurm_partition")
    }
    assert parameters == {"timeout_min": 90, "mem_gb": 3, "cpus_per_task": 2, "slurm_partition": "long"}
    assert not list(tmp_path.rglob(backends.NOTE))


def test_large_comparisons_are_several_arrays(
    tmp_path: Path, faked: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "LARGEST_ARRAY", 3)
    compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Slurm(), **{**SMALL, "seeds": 4})
    assert [len(jobs) for jobs in faked.submitted] == [3, 1]


def test_reports_terminated_trainings_after_all_others(tmp_path: Path, faked: FakeSlurm) -> None:
    faked.ends = {"1_0"}
    with pytest.raises(MachineError, match=r"1 of 2 training jobs were terminated.*1_0\.err"):
        compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Slurm(), **SMALL)
    compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Slurm(), **SMALL)
    assert [len(jobs) for jobs in faked.submitted] == [2, 1]


def test_an_error_stops_the_other_trainings(tmp_path: Path, faked: FakeSlurm) -> None:
    faked.keeps = {"1_1"}
    (tmp_path / "counting" / "score=dot" / "seed-0" / "counting").mkdir(parents=True)
    (tmp_path / "counting" / "score=dot" / "seed-0" / "counting" / "thesis.txt").touch()
    with pytest.raises(InputError, match="exists and is not a run"):
        compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Slurm(), **SMALL)
    assert faked.cancelled == ["1_1"] and not list(tmp_path.rglob(backends.NOTE))


def test_the_same_command_finds_submitted_trainings(
    tmp_path: Path, faked: FakeSlurm, monkeypatch: pytest.MonkeyPatch
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
    del faked.queue["1_1"]  # like scancel
    faked.keeps = {"1_0"}
    queries = 0

    def count_query(seconds: float) -> None:
        nonlocal queries
        queries += 1
        faked.keeps = set()

    monkeypatch.setattr(backends.time, "sleep", count_query)
    result = compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Slurm(), **SMALL)
    assert queries and [len(jobs) for jobs in faked.submitted] == [2, 1]
    assert faked.submitted[1][0].folder.name == "seed-1" and len(result.measured["score=dot"]) == 2


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--time", "1"), "time 1 is out of range: choose from 2 to 525600"),
        (("--memory", "0"), "memory 0 is out of range"),
        (("--address", "127.0.0.1:1"), "--address does not apply to --on slurm: leave it out, or give --on ray"),
        ((), "this machine has no sbatch and srun"),
    ],
)
def test_refuses_an_unavailable_cluster_before_writing(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setitem(sys.modules, "submitit", SimpleNamespace())
    flags = ("--vary", "lr=0.1", "--on", "slurm", "--savepath", tmp_path / "new")
    status, out, err = command("compare", "counting", *flags, *argv)
    assert (status, out) == (2, "") and message in err and err.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_without_submitit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(InputError, match=r"needs submitit: pip install 'regard\[cluster\]'"):
        compare("counting", {"score": ["dot"]}, savepath=tmp_path, on=Slurm(), **SMALL)


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
