"""Read the weights in a page like the script of the page."""

import base64
import zlib

import numpy as np

from regard.viz.page import LEVELS, PackedWeights


def unpack(packed: PackedWeights, queries: int, keys: int) -> np.ndarray:
    """Return the weights (H, Tq, Tk) float32 that were stored by `pack`, up to rounding."""
    whole = np.frombuffer(zlib.decompress(base64.b64decode(packed["packed"])), "<u2")
    return (whole.reshape(packed["heads"], queries, keys) / LEVELS * packed["largest"]).astype(np.float32)
