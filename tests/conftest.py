"""Fixtures shared by the tests of several packages."""

import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

import regard
from regard.training import objective
from tests.german import write
from tests.network import Guard

# Models with a few thousand parameters are not faster with several threads, and one thread makes tests reproducible.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.pop("COLUMNS", None)  # pytest's readline sets it for its workers
torch.set_num_threads(1)
# Programs of `benchmarks/` are imported by name, after all other modules.
sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
# Tests have no deadline, because timings vary between machines. Property tests generate the same examples each
# time, so that `make test` is reproducible. `make test-all` generates new examples (REGARD_RANDOM=1).
settings.register_profile("regard", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.load_profile("random" if os.environ.get("REGARD_RANDOM") == "1" else "regard")


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Prevent tests from writing Regard's user files to the home folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


GUARD = Guard().install()
Command = Callable[..., tuple[int, str, str]]
"""A call of a command line, which returns the exit status, standard output and standard error."""


@pytest.fixture(autouse=True)
def _no_other_machine() -> Iterator[None]:
    """Fail a test that connects to another machine, even if the code catches the error."""
    GUARD.reached.clear()
    yield
    assert not GUARD.reached, GUARD.reached


@pytest.fixture
def generator() -> torch.Generator:
    """Return a seeded generator."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> regard.AnswerRun:
    """Return a run of Signal 2 with heads and positions after a few training steps. Tests must not change the run."""
    run = regard.train(
        "signal2", hidden=8, heads=2, steps=12, batchsize=5, savepath=tmp_path_factory.mktemp("models"), progress=False
    )
    assert isinstance(run, regard.AnswerRun)
    return run


@pytest.fixture(scope="session")
def translator(tmp_path_factory: pytest.TempPathFactory) -> regard.PairRun:
    """Return a small, partly trained run on Dates. Tests must not change the run."""
    run = regard.train(
        "dates",
        hidden=32,
        embedding=16,
        steps=150,
        batchsize=32,
        lr=0.02,
        savepath=tmp_path_factory.mktemp("models"),
        progress=False,
    )
    assert isinstance(run, regard.PairRun)
    return run


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command line in this process. Returns the exit status, standard output and standard error. `regard
    train` tests the model on fewer unseen samples than usual."""
    from regard.cli import main, train

    monkeypatch.setattr(train, "UNSEEN_SAMPLES", {"numbers": 100, "text": 20, "tokens": 20})

    def call(*argv: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            status = main([str(word) for word in argv])
        except SystemExit as stop:
            status = int(stop.code or 0)
        out, err = capsys.readouterr()
        return status, out, err

    return call


def run_jobs_here(patch: pytest.MonkeyPatch) -> None:
    """Run the jobs of comparisons, cards and benchmarks in this process: a new process takes seconds to start,
    and tests can change functions here."""

    def run(work: Callable[[Any], Any], jobs: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        for job in jobs:
            yield job, work(job)

    for name in ("regard.sweep.backends", "regard_lab.bench.bench"):
        patch.setattr(importlib.import_module(name), "run_in_processes", run)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run jobs in this process."""
    run_jobs_here(monkeypatch)


@pytest.fixture
def small_probes(in_this_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train and test the probes of cards with few sequences, in this process."""
    from regard_lab.cards.probes import PROBES

    for name, probe in PROBES.items():
        monkeypatch.setitem(PROBES, name, replace(probe, batch=4, test_sequences=8))


TINY: dict[str, Any] = {
    "vocab_size": 60,
    "hidden": 32,
    "heads": 2,
    "inner": 64,
    "enc_layers": 2,
    "dec_layers": 1,
    "tokens": 400,
    "positions": "sinusoidal",
    "dropout": 0.1,
    "average": 0.95,
    "validate_every": 100,
}
"""A Transformer that learns the German text of the tests within seconds."""


def train_german(factory: pytest.TempPathFactory, **flags: Any) -> regard.TranslationRun:
    """Return a run that has learned a parallel text."""
    folder = factory.mktemp("german")
    run = regard.train("translation", **write(folder), **{**TINY, **flags}, savepath=folder, progress=False)
    assert isinstance(run, regard.TranslationRun)
    return run


@pytest.fixture(scope="session")
def german(tmp_path_factory: pytest.TempPathFactory) -> regard.TranslationRun:
    """Return a run that has learned a parallel text. Tests must not change its files."""
    return train_german(tmp_path_factory, steps=300)


@pytest.fixture
def interrupt_at(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that interrupts training like Ctrl-C, at the nth call of a function of the objective."""

    def interrupt_at(step: int, name: str = "cross_entropy") -> None:
        calls, called = iter(range(1, 1000)), getattr(objective, name)

        def interrupting(*args: Any, **options: Any) -> Any:
            if next(calls) == step:
                os.kill(os.getpid(), signal.SIGINT)
            return called(*args, **options)

        monkeypatch.setattr(objective, name, interrupting)

    return interrupt_at


def files(run: regard.AnyRun) -> dict[str, bytes]:
    """Return the content of each file of a run."""
    return {str(path.relative_to(run.folder)): path.read_bytes() for path in run.folder.rglob("*.*")}


@pytest.fixture
def check_resumed(tmp_path: Path, interrupt_at: Callable[..., None]) -> Callable[..., tuple[regard.AnyRun, int]]:
    """Return a function that checks whether a resumed training has the files of an uninterrupted one."""

    def check(task: str, step: int, name: str = "cross_entropy", **flags: Any) -> tuple[regard.AnyRun, int]:
        """Interrupt at a call of the objective; return the run, and the step at which it was saved."""
        whole = regard.train(task, **flags, savepath=tmp_path / "whole")
        interrupt_at(step, name)
        with pytest.raises(KeyboardInterrupt):
            regard.train(task, **flags, savepath=tmp_path / "parts")
        saved = regard.load(tmp_path / "parts" / task).step
        parts = regard.train(task, resume=True, progress=False, savepath=tmp_path / "parts")
        assert files(parts) == files(whole)
        return parts, saved

    return check
