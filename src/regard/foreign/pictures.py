"""Pictures as a vision model of Hugging Face's gets them: resized and normalised, cut into patches.

What the folder's `preprocessor_config.json` says of size, mean and deviation is done here with Pillow.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import InputError
from regard.reading import is_file, read_json

SIZE = 224
"""Side of a picture in pixels, where nothing else is said."""
PREPARED = "preprocessor_config.json"
"""What a folder says of how pictures are prepared."""
HALF = [0.5, 0.5, 0.5]


@dataclass(frozen=True)
class Pictures:
    """How pictures are made into numbers."""

    height: int = SIZE
    width: int = SIZE
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    """Of each colour (0 to 1)."""
    deviation: tuple[float, ...] = (0.5, 0.5, 0.5)

    def tensors(self, model: Any, picture: Any) -> dict[str, Any]:
        """Return a picture, a file or pixels (1, 3, height, width), as the model takes it.

        Raises `InputError` for what cannot be read.
        """
        pixels = picture if isinstance(picture, Tensor) else self._read(picture)
        return {"pixel_values": pixels.to(next(model.parameters()).device)}

    def _read(self, path: Any) -> Tensor:
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(path) as image:
                small = image.convert("RGB").resize((self.width, self.height), Image.Resampling.BILINEAR)
        except (OSError, UnidentifiedImageError, ValueError, AttributeError) as error:
            raise InputError(f"picture {str(path)!r} cannot be read: give a file such as .png or .jpg") from error
        values = (np.asarray(small, dtype=np.float32) / 255 - np.array(self.mean)) / np.array(self.deviation)
        return torch.tensor(values, dtype=torch.float32).permute(2, 0, 1).unsqueeze(0)


def pictures_of(config: Any, folder: Path | None = None) -> Pictures:
    """Return what a model's config, and a folder with a `preprocessor_config.json`, say of pictures."""
    size = getattr(config, "image_size", SIZE)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    said: dict[str, Any] = {}
    if folder is not None and is_file(folder / PREPARED):
        said = read_json(folder / PREPARED, dict[str, Any], "restore a copy, or remove it")
    mean, deviation = said.get("image_mean") or HALF, said.get("image_std") or HALF
    return Pictures(int(height), int(width), tuple(mean), tuple(deviation))


def patch_labels(config: Any, count: int) -> list[str] | None:
    """Return a name for each of so many steps: what stands before the patches, and each by row and column.

    None where a config does not say how large they are.
    """
    size, patch = getattr(config, "image_size", None), getattr(config, "patch_size", None)
    if size is None or patch is None:
        return None
    (high, wide), (tall, broad) = (
        each if isinstance(each, list | tuple) else (each, each) for each in (size, patch)
    )
    rows, columns = high // tall, wide // broad
    before = count - rows * columns
    if before < 0:
        return None
    first = ["[CLS]", *(f"[{number}]" for number in range(1, before))][:before]
    return first + [f"{row},{column}" for row in range(rows) for column in range(columns)]
