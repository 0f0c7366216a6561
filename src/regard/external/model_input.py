"""Inputs of external models, their labels, and images.

The label of a text is the text, the label of a file is its name, and the label of any other input is its type and
its number among the inputs. Images are resized and normalized with Pillow, with the settings in the folder's
`preprocessor_config.json`.
"""

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from regard.activations.modules import find_device, parameter_names
from regard.activations.token_labels import TokenLabeler
from regard.errors import InputError, shorten
from regard.io import damaged_file, is_file, read_json
from regard.libraries import library_errors

TARGET_SEPARATOR = " ||| "
"""Separates a source and its target in one text."""
SIZE = 224
"""Default side of an image, in pixels."""
PREPROCESSOR = "preprocessor_config.json"
HALF = [0.5, 0.5, 0.5]
MAX_PIXELS = 50_000_000
"""Largest image. Largest accepted number of pixels: a larger image would fill the memory of a small machine."""
FORMATS = ("PNG", "JPEG")
"""Formats of images that a page may upload."""
MAX_IMAGES = 32
"""Largest number of stored images from a page; the oldest is dropped first."""
LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len")
"""Config attributes with the largest number of tokens."""
DEFAULT_NEW_TOKENS = 40
"""Largest number of generated tokens if neither the model nor the user sets one."""


class ModelInput(NamedTuple):
    """One input: a text with an optional target, or any value that a custom function accepts."""

    value: Any
    target: str | None = None

    @property
    def text(self) -> str:
        """Label of the input."""
        if self.target is not None:
            return f"{self.value}{TARGET_SEPARATOR}{self.target}"
        if isinstance(self.value, Path):
            return self.value.name
        return self.value if isinstance(self.value, str) else type(self.value).__name__


def as_input(value: Any) -> ModelInput:
    """Return an input from a text, `source ||| target`, a pair (source, target), or any other value.

    >>> as_input("Ein Hund ||| A dog")
    ModelInput(value='Ein Hund', target='A dog')
    """
    if isinstance(value, ModelInput):
        return value
    if isinstance(value, str):
        source, separator, target = f" {value} ".partition(TARGET_SEPARATOR)
        return with_target(source.strip(), target.strip()) if separator else ModelInput(value)
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, str) for part in value):
        return with_target(*value)
    return ModelInput(value)


def with_target(source: Any, target: str) -> ModelInput:
    """Return a source with its target; raises `InputError` if either is empty."""
    if isinstance(source, str) and not source.strip():
        raise InputError(f"target {shorten(target)} has no source: type source{TARGET_SEPARATOR}target")
    if not target.strip():
        raise InputError("target is empty: type a target, or leave it out")
    return ModelInput(source, target)


def as_inputs(inputs: Any) -> tuple[ModelInput, ...]:
    """Return inputs from an iterable or from one text; raises `InputError` for anything else.

    >>> as_inputs("The cat sat")
    (ModelInput(value='The cat sat', target=None),)
    """
    if isinstance(inputs, str):
        return (as_input(inputs),)
    return tuple(map(as_input, inputs))


def input_name(inputs: Sequence[ModelInput], number: int) -> str:
    """Return the label of an input, with its number if other inputs have the same label."""
    chosen = inputs[number]
    is_repeated = [other.text for other in inputs].count(chosen.text) > 1
    return f"{chosen.text} {number}" if is_repeated and not isinstance(chosen.value, str) else chosen.text


def label_input(inputs: Sequence[ModelInput], model_input: ModelInput) -> str:
    numbers = (number for number, known in enumerate(inputs) if known is model_input)
    return next((input_name(inputs, number) for number in numbers), model_input.text)


def find_input(inputs: Sequence[ModelInput], value: Any, target: str | None = None) -> ModelInput:
    """Return the input in `inputs` with a label, or a new input; `target` replaces its target."""
    if target is not None:
        return with_target(find_input(inputs, value).value, target)
    for number, known in enumerate(inputs if isinstance(value, str) else ()):
        if not isinstance(known.value, str) and input_name(inputs, number) == value:
            return known
    return as_input(value)


Channels = Annotated[list[float], msgspec.Meta(min_length=3, max_length=3)]


class _Preprocessor(msgspec.Struct):
    """The fields of `preprocessor_config.json` that Regard uses."""

    image_mean: Channels | None = None
    image_std: Channels | None = None


