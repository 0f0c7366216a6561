"""Masks in records are the same for every implementation, and fully masked rows have zero weights."""

from typing import Any

import pytest
import torch

import regard

pytestmark = pytest.mark.filterwarnings("ignore")
BY_HAND = ["bloom", "codegen", "ctrl", "deberta-v2", "gptj", "mpt", "roformer", "xlnet"]
"""Models that compute attention in their own code, and return weights but no mask."""
TOKENS = torch.arange(3, 10).expand(2, 7)


@pytest.mark.parametrize(
    ("name", "implementation"),
    [("gpt2", "eager"), ("gpt2", "sdpa"), ("llama", "eager"), ("llama", "sdpa"), ("llama", "flex_attention")],
)
def test_causal_mask_is_recorded_with_every_implementation(small: Any, name: str, implementation: str) -> None:
    model = small.build(small.known[name])
    model.set_attn_implementation(implementation)
    past = torch.ones(7, 7).tril().bool()
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        with regard.record(model) as records:
            model(TOKENS)
        layer = next(iter(records))
        with regard.intervene(model, layer, heads=[0], to="uniform"), regard.record(model) as changed:
            model(TOKENS)
    for record in records.values():
        assert record.mask is not None and torch.equal(record.mask.expand(2, 1, 7, 7)[1, 0], past)
    even = past / past.sum(-1, keepdim=True)
    torch.testing.assert_close(changed[layer].weights[:, 0], even.expand(2, 7, 7))


@torch.no_grad()
def test_mask_of_selected_rows_equals_that_of_all_rows(small: Any) -> None:
    model = small.build(small.known["llama"])
    with regard.record(model) as whole:
        model(TOKENS)
    with regard.record(model, rows=[1, 4]) as chosen:
        model(TOKENS)
    for name, record in chosen.items():
        mask = whole[name].mask
        assert mask is not None and record.mask is not None
        assert torch.equal(record.mask.expand_as(record.weights), mask.expand(2, 4, 7, 7)[:, :, [1, 4]])


@torch.no_grad()
@pytest.mark.parametrize("masked", ["row", "left"])
@pytest.mark.parametrize("name", BY_HAND)
def test_fully_masked_rows_have_no_weight_without_the_interface(small: Any, name: str, masked: str) -> None:
    from every_architecture import build, first_accepted_inputs, run

    inputs = first_accepted_inputs(build(name), masked)
    plain = run(build(name), inputs)
    model = build(name)
    with regard.record(model) as records:
        output = run(model, inputs)
    assert torch.equal(plain[0], output[0]) and records
    for record in records.values():
        assert record.mask is not None
        sees = record.mask.expand_as(record.weights).any(-1)
        sums = record.weights.sum(-1)
        torch.testing.assert_close(sums, sees.float(), atol=1e-5, rtol=0)
        assert sees[0].all() and not (masked == "row" and sees[1].any())
        there = inputs["attention_mask"][1] != 0  # XLNet's padding attends to itself
        assert not record.weights[1][:, there][..., ~there].any()


@torch.no_grad()
def test_even_row_without_padding_keeps_its_weights(small: Any) -> None:
    model = small.build(small.known["bloom"])
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.zero_()
    model.transformer.build_alibi_tensor = lambda mask, heads, dtype: torch.zeros(len(mask) * heads, 1, 7)
    with regard.record(model) as records:
        model(TOKENS, attention_mask=torch.tensor([[1] * 7, [0] + [1] * 6]))
    weights = next(iter(records.values())).weights
    torch.testing.assert_close(weights[0, :, -1], torch.full((weights.shape[1], 7), 1 / 7))
    torch.testing.assert_close(weights[1, :, -1, 1:], torch.full((weights.shape[1], 6), 1 / 6))
