"""The query model equals an independent float64 computation and satisfies exact invariants."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from regard import record
from regard.attention.positions import LearnedPositions
from regard.models.query import QueryModel, QueryModelConfig

CONFIGS = {
    "counting": QueryModelConfig(hidden=14),
    "self_att": QueryModelConfig(hidden=14, self_att=True),
    "signal": QueryModelConfig(hidden=14, pos_enc=True, enc_layers=2),
    "signal2": QueryModelConfig(hidden=14, pos_enc=True, enc_layers=1, multihead=True, heads=2),
    "all": QueryModelConfig(hidden=14, pos_enc=True, enc_layers=1, multihead=True, heads=7, self_att=True),
}
each_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def model_of(config: QueryModelConfig, *, vary_len: bool = False, seed: int = 0) -> QueryModel:
    """Return a model with random parameters, because zeros could hide a mistake."""
    model = QueryModel(config, letters=5, input_len=11, outputs=3, classes=13, vary_len=vary_len)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    return model


def by_hand(p: dict[str, Tensor], config: QueryModelConfig, letters: list[int]) -> Tensor:
    """Return the logits (To, classes) of one sequence, computed in float64 from the primer's description."""

    def norm(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred**2).mean(-1, keepdim=True)
        return centred / (variance + 1e-5).sqrt() * p[f"{name}.weight"] + p[f"{name}.bias"]

    def softmax(x: Tensor) -> Tensor:
        return x.exp() / x.exp().sum(-1, keepdim=True)

    def attention(query: Tensor, memory: Tensor, name: str) -> Tensor:
        if not config.multihead:
            return softmax(query @ memory.T / math.sqrt(config.hidden)) @ memory
        width = config.hidden // config.heads
        contexts = []
        for head in range(config.heads):
            rows = slice(head * width, (head + 1) * width)
            q, k, v = (
                x @ p[f"{name}.{part}.weight"][rows].T
                for x, part in ((query, "query"), (memory, "key"), (memory, "value"))
            )
            contexts.append(softmax(q @ k.T / math.sqrt(width)) @ v)
        return torch.cat(contexts, dim=-1) @ p[f"{name}.output.weight"].T

    one_hot = torch.zeros(len(letters), 5, dtype=torch.float64)
    for step, letter in enumerate(letters):
        one_hot[step, letter] = 1
    x = one_hot @ p["embedding.weight"].T + p["embedding.bias"]
    if config.pos_enc:
        x = x + p["positions.weight"][: len(letters)]
    for layer in range(config.enc_layers):
        at = f"encoder.{layer}"
        x = norm(x + attention(x, x, f"{at}.self_attention"), f"{at}.attention_residual.norm")
        inner = (x @ p[f"{at}.feed_forward.inner.weight"].T + p[f"{at}.feed_forward.inner.bias"]).clamp_min(0)
        outer = inner @ p[f"{at}.feed_forward.outer.weight"].T + p[f"{at}.feed_forward.outer.bias"]
        x = norm(x + outer, f"{at}.feed_forward_residual.norm")
    y = norm(p["queries"] + attention(p["queries"], x, "cross"), "cross_norm")
    if config.self_att:
        y = norm(y + attention(y, y, "self_attention"), "self_attention_norm")
    return y @ p["output.weight"].T + p["output.bias"]


@each_config
def test_agrees_with_a_recomputation_by_hand(config: QueryModelConfig) -> None:
    model = model_of(config).double()
    inputs = torch.randint(5, (3, 7), generator=torch.Generator().manual_seed(1))
    with record(model):
        recorded = model(inputs)
    for row, letters in enumerate(inputs.tolist()):
        expected = by_hand(dict(model.state_dict()), config, letters)
        torch.testing.assert_close(model(inputs)[row], expected, atol=1e-11, rtol=1e-11)
        torch.testing.assert_close(recorded[row], expected, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("options", [{"self_att": True}, *({"multihead": True, "enc_layers": each} for each in (0, 1))])
@given(seed=st.integers(0, 100))
def test_without_positions_a_permuted_input_permutes_the_weights(options: dict[str, Any], seed: int) -> None:
    """Identical letters have identical weights, because exchanging them changes nothing."""
    model = model_of(QueryModelConfig(hidden=14, heads=2, **options), seed=seed).double()
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randint(5, (1, 9), generator=generator)
    order = torch.randperm(9, generator=generator)
    with record(model) as records:
        logits = model(inputs)
        weights = records["cross"].weights
        permuted = model(inputs[:, order])
    torch.testing.assert_close(permuted, logits)
    torch.testing.assert_close(records["cross"].weights, weights[..., order])


def test_positions_distinguish_identical_letters() -> None:
    model = model_of(CONFIGS["signal"])
    with record(model) as records:
        model(torch.zeros(1, 7, dtype=torch.int64))
    assert records["cross"].weights[0, 0, 0].unique().numel() == 7


@each_config
@pytest.mark.parametrize("rest", [False, True], ids=["plain", "rest"])
def test_padding_changes_nothing(config: QueryModelConfig, rest: bool) -> None:
    model = model_of(config, vary_len=rest).double()
    inputs = torch.randint(5, (1, 6), generator=torch.Generator().manual_seed(1))
    padded = torch.cat([inputs, torch.full((1, 4), -1)], dim=1)
    torch.testing.assert_close(model(padded, padded >= 0), model(inputs))


def test_only_a_resting_step_distinguishes_lengths() -> None:
    once, twice = torch.tensor([[1]]), torch.tensor([[1, 1]])
    plain, resting = model_of(CONFIGS["counting"]), model_of(CONFIGS["counting"], vary_len=True)
    torch.testing.assert_close(plain(once), plain(twice))
    assert (resting(once) - resting(twice)).abs().max() > 0.01


def test_a_model_starts_from_glorots_distribution_and_zero() -> None:
    config = dataclasses.replace(CONFIGS["all"], hidden=210)
    model = QueryModel(config, letters=5, input_len=11, outputs=3, classes=13, vary_len=True)
    assert isinstance(model.positions, LearnedPositions) and model.rest is not None
    assert not model.queries.any() and not model.rest.any() and not model.positions.weight.any()
    assert model.embedding.weight.abs().max().item() <= math.sqrt(6 / (5 + 210))  # Glorot's bound
    assert all((value == 0).all() for name, value in model.named_parameters() if name.endswith("bias"))


def test_without_normalization_layers_only_add(generator: torch.Generator) -> None:
    config = QueryModelConfig(hidden=14, enc_layers=1, multihead=True, heads=2, norm="none")
    model = QueryModel(config, letters=4, input_len=6, outputs=3, classes=7)
    assert not any(isinstance(module, torch.nn.LayerNorm) for module in model.modules())
    assert model.fast_gradient() is None  # its formulas contain the normalization
    inputs = torch.randint(4, (2, 6), generator=generator)
    memory, _ = model.encode(inputs)
    states = model.queries + model.cross(model.queries.expand(2, -1, -1), memory, memory)
    torch.testing.assert_close(model(inputs), model.output(states))
