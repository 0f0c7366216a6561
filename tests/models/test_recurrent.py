"""The recurrent encoder equals PyTorch's packed layers, and every decoder its equations in float64."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.attention.masks import length_mask
from regard.attention.scores import SCORES, Dot
from regard.data.batch import collate
from regard.data.vocabulary import BOS
from regard.errors import InputError
from regard.models.recurrent import (
    CELLS,
    Cell,
    Memory,
    RecurrentConfig,
    RecurrentDecoder,
    RecurrentEncoder,
    RecurrentSeq2Seq,
    reversed_steps,
)
from tests.attention.reference import score_of
from tests.models.test_base import RECURRENT


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize(("layers", "bidirectional"), [(1, True), (3, True), (2, False)])
def test_equals_a_packed_layer(cell: Cell, layers: int, bidirectional: bool) -> None:
    torch.manual_seed(0)
    encoder = RecurrentEncoder(3, 10, layers=layers, cell=cell, bidirectional=bidirectional).double()
    lengths = torch.tensor([7, 1, 4, 2])
    inputs = torch.randn(4, 7, 3, dtype=torch.float64)
    states, last = encoder(inputs, length_mask(lengths, 7))
    packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    peer = CELLS[cell](3, 5 if bidirectional else 10, layers, batch_first=True, bidirectional=bidirectional).double()
    sides = {"": encoder.forwards, **({"_reverse": encoder.backwards} if bidirectional else {})}
    for layer in range(layers):
        for suffix, side in sides.items():
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                own = side[layer].get_parameter(f"{name}_l0")
                peer.get_parameter(f"{name}_l{layer}{suffix}").data.copy_(own.data)
    output, final = peer(packed)
    expected, _ = pad_packed_sequence(output, batch_first=True)
    torch.testing.assert_close(states, expected, atol=1e-12, rtol=0)
    final = final[0] if cell == "lstm" else final
    expected = torch.cat([final[-2], final[-1]], dim=-1) if bidirectional else final[-1]
    torch.testing.assert_close(last, expected, atol=1e-12, rtol=0)


def test_without_a_mask_every_sequence_is_full() -> None:
    torch.manual_seed(0)
    encoder, inputs = RecurrentEncoder(3, 4), torch.randn(2, 5, 3)
    for found, expected in zip(encoder(inputs), encoder(inputs, torch.ones(2, 5, dtype=torch.bool)), strict=True):
        assert torch.equal(found, expected)


def test_values_in_the_padding_change_nothing() -> None:
    torch.manual_seed(0)
    encoder, mask = RecurrentEncoder(3, 4, layers=2), length_mask(torch.tensor([2, 5]), 5)
    inputs = torch.randn(2, 5, 3)
    other = inputs.masked_fill(~mask.unsqueeze(-1), 9.0)
    assert torch.equal(encoder(inputs, mask)[0], encoder(other, mask)[0])
    assert torch.equal(encoder(inputs, mask)[1], encoder(other, mask)[1])


def test_reversed_sequences() -> None:
    assert reversed_steps(torch.tensor([[3], [5]]), 5).tolist() == [[2, 1, 0, 3, 4], [4, 3, 2, 1, 0]]


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(InputError, match="hidden 7 is odd"):
        RecurrentEncoder(3, 7)


E, D, M = 3, 5, 7
PLACES: list[dict[str, Any]] = [
    {"context": "cell", "query": "previous"},
    *({"context": "output", "query": query} for query in ("current", "previous")),
    *({"context": "output", "query": query, "input_feeding": True} for query in ("current", "previous")),
    {"context": "both", "query": "previous"},
]
each_place = pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place.values())))
each_cell = pytest.mark.parametrize("cell", ["lstm", "gru"])


def make_decoder(cell: str, score: str | None, memory_width: int = M, **place: Any) -> tuple[RecurrentDecoder, Memory]:
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
    decoder, memory = make_decoder(cell, score, D if issubclass(SCORES[score], Dot) else M, **place)
    embedded = torch.randn(2, 6, E, dtype=torch.float64)
    torch.testing.assert_close(decoder(embedded, memory), by_hand(decoder, embedded, memory, place), atol=1e-12, rtol=0)


@each_cell
def test_without_attention_equals_its_equations(cell: str) -> None:
    decoder, memory = make_decoder(cell, None)
    embedded = torch.randn(2, 6, E, dtype=torch.float64)
    torch.testing.assert_close(decoder(embedded, memory), by_hand(decoder, embedded, memory, {}), atol=1e-12, rtol=0)


VARIANTS: list[dict[str, Any]] = [
    *RECURRENT,
    {"score": "additive", "context": "cell", "enc_hidden": 10, "score_width": 7},
    {"score": "concat", "context": "both", "enc_hidden": 5, "bidirectional": False, "start": "zero"},
]
each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)


def make(**options: Any) -> RecurrentSeq2Seq:
    torch.manual_seed(0)
    config = RecurrentConfig(hidden=6, embedding=3, **options)
    return RecurrentSeq2Seq(config, source_symbols=9, target_symbols=8).double().eval()


@each_variant
def test_unforced_steps_read_the_models_prediction(variant: dict[str, Any]) -> None:
    model = make(**variant)
    source = collate([[4, 5, 6], [7]])
    memory = model.encode(source, source != 0)
    target_in = torch.tensor([[BOS, 4, 5, 6], [BOS, 7, 7, 4]])
    forced = torch.tensor([[True, True, False, True], [False, False, False, True]])
    found = model.logits(model.read(target_in, memory, forced))
    for row in range(2):
        fed = target_in[row].clone()
        for time in range(1, 4):
            if not forced[row, time]:
                own = model.decode(fed[None, :time], model.encode(source[row : row + 1], source[row : row + 1] != 0))
                fed[time] = own[0, -1].argmax()
        expected = model.decode(fed[None], model.encode(source[row : row + 1], source[row : row + 1] != 0))
        torch.testing.assert_close(found[row], expected[0], atol=1e-12, rtol=0)


def test_all_forced_is_teacher_forcing() -> None:
    model = make(score="general")
    source, target_in = collate([[4, 5]]), torch.tensor([[BOS, 4, 5]])
    memory = model.encode(source, source != 0)
    forced = torch.ones(1, 3, dtype=torch.bool)
    assert torch.equal(model.logits(model.read(target_in, memory, forced)), model.decode(target_in, memory))


def test_without_attention_only_the_last_state_matters() -> None:
    """Without attention, two memories with the same last state produce equal outputs; with it, they differ."""
    for score, same in (("none", True), ("general", False)):
        model = make(score=score)
        memory = model.encode(collate([[4, 5, 6]]), torch.ones(1, 4, dtype=torch.bool))
        other = memory._replace(states=memory.states * 2, prepared=memory.prepared * 2)
        target_in = torch.tensor([[BOS, 4]])
        assert torch.equal(model.decode(target_in, memory), model.decode(target_in, other)) == same


def test_widths_and_directions_follow_the_config() -> None:
    model = make(score="additive", enc_hidden=5, bidirectional=False, start="zero", score_width=7)
    memory = model.encode(collate([[4, 5, 6]]), torch.ones(1, 4, dtype=torch.bool))
    assert memory.states.shape == (1, 4, 5) and memory.prepared.shape == (1, 4, 7)
    assert torch.equal(model.start(memory).cell[0], torch.zeros(1, 1, 6, dtype=torch.float64))
    turned = model.encode(collate([[4, 9 - 1, 8]]), torch.ones(1, 4, dtype=torch.bool))
    assert torch.equal(turned.states[:, 0], memory.states[:, 0])  # the first state depends only on the first step
    both = make(score="general", enc_hidden=10)
    assert both.encode(collate([[4]]), torch.ones(1, 2, dtype=torch.bool)).last.shape == (1, 10)
    assert not torch.equal(both.start(both.encode(collate([[4]]), torch.ones(1, 2) > 0)).cell[0], torch.zeros(1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 7}, "hidden 7 is odd"),
        ({"embedding": 0}, "embedding 0 is out of range"),
        ({"enc_layers": 0}, "enc_layers 0 is out of range"),
        ({"score": "genral"}, "did you mean general"),
        ({"context": "cell", "query": "current"}, "query current does not fit context cell"),
        ({"score": "none", "input_feeding": True}, "input_feeding needs attention"),
        ({"enc_hidden": 7}, "enc_hidden 7 is odd"),
        ({"enc_hidden": 10, "score": "dot"}, "have no dot product"),
        ({"score_width": 3}, "score_width 3 does not fit: score general has no inner width"),
        ({"score_width": 0, "score": "additive"}, "score_width 0 is out of range"),
        ({"start": "nought"}, "nought"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RecurrentConfig(**options)
