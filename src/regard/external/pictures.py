"""Pictures as a vision model of Hugging Face's gets them: resized and normalised, cut into patches.

What the folder's `preprocessor_config.json` says of size, mean and deviation is done here with Pillow.
"""

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from regard.errors import InputError
from regard.external.wrappers import device_of
from regard.io.reading import damaged_file, is_file, read_json
from regard.viz.maps import Patches

SIZE = 224
"""Side of a picture in pixels, where nothing else is said."""
PREPARED = "preprocessor_config.json"
"""What a folder says of how pictures are prepared."""
HALF = [0.5, 0.5, 0.5]
LARGEST = 50_000_000
"""Pixels of a picture at most; of more, its numbers alone would fill the memory of a small machine."""
FORMATS = ("PNG", "JPEG")
"""What is read of pictures that come from a page."""
KEPT = 32
"""Pictures from a page that are kept at most; the oldest goes first."""
BEFORE = 16
"""Steps before the patches at most: the token of the whole picture, of a teacher, registers."""


Three = Annotated[list[float], msgspec.Meta(min_length=3, max_length=3)]


class _Prepared(msgspec.Struct):
    """What is asked of a folder's `preprocessor_config.json`."""

    image_mean: Three | None = None
    image_std: Three | None = None


class Album:
    """Pictures by name, as pixels of a model's size. Copies of a subject share theirs."""

    def __init__(self) -> None:
        self._kept: dict[str, np.ndarray] = {}

    def __deepcopy__(self, memo: object) -> "Album":
        return self

    def __contains__(self, name: object) -> bool:
        return name in self._kept

    def __getitem__(self, name: str) -> np.ndarray:
        return self._kept[name]

    def put(self, name: str, pixels: np.ndarray) -> None:
        """Keep a picture; one of the same name gives way to it."""
        self._kept.pop(name, None)
        self._kept[name] = pixels
        if len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]


@dataclass(frozen=True)
class Pictures:
    """How pictures are made into numbers."""

    height: int = SIZE
    width: int = SIZE
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    """Of each colour (0 to 1)."""
    deviation: tuple[float, ...] = (0.5, 0.5, 0.5)
    album: Album = field(default_factory=Album)
    """Those that came without a file."""

    def tensors(self, model: Any, picture: Any) -> dict[str, Any]:
        """Return a picture as the model takes it: a file, the name of one in the album, or pixels (1, 3, height,
        width) that are prepared already. Raises `InputError` for what cannot be read.
        """
        if isinstance(picture, Tensor):
            if picture.dim() != 4 or picture.shape[:2] != (1, 3):
                size = f"(1, 3, {self.height}, {self.width})"
                raise InputError(f"picture has shape {tuple(picture.shape)}: give {size}, or a file")
            return {"pixel_values": picture.to(device_of(model))}
        if not isinstance(picture, str | Path):
            kind = type(picture).__name__
            raise InputError(
                f"picture {kind} is no file: give its path, or a tensor (1, 3, {self.height}, {self.width})"
            )
        pixels = self.album[str(picture)] if picture in self.album else self._read(picture, None, str(picture))
        values = (pixels.astype(np.float32) / 255 - np.array(self.mean)) / np.array(self.deviation)
        found = torch.tensor(values, dtype=torch.float32).permute(2, 0, 1).unsqueeze(0)
        return {"pixel_values": found.to(device_of(model))}

    def put(self, name: str, content: bytes) -> None:
        """Keep the picture of a PNG or JPEG file's bytes under a name; raises `InputError` for others."""
        self.album.put(name, self._read(io.BytesIO(content), FORMATS, name))

    def shown(self, given: Tensor) -> np.ndarray:
        """Return pixels (1, 3, height, width) as a model has them as colours (height, width, 3), uint8."""
        values = given[0].float().permute(1, 2, 0).cpu().numpy() * np.array(self.deviation) + np.array(self.mean)
        found: np.ndarray = np.rint(values.clip(0, 1) * 255).astype(np.uint8)
        return found

    def _read(self, file: Any, formats: tuple[str, ...] | None, name: str) -> np.ndarray:
        from PIL import Image, ImageOps, UnidentifiedImageError

        way = "give a file such as .png or .jpg" if formats is None else f"choose one in {' or '.join(FORMATS)}"
        try:
            with Image.open(file, formats=formats) as image:
                count = image.width * image.height
                if count > LARGEST:
                    raise InputError(f"picture {name!r} has {count:,} pixels, at most {LARGEST:,} are taken")
                upright = ImageOps.exif_transpose(image).convert("RGB")
                return np.asarray(upright.resize((self.width, self.height), Image.Resampling.BILINEAR))
        except InputError:
            raise
        except (OSError, UnidentifiedImageError, ValueError, AttributeError, SyntaxError) as error:
            raise InputError(f"picture {name!r} cannot be read: {way}") from error
        except Image.DecompressionBombError as error:
            raise InputError(f"picture {name!r} is too large: at most {LARGEST:,} pixels are taken") from error


def pictures_of(config: Any, folder: Path | None = None) -> Pictures:
    """Return what a model's config, and a folder with a `preprocessor_config.json`, say of pictures."""
    height, width = _pair(getattr(config, "image_size", None) or SIZE)
    said, mend = _Prepared(), "restore a copy, or remove it"
    if folder is not None and is_file(folder / PREPARED):
        said = read_json(folder / PREPARED, _Prepared, mend)
        if said.image_std and 0 in said.image_std:
            raise damaged_file(folder / PREPARED, "image_std has a 0", mend)
    mean, deviation = said.image_mean or HALF, said.image_std or HALF
    return Pictures(int(height), int(width), tuple(mean), tuple(deviation))


def patches_of(config: Any, count: int) -> Patches | None:
    """Return which of a layer's so many steps are patches of the picture, as a config says; None where it does
    not, or the layer's steps are others, as in a window.
    """
    size, patch = getattr(config, "image_size", None), getattr(config, "patch_size", None)
    if not size or not patch:
        return None
    (high, wide), (tall, broad) = _pair(size), _pair(patch)
    rows, columns = high // tall, wide // broad
    first = count - rows * columns - getattr(config, "num_detection_tokens", 0)
    return Patches(first, rows, columns) if 0 <= first <= BEFORE else None


def patch_labels(config: Any, count: int) -> list[str] | None:
    """Return a name for each of so many steps: each patch by row and column, and what stands before and after
    them by a number; None where they are no patches."""
    found = patches_of(config, count)
    if found is None:
        return None
    first, rows, columns = found
    before = ["[CLS]", *(f"[{number}]" for number in range(1, first))][:first]
    between = [f"{row},{column}" for row in range(rows) for column in range(columns)]
    return before + between + [f"[{number}]" for number in range(first + rows * columns, count)]


def _pair(size: Any) -> tuple[int, int]:
    high, wide = size if isinstance(size, list | tuple) else (size, size)
    return int(high), int(wide)
