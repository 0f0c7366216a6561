"""The largest of many values: against a sort of all of them."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding.largest import largest


@given(
    shape=st.lists(st.integers(1, 4), max_size=2),
    count=st.integers(1, 12),
    more=st.integers(0, 2000),
    levels=st.integers(1, 10_000),
    seed=st.integers(0, 2**31),
)
def test_they_are_those_of_a_sort(shape: list[int], count: int, more: int, levels: int, seed: int) -> None:
    # `levels`: how many different values there are, so that some or all may be equal; the least are infinite.
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(levels, (*shape, count + more), generator=generator).float()
    values[values < levels // 3] = -torch.inf
    found, places = largest(values, count)
    assert torch.equal(found, values.sort(-1, descending=True).values[..., :count])
    assert torch.equal(values.gather(-1, places), found)
    assert all(len(set(row)) == count for row in places.reshape(-1, count).tolist())
