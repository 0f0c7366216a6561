"""Parameters of a model as short text, for pages that compute the model's answers.

Every parameter is rounded to a multiple of one step. The step is about the largest step at which no logit of
many inputs changes by more than a tolerance, measured with PyTorch. The multiples are stored by planes: all
lowest bytes, then all second bytes, and so on. The highest planes have few different values, so Huffman codes
shorten them. On a run of Copy, this takes 1 bit less for each parameter than float32 with shorter mantissas.

The text encodes the bits as characters of 7 bits. Four characters must not occur in a script element of an HTML
file and are shifted by 128: NUL, carriage return, "<" and line feed. In UTF-8, this text takes 18 % more space
than the bytes, and base 64 takes 33 % more.
"""

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

FORBIDDEN = (0, 10, 13, 60)
"""Codes of characters that HTML replaces or that could end a script."""
FIRST_STEP = 2.0**-20
TRIES = 8
"""Steps that are tried."""
CLOSE, AIM = 0.85, 0.95
"""Fraction of the tolerance that ends the search, and the target for the next step."""
MOST = 2.0**30
"""Largest multiple, stored as a signed 4-byte integer. Finer steps do not change float32 values of this size."""


def pack_parameters(
    model: nn.Module, logits: Callable[[], list[Tensor]], *, tolerance: float
) -> tuple[dict[str, Any], float]:
    """Return the parameters as `StoredParameters` of `stored-parameters.js`, and the largest change of a logit.

    `logits` computes logits with the model. The logits change by at most `tolerance`, or by the effect of
    rounding to 30 bits of the largest parameter if that is larger.
    """
    own = {name: value.detach().clone() for name, value in model.state_dict().items()}
    exact = torch.cat([tensor.flatten() for tensor in logits()])

    def change(step: float) -> float:
        """Return the largest change of a logit if the parameters are rounded to multiples of a step."""
        model.load_state_dict({name: (value.double() / step).round() * step for name, value in own.items()})
        return float((torch.cat([tensor.flatten() for tensor in logits()]) - exact).abs().max())

    finest = max(float(value.abs().max()) for value in own.values()) / MOST
    step, steps = max(FIRST_STEP, finest), dict[float, float]()
    try:
        for _ in range(TRIES):
            steps[step] = change(step)
            if CLOSE * tolerance <= steps[step] <= tolerance:
                break
            # The change is proportional to the step, apart from noise in the maximum.
            step = max(finest, step * AIM * tolerance / max(steps[step], tolerance / 64))
    finally:
        model.load_state_dict(own)
    step = max((step for step, worst in steps.items() if worst <= tolerance), default=min(steps))
    values = np.concatenate([value.double().cpu().numpy().ravel() for value in own.values()])
    whole = np.rint(values / step).astype("<i4")
    # The sign becomes the lowest bit, so that the highest planes of small numbers are zero.
    planes = ((whole << 1) ^ (whole >> 31)).view(np.uint8).reshape(-1, 4).T.tobytes()
    packed = zlib.compress(planes, 9)
    shapes = [[name, list(value.shape)] for name, value in own.items()]
    return {"shapes": shapes, "step": step, "size": len(packed), "text": text_of_bytes(packed)}, steps[step]


def text_of_bytes(content: bytes) -> str:
    """Return bytes as text with 7 bits in each character.

    >>> text_of_bytes(b"Regard")
    'RJ\\x1d\\x0b&\\x0e\\x19'
    """
    bits = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little")
    codes = np.pad(bits, (0, -len(bits) % 7)).reshape(-1, 7) @ (1 << np.arange(7))
    codes[np.isin(codes, FORBIDDEN)] += 128
    return codes.astype("<u2").tobytes().decode("utf-16-le")
