"""The token screen finds the most likely token, also among nearly equal logits."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.decoding.search import greedy_search
from regard.errors import InputError
from regard.fast import token_screen
from regard.fast.token_screen import TokenScreen, make_screen
from tests.fast.test_fast_transformer import make, sources

NEVER = (0, 1, 3)


@pytest.fixture(autouse=True)
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the screen on every processor."""
    monkeypatch.setattr(token_screen, "is_faster", lambda: True)


def check(states: Tensor, weight: Tensor) -> None:
    """Check that the screen finds tokens with the largest logit."""
    tokens, best = TokenScreen(weight, NEVER)(states)
    logits = states.double() @ weight.double().t()
    logits[:, list(NEVER)] = -torch.inf
    largest = logits.amax(1, keepdim=True)
    torch.testing.assert_close(logits.gather(1, tokens), largest, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(best, largest.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("count", "width", "symbols"), [(1, 8, 5), (9, 33, 64), (64, 128, 1000), (5, 1024, 200)])
def test_the_token_has_the_largest_logit(count: int, width: int, symbols: int, generator: torch.Generator) -> None:
    states = torch.randn(count, width, generator=generator)
    weight = torch.randn(symbols, width, generator=generator)
    check(states, weight)
    check(states * 1e6, weight * 1e-6)
    check(states, weight * torch.rand(symbols, 1, generator=generator) ** 4)  # rows of different lengths
    check(torch.zeros(2, width), weight)
    check(states, torch.zeros(symbols, width))


def test_rows_of_nearly_equal_logits(generator: torch.Generator) -> None:
    states = torch.randn(20, 64, generator=generator)
    weight = torch.randn(1, 64, generator=generator) + 0.003 * torch.randn(3000, 64, generator=generator)
    check(states, weight)  # the differences between logits are smaller than the rounding errors
    weight[7] *= 50  # its scale rounds all other rows to a few values
    check(states, weight)


def test_only_plain_output_layers_are_screened(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.ones(9, 4)
    assert make_screen(weight, None, NEVER) is not None
    for case in (weight.double(), torch.ones(9, 2000), weight / 0):
        assert make_screen(case, None, NEVER) is None
    assert make_screen(weight, torch.zeros(9), NEVER) is None
    monkeypatch.setattr(token_screen, "is_faster", lambda: False)
    assert make_screen(weight, None, NEVER) is None


def test_a_search_uses_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    model, source = make().float(), sources(*range(1, 13))
    scored = greedy_search(model, source, source != 0, max_len=20)
    calls, call = [], TokenScreen.__call__

    def counting(screen: TokenScreen, states: Tensor) -> Any:
        calls.append(len(states))
        return call(screen, states)

    monkeypatch.setattr(TokenScreen, "__call__", counting)
    found = greedy_search(model, source, source != 0, max_len=20, scored=False)
    assert [each.tokens for each in found] == [each.tokens for each in scored] and calls[0] == 12
    calls.clear()
    greedy_search(model, source, source != 0, max_len=20)
    greedy_search(model, source[:3], source[:3] != 0, max_len=20, scored=False)
    assert not calls


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_damaged_parameters_are_an_error(value: float) -> None:
    model, source = make().float(), sources(*range(1, 13))
    layer: Any = model.decoder.layers[0]
    with torch.no_grad():
        layer.feed_forward.outer.weight[0, 0] = value
    with pytest.raises(InputError, match="not finite"):
        greedy_search(model, source, source != 0, max_len=5, scored=False)
