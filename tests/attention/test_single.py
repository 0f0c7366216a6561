"""Single-head attention equals a worked example, a float64 loop and PyTorch's kernel."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import record
from regard.attention.multihead import MultiHeadAttention
from regard.attention.scores import SCORES, Additive, find_score
from regard.attention.single import Attention
from regard.errors import InputError


def by_loops(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Compute equation 1 of the paper for one query and key at a time."""
    context = torch.zeros(*query.shape[:2], value.shape[-1], dtype=torch.float64)
    for b in range(len(query)):
        for q in range(query.shape[1]):
            seen = [k for k in range(key.shape[1]) if mask[b, k]]
            exps = [math.exp(float(query[b, q] @ key[b, k]) / math.sqrt(query.shape[-1])) for k in seen]
            for each, k in zip(exps, seen, strict=True):
                context[b, q] += each / sum(exps) * value[b, k]
    return context


def test_a_worked_example() -> None:
    # The matching key has the score 4 / √4 = 2, the other key 0. The weights are e²/(e² + 1) and 1/(e² + 1).
    query = torch.tensor([[[2.0, 0, 0, 0]]])
    keys = torch.tensor([[[2.0, 0, 0, 0], [0, 2, 0, 0]]])
    values = torch.tensor([[[1.0], [0.0]]])
    context = Attention()(query, keys, values)
    torch.testing.assert_close(context, torch.tensor([[[math.e**2 / (math.e**2 + 1)]]]))


def test_agrees_with_loops_in_both_paths(generator: torch.Generator) -> None:
    query, key, value = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in [(2, 3, 5), (2, 7, 5), (2, 7, 11)]
    )
    mask = torch.rand(2, 7, generator=generator) < 0.7
    expected = by_loops(query, key, value, mask)
    layer = Attention()
    torch.testing.assert_close(layer(query, key, value, mask), expected, atol=1e-12, rtol=0)
    with record(layer):
        torch.testing.assert_close(layer(query, key, value, mask), expected, atol=1e-12, rtol=0)


def test_three_dimensional_mask_applies_per_query(generator: torch.Generator) -> None:
    query, key = torch.randn(2, 3, 5, generator=generator), torch.randn(2, 7, 5, generator=generator)
    mask = torch.rand(2, 3, 7, generator=generator) < 0.7
    expected = F.scaled_dot_product_attention(query, key, key, attn_mask=mask)
    torch.testing.assert_close(Attention()(query, key, key, mask), expected)


def test_fully_masked_query_has_a_zero_context_in_both_paths() -> None:
    query = torch.randn(1, 3, 5, requires_grad=True)
    key = torch.randn(1, 7, 5)
    mask = torch.zeros(1, 7, dtype=torch.bool)
    layer = Attention()
    with record(layer):
        recorded = layer(query, key, key, mask)
    for context in (layer(query, key, key, mask), recorded):
        assert (context == 0).all()
        context.sum().backward()
        assert query.grad is not None and query.grad.isfinite().all()


@pytest.mark.parametrize(
    ("layer", "query", "key", "message"),
    [
        (Attention(), 5, 7, "query (2, 3, 5) and key (2, 4, 7) do not fit the score: expected widths 5 and 5"),
        (Attention(Additive(5, 7)), 5, 5, "do not fit the score: expected widths 5 and 7"),
        (Attention(Additive(5, 7)), 6, 7, "do not fit the score: expected widths 5 and 7"),
    ],
)
def test_wrong_widths_are_refused(layer: Attention, query: int, key: int, message: str) -> None:
    states = torch.zeros(2, 4, key)
    with pytest.raises(InputError) as raised:
        layer(torch.zeros(2, 3, query), states, states)
    assert message in str(raised.value)


@pytest.mark.parametrize("heads", [None, 3])
@pytest.mark.parametrize("name", SCORES)
def test_every_score_works_in_a_recurrent_decoder(
    generator: torch.Generator, name: str, heads: int | None
) -> None:
    """Bahdanau's loop works: the query is the previous state, the context is an input of the cell, and keys are
    prepared once.
    """
    source, targets = torch.randn(2, 7, 6, generator=generator), torch.randn(2, 4, 6, generator=generator)
    cell, state = nn.GRUCell(12, 6), torch.zeros(2, 6)
    padding = torch.tensor([[True] * 7, [True] * 3 + [False] * 4])
    single, several = Attention(find_score(name)(6)), MultiHeadAttention(6, heads or 1, score=find_score(name))
    prepared, memory = single.score.prepare(source), several.project(source)
    states = []
    for target in targets.unbind(1):
        query = state.unsqueeze(1)
        if heads is None:
            context = single(query, prepared, source, padding, prepared=True)
        else:
            context = several.attend(query, memory, padding)
        state = cell(torch.cat([target, context.squeeze(1)], dim=-1), state)
        states.append(state)
    whole = torch.stack(states[:-1], dim=1)
    again = single(whole, source, source, padding) if heads is None else several(whole, source, mask=padding)
    torch.testing.assert_close(again[:, -1], context.squeeze(1), atol=1e-6, rtol=1e-5)
    states[-1].sum().backward()
    assert all(each.grad is not None for each in (several if heads else single).parameters())
