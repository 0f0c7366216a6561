"""Independent random generators for training, testing and single samples, derived from one seed."""

import zlib

import torch


def make_generator(seed: int, stream: str) -> torch.Generator:
    """Return the generator of the stream named `stream`. Seeds are hashed instead of offset, because PyTorch's
    CPU generator uses only the low 32 bits of its seed."""
    return torch.Generator().manual_seed(derive_seed(seed, stream))


def derive_seed(seed: int, stream: str) -> int:
    """Return the 32-bit seed of the stream named `stream`.

    >>> derive_seed(0, "train") == derive_seed(0, "test")
    False
    """
    return zlib.crc32(f"{seed}/{stream}".encode())
