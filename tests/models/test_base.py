"""The interface of sequence-to-sequence models for training and decoding."""

from typing import Any

import pytest
import torch

from regard.data.batch import collate
from regard.data.vocabulary import BOS
from regard.models.base import Seq2Seq
from regard.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
from regard.models.transformer import Transformer, TransformerConfig

RECURRENT: list[dict[str, Any]] = [
    {"score": "none"},
    {"score": "general"},
    {"score": "dot", "query": "previous"},
    {"score": "additive", "context": "cell"},
    {"score": "concat", "context": "both", "cell": "gru"},
    {"score": "scaled_dot", "input_feeding": True},
]
TRANSFORMERS: list[dict[str, Any]] = [
    {},
    {"positions": "learned", "pre_norm": False},
    {"positions": "concatenated"},
    {"positions": "rotary", "heads": 1},
    {"score": "additive", "enc_layers": 1, "dec_layers": 3},
]
SYMBOLS: dict[str, Any] = {"source_symbols": 9, "target_symbols": 8}


@pytest.fixture(
    params=[*(("recurrent", each) for each in RECURRENT), *(("transformer", each) for each in TRANSFORMERS)],
    ids=lambda param: f"{param[0]} {param[1]}",
)
def model(request: pytest.FixtureRequest) -> Seq2Seq:
    """Return a small model of each kind with random parameters in float64."""
    kind, options = request.param
    torch.manual_seed(0)
    built: Seq2Seq
    if kind == "recurrent":
        built = RecurrentSeq2Seq(RecurrentConfig(hidden=6, embedding=3, **options), **SYMBOLS)
    else:
        config = TransformerConfig(**{"hidden": 8, "heads": 2, "inner": 12, **options})
        built = Transformer(config, longest=20, **SYMBOLS)
        for name, parameter in built.named_parameters():
            if "positions" in name:  # zero before training
                torch.nn.init.normal_(parameter)
    return built.double().eval()


def test_output_does_not_depend_on_the_batch(model: Seq2Seq) -> None:
    sources = [[4, 5, 6, 7, 8], [8], [], [5, 5]]
    source, target_in = collate(sources), torch.tensor([[BOS, 4, 5, 6]] * 4)
    together = model(source, source != 0, target_in)
    for row, alone in enumerate(sources):
        single = collate([alone])
        found = model(single, single != 0, target_in[:1])[0]
        torch.testing.assert_close(found, together[row], atol=1e-12, rtol=0)


def test_cached_steps_equal_teacher_forcing(model: Seq2Seq) -> None:
    source = collate([[4, 5, 6], [7]])
    target_in = torch.tensor([[BOS, 4, 5, 6, 7], [BOS, 7, 7, 4, 3]])
    memory = model.encode(source, source != 0)
    state, steps = model.start(memory), []
    for time in range(5):
        states, state = model.step(target_in[:, time : time + 1], state)
        steps.append(model.logits(states))
    torch.testing.assert_close(torch.cat(steps, 1), model.decode(target_in, memory), atol=1e-12, rtol=0)


def test_parallel_hypotheses_equal_single_ones(model: Seq2Seq) -> None:
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
            torch.testing.assert_close(model.logits(found[row, place]), expected, atol=1e-12, rtol=0)
    kept, _ = model.step(torch.tensor([[4, 4]]), state.keep(torch.tensor([1])))
    both, _ = model.step(torch.tensor([[5, 5], [4, 4]]), state)
    torch.testing.assert_close(kept[0], both[1], atol=1e-12, rtol=0)


def test_every_parameter_is_used(model: Seq2Seq) -> None:
    source = collate([[4, 5, 6], [7]])
    model(source, source != 0, torch.tensor([[BOS, 4], [BOS, 5]])).pow(2).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
