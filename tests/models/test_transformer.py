"""The Transformer as a whole: its stacks are tested in tests/attention."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention import Sinusoidal, record
from regard.errors import InputError
from regard.models import Transformer, TransformerConfig
from regard.text import BOS, collate

VARIANTS: list[dict[str, Any]] = [
    {},
    {"positions": "learned", "pre_norm": False},
    {"positions": "concatenated"},
    {"positions": "rotary", "heads": 1},
    {"score": "additive", "enc_layers": 1, "dec_layers": 3},
]
each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)


def make(**options: Any) -> Transformer:
    torch.manual_seed(0)
    config = TransformerConfig(**{"hidden": 8, "heads": 2, "inner": 12, **options})
    model = Transformer(config, source_symbols=9, target_symbols=8, longest=20)
    if config.positions == "learned":
        for positions in (model.source_positions, model.target_positions):
            assert positions is not None
            torch.nn.init.normal_(positions.get_parameter("weight"))
    return model.double().eval()


@each_variant
def test_a_source_alone_equals_itself_in_any_batch(variant: dict[str, Any]) -> None:
    model = make(**variant)
    sources = [[4, 5, 6, 7, 8], [8], [], [5, 5]]
    source, target_in = collate(sources), torch.tensor([[BOS, 4, 5, 6]] * 4)
    together = model(source, source != 0, target_in)
    for row, alone in enumerate(sources):
        single = collate([alone])
        torch.testing.assert_close(
            model(single, single != 0, target_in[:1])[0], together[row], atol=1e-12, rtol=0
        )


@each_variant
def test_cached_steps_equal_teacher_forcing(variant: dict[str, Any]) -> None:
    model = make(**variant)
    source = collate([[4, 5, 6], [7]])
    target_in = torch.tensor([[BOS, 4, 5, 6, 7], [BOS, 7, 7, 4, 3]])
    memory = model.encode(source, source != 0)
    state, steps = model.start(memory), []
    for time in range(5):
        logits, state = model.step(target_in[:, time : time + 1], state)
        steps.append(logits)
    torch.testing.assert_close(torch.cat(steps, 1), model.decode(target_in, memory), atol=1e-12, rtol=0)


@each_variant
def test_hypotheses_side_by_side_equal_each_alone(variant: dict[str, Any]) -> None:
    model = make(**variant)
    source = collate([[4, 5, 6], [7]])
    state = model.start(model.encode(source, source != 0))
    _, state = model.step(torch.full((2, 1), BOS), state)
    state = state.choose(torch.zeros(2, 3, dtype=torch.int64))
    _, state = model.step(torch.tensor([[4, 5, 6], [6, 5, 4]]), state)
    state = state.choose(torch.tensor([[2, 0], [1, 1]]))
    found, state = model.step(torch.tensor([[7, 3], [3, 7]]), state)
    for row, prefixes in enumerate([[[6, 7], [4, 3]], [[5, 3], [5, 7]]]):
        memory = model.encode(source[row : row + 1], source[row : row + 1] != 0)
        for place, prefix in enumerate(prefixes):
            expected = model.decode(torch.tensor([[BOS, *prefix]]), memory)[0, -1]
            torch.testing.assert_close(found[row, place], expected, atol=1e-12, rtol=0)
    kept, _ = model.step(torch.tensor([[4, 4]]), state.keep(torch.tensor([1])))
    both, _ = model.step(torch.tensor([[5, 5], [4, 4]]), state)
    torch.testing.assert_close(kept[0], both[1], atol=1e-12, rtol=0)


def test_the_future_changes_nothing() -> None:
    model, source = make(), collate([[4, 5]])
    one, other = torch.tensor([[BOS, 4, 5, 6]]), torch.tensor([[BOS, 4, 7, 7]])
    found = [model(source, source != 0, target_in) for target_in in (one, other)]
    assert torch.equal(found[0][:, :2], found[1][:, :2]) and not torch.equal(found[0][:, 2:], found[1][:, 2:])


def test_embeddings_are_scaled_placed_and_used_again() -> None:
    model, source = make(enc_layers=1), collate([[4, 5]])
    seen: list[Tensor] = []
    model.encoder.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model.encode(source, source != 0)
    expected = model.source_embedding.weight[source] * math.sqrt(8) + Sinusoidal(8).vectors(0, 3)
    torch.testing.assert_close(seen[0], expected)
    assert "output.weight" not in model.state_dict()
    with torch.no_grad():
        model.target_embedding.weight[5] = 0
    assert not model(source, source != 0, torch.tensor([[BOS, 4]]))[..., 5].any()


@each_variant
def test_every_parameter_is_used(variant: dict[str, Any]) -> None:
    model = make(**variant)
    source = collate([[4, 5, 6], [7]])
    model(source, source != 0, torch.tensor([[BOS, 4], [BOS, 5]])).pow(2).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_all_layers_are_recorded_under_their_names() -> None:
    model, source = make(), collate([[4, 5, 6], [7]])
    with record(model) as records:
        model(source, source != 0, torch.tensor([[BOS, 4, 5]] * 2))
    assert set(model.cross_layers) == {"decoder.layers.0.cross", "decoder.layers.1.cross"} <= set(records)
    assert records["decoder.layers.1.cross"].weights.shape == (2, 2, 3, 4)
    assert not records["decoder.layers.1.cross"].weights[1, :, :, 2:].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 9}, "hidden 9 cannot be split into 2 heads"),
        ({"hidden": 6, "positions": "rotary"}, "heads of width 3 cannot turn pairs"),
        ({"hidden": 5, "heads": 1, "positions": "concatenated"}, "hidden 5 is odd"),
        ({"dropout": 1.0}, "dropout 1.0 is out of range"),
        ({"dec_layers": 0}, "dec_layers 0 is out of range"),
        ({"score": "dto"}, "did you mean dot"),
    ],
)
def test_bad_parts_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**options)
