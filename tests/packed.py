"""Read the weights in a page like the script of the page."""

import base64
import zlib

import numpy as np

from regard.viz.page import LEVELS, PackedWeights


def unpack(packed: PackedWeights, queries: int, keys: int) -> np.ndarray:
    """Return the weights (H, Tq, Tk) float32 that were stored by `pack`, up to rounding."""
    stored: bytes | str = packed["packed"]  # text in a page
    whole = np.frombuffer(stored if isinstance(stored, bytes) else zlib.decompress(base64.b64decode(stored)), "<u2")
    return (whole.reshape(packed["heads"], queries, keys) / LEVELS * packed["largest"]).astype(np.float32)
