"""Random streams."""

import torch

from regard.streams import make_generator


def test_streams_and_seeds_differ_beyond_32_bits() -> None:
    drawn = {
        tuple(torch.randint(1000, (5,), generator=make_generator(seed, stream)).tolist())
        for seed in (0, 1, 2**32 - 1)
        for stream in ("train", "test", "sample")
    }
    assert len(drawn) == 9
