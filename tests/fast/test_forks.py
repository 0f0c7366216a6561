"""Batches that forks compute have the results of one process, also after errors, interruptions and kills."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.fast import threads
from regard.fast.threads import can_fork, map_in_forks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are used only on Linux")
HERE = os.getpid()


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """Set the number of PyTorch's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def wait_for_forks(folder: Path, count: int) -> None:
    """Wait until this number of processes waits here, which proves that they run simultaneously."""
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < count:
        pass


@pytest.mark.parametrize("options", [{}, {"beam": 3, "n_best": 2}, {"temperature": 0.5}])
def test_answers_equal_those_of_one_process(
    translator: regard.PairRun, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    dates = [f"{day}. Mai {1950 + 2 * day}" for day in range(1, 29)] + ["1", "14 juillet 1989", ""]
    used = []

    def count_forks(*how: Any) -> list[Any]:
        used.append(how[-1])
        return map_in_forks(*how)

    def answers() -> list[list[tuple[str, Any]]]:
        found = translator.search(dates, batchsize=4, **options)
        return [[(each.text, pytest.approx(each.log_probability, abs=1e-4)) for each in texts] for texts in found]

    monkeypatch.setattr(threads, "can_fork", lambda _: True)
    monkeypatch.setattr(threads, "map_in_forks", count_forks)
    found = answers()
    assert used == [2]
    torch.set_num_threads(1)
    assert found == answers()
    assert used == [2]


def test_each_process_takes_batches_and_uses_one_thread(tmp_path: Path) -> None:
    def work(batch: int) -> tuple[int, int, int]:
        wait_for_forks(tmp_path, 3)
        return batch, os.getpid(), torch.get_num_threads()

    found = map_in_forks(work, range(300), 3)
    assert [batch for batch, _, _ in found] == list(range(300))
    assert len({pid for _, pid, _ in found}) == 3
    assert HERE in {pid for _, pid, _ in found}
    assert {count for _, _, count in found} == {1}
    assert torch.get_num_threads() == 2


def test_tensors_return_from_a_fork(tmp_path: Path) -> None:
    def work(batch: int) -> Tensor:
        wait_for_forks(tmp_path, 2)
        return torch.full((1000,), batch)

    assert [int(tensor.sum()) for tensor in map_in_forks(work, range(9), 2)] == [1000 * batch for batch in range(9)]


def test_error_in_a_fork_is_raised_here_and_ends_the_others(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()

    def work(batch: int) -> None:
        (begun / str(batch)).touch()
        if batch == 5:
            raise regard.InputError("the fifth")

    with pytest.raises(regard.InputError, match="the fifth"):
        map_in_forks(work, range(100_000), 2)
    assert len(list(begun.iterdir())) < 50_000
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_batches_of_a_killed_fork_are_computed_here(tmp_path: Path, sign: signal.Signals) -> None:
    def work(batch: int) -> int:
        wait_for_forks(tmp_path, 2)
        if os.getpid() != HERE:
            os.kill(os.getpid(), sign)
        return batch

    assert map_in_forks(work, range(20), 2) == list(range(20))


def test_results_that_cannot_be_sent_are_computed_here(tmp_path: Path) -> None:
    def work(batch: int) -> Any:
        wait_for_forks(tmp_path, 2)
        return partial(lambda: batch)

    assert [result() for result in map_in_forks(work, range(20), 2)] == list(range(20))


def test_interruption_ends_the_forks(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()

    def work(_: int) -> None:
        wait_for_forks(pids, 2)
        if os.getpid() == HERE:
            raise KeyboardInterrupt
        signal.pause()

    with pytest.raises(KeyboardInterrupt):
        map_in_forks(work, range(20), 2)
    [other] = [int(path.name) for path in pids.iterdir() if path.name != str(HERE)]
    with pytest.raises(ProcessLookupError):
        os.kill(other, 0)


def test_models_with_hooks_and_threads_of_python_prevent_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_current_frames", lambda: {threading.get_ident(): None})
    model = nn.Sequential(nn.Linear(2, 2))
    assert can_fork(model)
    handle = model[0].register_forward_hook(lambda *_: None)
    assert not can_fork(model)
    handle.remove()
    handle = model.register_forward_pre_hook(lambda *_: None)
    assert not can_fork(model)
    handle.remove()
    monkeypatch.undo()
    waiting = threading.Event()
    other = threading.Thread(target=waiting.wait)
    other.start()
    assert not can_fork(model)
    waiting.set()
    other.join()
