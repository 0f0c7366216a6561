"""Parameters of a model as short text, for pages that compute its answers.

Every parameter is rounded to a multiple of one step, a power of two. `pack_parameters` chooses the largest step
with which no logit changes by more than a tolerance, measured with PyTorch. The multiples, whole numbers of three
bytes, are stored by planes (all lowest bytes, then all middle ones, then all highest ones): the highest planes
hold few different values, so that Huffman codes shorten them.

The text has 91 different characters, of which two hold 13 bits (after basE91, Henke 2000): 8 % more than base 64.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

ALPHABET = "".join(chr(code) for code in range(33, 127) if chr(code) not in '"<\\')
"""Printable characters that end neither a JSON string nor a script element, and begin no escape."""
LARGEST_STEP, SMALLEST_STEP = -12, -24
"""Exponents of two."""
PLANES = 3


def pack_parameters(
    model: nn.Module, logits: Callable[[], list[Tensor]], *, tolerance: float
) -> tuple[dict[str, Any], float]:
    """Return the parameters as `StoredParameters` of `stored-parameters.js`, and the largest change of a logit.

    `logits` computes logits with the model. If no step keeps them within `tolerance`, the smallest one that three
    bytes allow is used.
    """
    tensors = {name: value.detach().float().cpu() for name, value in model.state_dict().items()}
    largest = max((float(value.abs().max()) for value in tensors.values() if value.numel()), default=0.0)
    exact = logits()
    for exponent in range(LARGEST_STEP, SMALLEST_STEP - 1, -1):
        step = 2.0**exponent
        whole = {name: torch.round(value / step) for name, value in tensors.items()}
        with _replaced(model, {name: value * step for name, value in whole.items()}):
            rounded = logits()
        change = max(float((a - b).abs().max()) for a, b in zip(exact, rounded, strict=True))
        if change <= tolerance or largest / (step / 2) >= 2 ** (8 * PLANES - 1):
            break
    numbers = np.concatenate([value.numpy().astype("<i4").ravel() for value in whole.values()])
    planes = numbers.view(np.uint8).reshape(-1, 4)[:, :PLANES].T.tobytes()
    compressor = zlib.compressobj(9, zlib.DEFLATED, 15, 9, zlib.Z_HUFFMAN_ONLY)
    packed = compressor.compress(planes) + compressor.flush()
    shapes = [[name, list(value.shape)] for name, value in tensors.items()]
    return {"shapes": shapes, "step": step, "size": len(packed), "text": encode_91(packed)}, change


@contextmanager
def _replaced(model: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Give a model other parameters in the block."""
    own = {name: value.detach().clone() for name, value in model.state_dict().items()}
    try:
        model.load_state_dict(tensors)
        yield
    finally:
        model.load_state_dict(own)


def encode_91(content: bytes) -> str:
    """Return bytes as text of the characters in `ALPHABET`.

    >>> encode_91(b"Regard")
    'L-7_mbZ&'
    """
    bits = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little")
    bits = np.pad(bits, (0, -len(bits) % 13)).reshape(-1, 13)
    numbers = bits @ (1 << np.arange(13))
    digits = np.stack([numbers % 91, numbers // 91], axis=1).ravel()
    return np.frombuffer(ALPHABET.encode(), np.uint8)[digits].tobytes().decode()
