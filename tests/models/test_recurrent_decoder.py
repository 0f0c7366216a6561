"""Every variant of the recurrent decoder equals its equations, computed in float64 for each sample and step."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import record
from regard.attention.scores import SCORES, Concat, Dot
from regard.errors import InputError
from regard.models.recurrent import Memory, RecurrentDecoder
from tests.attention.reference import score_of

E, D, M = 3, 5, 7
TWO_WIDTHS = ("general", "concat", "additive")
"""Scores for queries and keys of different widths."""
PLACES: list[dict[str, Any]] = [
    {"context": "cell", "query": "previous"},
    {"context": "output", "query": "current"},
    {"context": "output", "query": "previous"},
    {"context": "output", "query": "current", "input_feeding": True},
    {"context": "output", "query": "previous", "input_feeding": True},
    {"context": "both", "query": "previous"},
]
each_place = pytest.mark.parametrize(
    "place", PLACES, ids=lambda place: "-".join(str(value) for value in place.values())
)
each_cell = pytest.mark.parametrize("cell", ["lstm", "gru"])


def make(cell: str, score: str | None, memory_width: int = M, **place: Any) -> tuple[RecurrentDecoder, Memory]:
    torch.manual_seed(1)
    built = None if score is None else SCORES[score](D, memory_width)
    decoder = RecurrentDecoder(E, D, memory_width, cell=cell, score=built, **place).double()  # type: ignore[arg-type]
    states = torch.randn(2, 4, memory_width, dtype=torch.float64)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    return decoder, decoder.remember(states, torch.randn(2, memory_width, dtype=torch.float64), mask)


def cell_of(rnn: nn.LSTM | nn.GRU, read: Tensor, state: list[Tensor]) -> list[Tensor]:
    """Compute the equations of the cells in PyTorch's documentation."""
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    of_input, of_state, input_bias, state_bias = (rnn.get_parameter(name) for name in names)
    x, h = of_input @ read + input_bias, of_state @ state[0] + state_bias
    if isinstance(rnn, nn.GRU):
        (xr, xz, xn), (hr, hz, hn) = x.chunk(3), h.chunk(3)
        reset, update = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        new = torch.tanh(xn + reset * hn)
        return [(1 - update) * new + update * state[0]]
    entry, forget, new, out = (x + h).chunk(4)
    cell = torch.sigmoid(forget) * state[1] + torch.sigmoid(entry) * torch.tanh(new)
    return [torch.sigmoid(out) * torch.tanh(cell), cell]


def by_hand(decoder: RecurrentDecoder, embedded: Tensor, memory: Memory, place: dict[str, Any]) -> Tensor:
    outputs = torch.zeros(*embedded.shape[:2], D, dtype=torch.float64)
    for sample in range(len(embedded)):
        length = int(memory.mask[sample].sum())
        states = memory.states[sample, :length]

        def context(query: Tensor, states: Tensor = states, length: int = length) -> Tensor:
            assert decoder.cross is not None
            scores = [score_of(decoder.cross.score, query, key, length) for key in states]
            weights = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
            return sum((w * s for w, s in zip(weights, states, strict=True)), torch.zeros(1))

        assert decoder.bridge is not None
        started = torch.tanh(decoder.bridge.weight @ memory.last[sample] + decoder.bridge.bias)
        state, fed = list(started.split(D)), torch.zeros(D, dtype=torch.float64)
        for time in range(embedded.shape[1]):
            read, before = [embedded[sample, time]], state[0]
            if place.get("input_feeding"):
                read.append(fed)
            if place.get("context") in ("cell", "both"):
                read.append(context(before))
            state = cell_of(decoder.rnn, torch.cat(read), state)
            output = state[0]
            if place.get("context") in ("output", "both"):
                made = context(before if place["query"] == "previous" else output)
                assert decoder.combine is not None
                output = torch.tanh(decoder.combine.weight @ torch.cat([made, output]))
            outputs[sample, time] = fed = output
    return outputs


@each_cell
@each_place
@pytest.mark.parametrize("score", SCORES)
def test_equals_its_equations(cell: str, place: dict[str, Any], score: str) -> None:
    decoder, memory = make(cell, score, D if issubclass(SCORES[score], Dot) else M, **place)
    embedded = torch.randn(2, 6, E, dtype=torch.float64)
    torch.testing.assert_close(
        decoder(embedded, memory), by_hand(decoder, embedded, memory, place), atol=1e-12, rtol=0
    )


