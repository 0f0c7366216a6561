"""Number of training threads, and the settings that override it."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from regard.fast import threads
from regard.fast.threads import limit_threads


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove all settings for threads."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "available_cores", lambda: 2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def inside(model: nn.Module) -> int:
    with limit_threads(model):
        return torch.get_num_threads()


SMALL = nn.Linear(3, 5)


def test_small_models_use_one_thread_others_pytorchs_default() -> None:
    assert inside(SMALL) == 1
    assert torch.get_num_threads() == 2
    assert inside(nn.Linear(1000, 201, bias=False)) == 2


def test_number_is_restored_after_an_error() -> None:
    with pytest.raises(RuntimeError):
        with limit_threads(SMALL):
            raise RuntimeError
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_environment_variables_win(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "2")
    assert inside(SMALL) == 2


def test_set_num_threads_wins() -> None:
    torch.set_num_threads(3)
    assert inside(SMALL) == 3
