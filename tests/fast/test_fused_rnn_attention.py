"""The fused recurrent decoder equals the stepwise one, which runs while something observes the layers."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard import record
from regard.attention.scores import SCORES, General
from regard.models import recurrent
from regard.models.recurrent import RecurrentDecoder

E, D, M = 3, 5, 7
FUSED = ("dot", "scaled_dot", "general", "concat", "additive")
PLACES: list[dict[str, Any]] = [
    {"context": "cell", "query": "previous"},
    {"context": "output", "query": "current", "input_feeding": True},
    {"context": "output", "query": "previous", "input_feeding": True},
    {"context": "both", "query": "previous"},
]
each_place = pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place.values())))


def make(score: str, place: dict[str, Any], cell: Any = "lstm") -> tuple[RecurrentDecoder, list[Tensor]]:
    """Return a decoder in float64 with random parameters, and embeddings, memory and last state."""
    torch.manual_seed(1)
    width = D if "dot" in score else M
    decoder = RecurrentDecoder(E, D, width, cell=cell, score=SCORES[score](D, width), **place).double()
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter)
    shapes = [(2, 6, E), (2, 4, width), (2, width)]
    return decoder, [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


MASK = torch.tensor([[True] * 4, [True, True, False, False]])


def run(decoder: RecurrentDecoder, given: list[Tensor], mask: Tensor = MASK) -> Tensor:
    embedded, states, last = given
    return decoder(embedded, decoder.remember(states, last, mask))


@each_place
@pytest.mark.parametrize("score", FUSED)
def test_equals_single_steps_with_all_gradients(place: dict[str, Any], score: str) -> None:
    decoder, given = make(score, place)
    inputs = [*given, *decoder.parameters()]
    together = run(decoder, given)
    with record(decoder):
        apart = run(decoder, given)
    assert together.grad_fn is not None and apart.grad_fn is not None
    assert "FusedDecoder" in together.grad_fn.name() and "FusedDecoder" not in apart.grad_fn.name()
    torch.testing.assert_close(together, apart, atol=1e-10, rtol=0)
    weights = torch.randn_like(apart)
    grads = [torch.autograd.grad((each * weights).sum(), inputs) for each in (together, apart)]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=0)


@pytest.mark.parametrize(("score", "place"), [("additive", PLACES[0]), ("general", PLACES[1])])
def test_gradients_equal_finite_differences(score: str, place: dict[str, Any]) -> None:
    decoder, given = make(score, place)
    assert torch.autograd.gradcheck(lambda *each: run(decoder, list(each)), given)


@each_place
def test_single_precision_differs_by_rounding(place: dict[str, Any]) -> None:
    decoder, given = make("additive", place)
    expected = run(decoder, given)
    found = run(decoder.float(), [each.float() for each in given])
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)


@each_place
def test_result_is_equal_without_gradients(place: dict[str, Any]) -> None:
    decoder, given = make("concat", place)
    with torch.no_grad():
        found = run(decoder, given)
    assert torch.equal(found, run(decoder, given).detach())


class Own(General):
    """A custom score, which may compute anything."""


def test_unsupported_cases_use_single_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent, "run_decoder", lambda *args: pytest.fail("it took all steps at once"))
    run(*make("general", PLACES[0], cell="gru"))
    decoder, given = make("general", PLACES[0])
    nothing = torch.tensor([[True] * 4, [False] * 4])
    assert run(decoder, given, nothing).isfinite().all()
    assert decoder.cross is not None
    decoder.cross.score = Own(D, M).double()
    run(decoder, given)
    with torch.autocast("cpu", torch.bfloat16):
        run(*make("general", PLACES[0]))


@pytest.mark.parametrize("score", sorted(set(SCORES) - set(FUSED)))
def test_scores_without_a_fused_step_use_the_decoder_itself(score: str) -> None:
    torch.manual_seed(1)
    decoder = RecurrentDecoder(E, D, D, cell="lstm", score=SCORES[score](D, D), **PLACES[0]).double()
    output = run(decoder, [torch.randn(shape, dtype=torch.float64) for shape in [(2, 6, E), (2, 4, D), (2, D)]])
    assert output.grad_fn is not None and "FusedDecoder" not in output.grad_fn.name()