@each_cell
def test_without_attention_equals_its_equations(cell: str) -> None:
    decoder, memory = make(cell, None)
    embedded = torch.randn(2, 6, E, dtype=torch.float64)
    torch.testing.assert_close(
        decoder(embedded, memory), by_hand(decoder, embedded, memory, {}), atol=1e-12, rtol=0
    )


@each_cell
@pytest.mark.parametrize("place", [*PLACES, None], ids=str)
def test_single_steps_equal_one_call(cell: str, place: dict[str, Any] | None) -> None:
    decoder, memory = make(cell, "general" if place else None, **(place or {}))
    embedded = torch.randn(2, 6, E, dtype=torch.float64)
    state, outputs = decoder.start(memory), []
    for time in range(6):
        output, state = decoder.step(embedded[:, time : time + 1], state)
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs, 1), decoder(embedded, memory), atol=1e-12, rtol=0)


@each_place
def test_parallel_hypotheses_equal_single_ones(place: dict[str, Any]) -> None:
    decoder, memory = make("lstm", "additive", **place)
    embedded = torch.randn(2, 3, E, dtype=torch.float64)
    state = decoder.start(memory)
    wide = state.choose(torch.zeros(2, 3, dtype=torch.int64))
    once, wide = decoder.step(embedded, wide)
    swapped = wide.choose(torch.tensor([[2, 0], [1, 1]]))
    twice, _ = decoder.step(embedded[:, :2], swapped)
    for row, first, column in ((0, 2, 0), (0, 0, 1), (1, 1, 0), (1, 1, 1)):
        alone = state.keep(torch.tensor([row]))
        output, alone = decoder.step(embedded[row, first].view(1, 1, -1), alone)
        torch.testing.assert_close(once[row, first], output[0, 0], atol=1e-12, rtol=0)
        output, _ = decoder.step(embedded[row, column].view(1, 1, -1), alone)
        torch.testing.assert_close(twice[row, column], output[0, 0], atol=1e-12, rtol=0)


@each_place
def test_recording_keeps_every_step_and_changes_nothing(place: dict[str, Any]) -> None:
    decoder, memory = make("gru", "general", **place)
    embedded = torch.randn(2, 6, E, dtype=torch.float64)
    with record(decoder) as records:
        recorded = decoder(embedded, memory)
    assert torch.equal(recorded, decoder(embedded, memory))
    weights = records["cross"].weights
    assert weights.shape == (2, 1, 6, 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 6, dtype=torch.float64))
    assert not weights[1, :, :, 2:].any()
    with record(decoder, rows=[1, 4]) as some:
        decoder(embedded, memory)
    torch.testing.assert_close(some["cross"].weights, weights[:, :, [1, 4]], atol=1e-12, rtol=0)


def test_shapes_equal_those_of_the_notes() -> None:
    """Shapes equal those in section 4.2 of the notes: N samples, encoder width M1 per direction, decoder width
    M2, embedding width K.
    """
    n, tx, ty, m1, m2, k = 2, 5, 3, 7, 11, 13
    states, last = torch.randn(n, tx, 2 * m1), torch.randn(n, 2 * m1)
    decoder = RecurrentDecoder(k, m2, 2 * m1, score=Concat(m2, 2 * m1), context="cell", query="previous")
    memory = decoder.remember(states, last, torch.ones(n, tx, dtype=torch.bool))
    assert decoder.rnn.input_size == 2 * m1 + k  # [context; y_t]
    state = decoder.start(memory)
    assert [part.shape for part in state.cell] == [(n, 1, m2), (n, 1, m2)]  # s and c
    assert decoder.cross is not None
    context = decoder.cross(state.cell[0], memory.prepared, memory.states, memory.mask, prepared=True)
    assert context.shape == (n, 1, 2 * m1)
    with record(decoder) as records:
        output, state = decoder.step(torch.randn(n, 1, k), state)
    assert records["cross"].weights.shape == (n, 1, 1, tx)  # softmax over time
    assert output.shape == (n, 1, m2)
    assert decoder(torch.randn(n, ty, k), memory).shape == (n, ty, m2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context": "cell", "query": "current"}, "query current does not fit context cell"),
        ({"context": "both", "query": "current"}, "query current does not fit context both"),
        ({"context": "cell", "query": "previous", "input_feeding": True}, "input_feeding needs attention"),
    ],
)
def test_conflicting_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make("lstm", "general", **options)


def test_input_feeding_needs_attention() -> None:
    with pytest.raises(InputError, match="input_feeding needs attention with context output"):
        make("lstm", None, input_feeding=True)
