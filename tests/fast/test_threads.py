"""Parallel batches give the same answers as sequential ones, and are used only if their order does not matter."""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

import regard
from regard import record
from regard.attention.interventions import intervene
from regard.fast.threads import map_batches
from regard.models.transformer import Transformer, TransformerConfig

THREADS = 4


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the number of PyTorch's threads, and use no forks, whether or not pytest has threads of its own."""
    monkeypatch.setattr("regard.fast.threads.can_fork", lambda _: False)
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def model() -> Transformer:
    """A model without hooks."""
    return Transformer(TransformerConfig(hidden=8, heads=2, inner=8), source_symbols=9, target_symbols=9, longest=9)


def here(_: int) -> bool:
    """Return whether this is the main thread of the test."""
    return threading.current_thread() is threading.main_thread()


@pytest.mark.parametrize("options", [{}, {"beam": 3, "n_best": 2}, {"temperature": 0.5}])
def test_answers_equal_those_of_one_thread(translator: regard.PairRun, options: dict[str, Any]) -> None:
    dates = [f"{day}. Mai {1950 + 2 * day}" for day in range(1, 29)] + ["1", "14 juillet 1989", ""]

    def answers() -> list[list[tuple[str, Any]]]:
        found = translator.search(dates, batchsize=7, **options)
        return [[(each.text, pytest.approx(each.log_probability, abs=1e-4)) for each in texts] for texts in found]

    found = answers()
    torch.set_num_threads(1)
    assert found == answers()


@pytest.mark.parametrize(("batches", "share"), [(2, 2), (3, 1), (4, 1), (9, 1)])
def test_batches_share_the_cores(model: Transformer, batches: int, share: int) -> None:
    together = threading.Barrier(min(batches, THREADS), timeout=30)

    def search(batch: int) -> tuple[int, int]:
        if batch < THREADS:  # the first batches wait for each other, which never ends in sequence
            together.wait()
        return batch, torch.get_num_threads()

    assert map_batches(model, search, range(batches)) == [(batch, share) for batch in range(batches)]


def test_number_of_threads_is_restored(model: Transformer) -> None:
    found = []
    map_batches(model, lambda batch: batch, range(5))
    later = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert [torch.get_num_threads(), *found] == [THREADS, THREADS]


def test_few_batches_start_after_a_failure(model: Transformer) -> None:
    begun = []

    def search(batch: int) -> None:
        begun.append(batch)
        if batch == 0:
            raise regard.InputError("the first")
        time.sleep(0.05)

    with pytest.raises(regard.InputError, match="the first"):
        map_batches(model, search, range(1000))
    assert len(begun) < 500
    assert torch.get_num_threads() == THREADS


@pytest.mark.parametrize(
    "interference",
    [
        lambda model: record(model),
        lambda model: record(model, layers=["decoder.1.cross"]),
        lambda model: intervene(model, "decoder.0.self_attention"),
        lambda model: torch.autocast("cpu", torch.bfloat16),
    ],
)
def test_batches_are_sequential_if_their_order_matters(model: Transformer, interference: Any) -> None:
    block: AbstractContextManager[Any] = interference(model)
    with block:
        assert map_batches(model, here, range(3)) == [True] * 3
    assert map_batches(model, here, range(3)) == [False] * 3


def test_single_batch_uses_all_cores(model: Transformer) -> None:
    assert map_batches(model, here, [0]) == [True]
    assert map_batches(model, lambda _: torch.get_num_threads(), [0]) == [THREADS]
    assert map_batches(model, here, []) == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_are_sequential_on_a_gpu(model: Transformer) -> None:
    assert map_batches(model.cuda(), here, range(3)) == [True] * 3