class TextEncoder:
    """Converts texts to model inputs, with a tokenizer of transformers or of the tokenizers package."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    @cached_property
    def labeler(self) -> TokenLabeler:
        return TokenLabeler(self.tokenizer)

    @cached_property
    def alphabet(self) -> list[int]:
        size = len(self.tokenizer) if callable(self.tokenizer) else self.tokenizer.get_vocab_size()
        return sorted({*range(size)} - {*getattr(self.tokenizer, "all_special_ids", ())})

    def tensors(self, model: Any, text: Any) -> dict[str, Any]:
        """Return the inputs of a model for a text, (1, T); raises `InputError` if the model rejects it."""
        if not isinstance(text, str):
            raise InputError(f"input is of type {type(text).__name__}: give a text")
        with self._one_line_errors("tokenize this text"):
            if callable(self.tokenizer):
                encoded = dict(self.tokenizer(text, return_tensors="pt"))
            else:
                ids = torch.tensor([self.tokenizer.encode(text).ids])
                encoded = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        count = encoded["input_ids"].shape[-1]
        if not count:
            raise InputError("input is empty: type a text")
        config = getattr(model, "config", None)
        most = next((getattr(config, name) for name in LENGTHS if getattr(config, name, None)), None)
        if most is not None and count > most:
            raise InputError(f"input has {count:,} tokens, more than the model's {most:,}: shorten the input")
        self._check_vocabulary(model, encoded["input_ids"])
        device, parameters = find_device(model), parameter_names(model)
        return {name: ids.long().to(device) for name, ids in encoded.items() if name in parameters}

    def _check_vocabulary(self, model: Any, tokens: Tensor) -> None:
        """Raise `InputError` for tokens without an embedding: the tokenizer belongs to another model."""
        size, largest = getattr(getattr(model, "config", None), "vocab_size", None), int(tokens.max())
        if isinstance(size, int) and largest >= size:
            token = self.labels([largest])[0]
            raise InputError(
                f"token {largest} ({token}) is beyond the model's vocabulary of {size:,}: pass the tokenizer "
                f"of this model"
            )

    def target(self, model: nn.Module, text: str) -> Tensor:
        """Return the tokens (1, T) of a target, with its end token."""
        ids = self.target_ids(text)
        if not ids:
            raise InputError("target is empty: type a target, or leave it out")
        tokens = torch.tensor([ids], device=find_device(model))
        self._check_vocabulary(model, tokens)
        return tokens

    def target_ids(self, text: str, **options: bool) -> list[int]:
        """Return the tokens of a target or a continuation, with special tokens unless `options` leave them out."""
        with self._one_line_errors("tokenize this target"):
            if not callable(self.tokenizer):
                return list(self.tokenizer.encode(text, **options).ids)
            return list(self.tokenizer(text_target=text, **options)["input_ids"])

    def labels(self, ids: list[int], *, begins: bool = True) -> list[str]:
        with self._one_line_errors("label its tokens"):
            return self.labeler.labels(ids, begins=begins)

    def decode(self, ids: list[int]) -> str:
        """Return the text of some tokens, without special tokens."""
        with self._one_line_errors("decode tokens"):
            text: str = self.tokenizer.decode(ids, skip_special_tokens=True)
            return text.strip()

    def _one_line_errors(self, action: str) -> AbstractContextManager[None]:
        """Turn exceptions of the tokenizer into a one-line error; `action`: the step that failed."""
        is_fast = not callable(self.tokenizer) or getattr(self.tokenizer, "backend_tokenizer", None) is not None
        name = getattr(self.tokenizer, "name_or_path", "") or "given"
        return library_errors(
            "tokenizers" if is_fast else "transformers",
            f"tokenizer {name!r} cannot {action}",
            "give another text, or repair the tokenizer's files",
        )

    def is_special(self, tokens: Tensor) -> Tensor:
        special = sorted(getattr(self.tokenizer, "all_special_ids", ()))
        return torch.isin(tokens, torch.tensor(special, device=tokens.device))

    def max_new_tokens(self, model: Any) -> int:
        """Return the largest number of tokens in a model's answer."""
        config = model.generation_config
        most = config.max_new_tokens or config.max_length or DEFAULT_NEW_TOKENS
        if not isinstance(most, int) or most < 1:
            raise InputError(f"generation_config has length {shorten(str(most))}: set a whole number above 0")
        return most if config.max_new_tokens else min(most, DEFAULT_NEW_TOKENS)


class ImageStore(dict[str, np.ndarray]):
    """Images by name, resized for a model. Copies of a subject share this store."""

    def __deepcopy__(self, memo: object) -> "ImageStore":
        return self

    def put(self, name: str, pixels: np.ndarray) -> None:
        """Store an image; replaces a stored image of the same name."""
        self.pop(name, None)
        self[name] = pixels
        if len(self) > MAX_IMAGES:
            del self[next(iter(self))]


