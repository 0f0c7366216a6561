"""The best extensions of prefixes equal those of a full sort."""

import torch
from hypothesis import given, strategies as st

from regard.fast.topk import topk


@given(
    sources=st.integers(1, 3),
    prefixes=st.integers(1, 4),
    count=st.integers(1, 12),
    more=st.integers(0, 2000),
    levels=st.integers(1, 10_000),
    seed=st.integers(0, 2**31),
)
def test_topk_equals_a_sort(sources: int, prefixes: int, count: int, more: int, levels: int, seed: int) -> None:
    # `levels` is the number of different values, so that some or all may be equal; the smallest are infinite.
    generator = torch.Generator().manual_seed(seed)
    symbols = -(-count // prefixes) + more
    values = torch.randint(levels, (sources, prefixes, symbols), generator=generator).float()
    values[values < levels // 3] = -torch.inf
    totals = torch.randint(levels, (sources, prefixes), generator=generator).float()
    totals[:, 1:][totals[:, 1:] < levels // 5] = -torch.inf
    found, places = topk(values, totals, count)
    extended = (totals.unsqueeze(-1) + values).flatten(1)
    assert torch.equal(found, extended.sort(-1, descending=True).values[:, :count])
    assert torch.equal(extended.gather(1, places), found)
    assert all(len(set(row)) == count for row in places.tolist())
