"""Read the weights in a page like the script of the page."""

import base64
import zlib

import numpy as np

from regard.viz.page import COARSE, PackedWeights


def unpack(packed: PackedWeights, queries: int, keys: int) -> np.ndarray:
    """Return the weights (H, Tq, Tk) float32 that were stored by `pack`, up to rounding."""
    stored: bytes | str = packed["packed"]  # text in a page
    content = stored if isinstance(stored, bytes) else zlib.decompress(base64.b64decode(stored))
    coarse = packed["levels"] <= COARSE
    shares = (
        np.frombuffer(content, "u1" if coarse else "<u2").reshape(packed["heads"], queries, keys) / packed["levels"]
    )
    return ((shares**2 if coarse else shares) * packed["largest"]).astype(np.float32)


def bytes_of_text(text: str, size: int) -> bytes:
    """Return the bytes that `text_of_bytes` stores with 7 bits in each character."""
    codes = np.array([ord(character) & 127 for character in text], np.uint8)
    bits = np.unpackbits(codes[:, None], axis=1, bitorder="little")[:, :7] if len(codes) else np.zeros((0, 7), np.uint8)
    return np.packbits(bits.ravel(), bitorder="little").tobytes()[:size]