@dataclass(frozen=True)
class ImageProcessor:
    """Converts images to model inputs."""

    height: int = SIZE
    width: int = SIZE
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    """Mean of each color channel (0 to 1)."""
    deviation: tuple[float, ...] = (0.5, 0.5, 0.5)
    store: ImageStore = field(default_factory=ImageStore)
    """Uploaded images, which are not files on the server."""

    def tensors(self, model: Any, image: Any) -> dict[str, Any]:
        """Return the inputs of a model for an image; raises `InputError` if the image cannot be read.

        `image`: a file, the name of a stored image, or prepared pixels (1, 3, height, width).
        """
        size = f"(1, 3, {self.height}, {self.width})"
        if isinstance(image, Tensor):
            if image.dim() != 4 or image.shape[:2] != (1, 3):
                raise InputError(f"image has shape {tuple(image.shape)}: give {size}, or a file")
            return {"pixel_values": image.to(find_device(model))}
        if not isinstance(image, str | Path):
            raise InputError(f"image is of type {type(image).__name__}: give a file, or a tensor {size}")
        pixels = self.store[str(image)] if image in self.store else self._read(image, None, str(image))
        values = (pixels.astype(np.float32) / 255 - np.array(self.mean)) / np.array(self.deviation)
        tensor = torch.tensor(values, dtype=torch.float32).permute(2, 0, 1).unsqueeze(0)
        return {"pixel_values": tensor.to(find_device(model))}

    def put(self, name: str, content: bytes) -> None:
        """Store an image from the bytes of a PNG or JPEG file; raises `InputError` for other content."""
        self.store.put(name, self._read(io.BytesIO(content), FORMATS, name))

    def check_name(self, model_input: ModelInput) -> None:
        """Raise `InputError` for an image that is not stored, so that a page cannot read files of the server."""
        name = model_input.value
        if isinstance(name, str) and name not in self.store:
            raise InputError(f"image {name!r} was not uploaded: choose a file, PNG or JPEG")

    def colours(self, arguments: Any) -> np.ndarray:
        values = arguments["pixel_values"][0].float().permute(1, 2, 0).cpu().numpy()
        values = values * np.array(self.deviation) + np.array(self.mean)
        pixels: np.ndarray = np.rint(values.clip(0, 1) * 255).astype(np.uint8)
        return pixels

    def _read(self, file: Any, formats: tuple[str, ...] | None, name: str) -> np.ndarray:
        from PIL import Image, ImageOps, UnidentifiedImageError

        remedy = "give a file such as .png or .jpg" if formats is None else f"choose a {' or '.join(FORMATS)} file"
        try:
            with Image.open(file, formats=formats) as image:
                count = image.width * image.height
                if count > MAX_PIXELS:
                    raise InputError(f"image {name!r} has {count:,} pixels: give one of at most {MAX_PIXELS:,}")
                upright = ImageOps.exif_transpose(image).convert("RGB")
                return np.asarray(upright.resize((self.width, self.height), Image.Resampling.BILINEAR))
        except InputError:
            raise
        except (OSError, UnidentifiedImageError, ValueError, AttributeError, SyntaxError) as error:
            raise InputError(f"image {name!r} cannot be read: {remedy}") from error
        except Image.DecompressionBombError as error:
            raise InputError(f"image {name!r} is too large: give one of at most {MAX_PIXELS:,} pixels") from error


def load_image_processor(config: Any, folder: Path | None = None) -> ImageProcessor:
    """Return the image processor described by a model's config and the folder's `preprocessor_config.json`."""
    height, width = as_pair(getattr(config, "image_size", None) or SIZE)
    values, remedy = _Preprocessor(), "restore a copy, or remove it"
    if folder is not None and is_file(folder / PREPROCESSOR):
        values = read_json(folder / PREPROCESSOR, _Preprocessor, remedy)
        if values.image_std and 0 in values.image_std:
            raise damaged_file(folder / PREPROCESSOR, "image_std has a 0", remedy)
    mean, deviation = values.image_mean or HALF, values.image_std or HALF
    return ImageProcessor(int(height), int(width), tuple(mean), tuple(deviation))


def as_pair(size: Any) -> tuple[int, int]:
    """Return height and width from one number or a pair of numbers, as configs contain both forms.

    >>> as_pair(224), as_pair([32, 64])
    ((224, 224), (32, 64))
    """
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return int(height), int(width)
