"""Random streams: from one seed, independent generators for training, testing and single samples."""

import zlib

import torch


def make_generator(seed: int, stream: str) -> torch.Generator:
    """Return the generator of the stream called `stream` under `seed`.

    PyTorch's CPU generator keeps only the low 32 bits of its seed, so seeds are hashed, not offset.
    """
    return torch.Generator().manual_seed(derive_seed(seed, stream))


def derive_seed(seed: int, stream: str) -> int:
    """Return the seed, of 32 bits, of the stream called `stream` under `seed`."""
    return zlib.crc32(f"{seed}/{stream}".encode())
