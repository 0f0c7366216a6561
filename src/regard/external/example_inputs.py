"""Example inputs of an external model, from its model card or from Regard.

A model card is the README.md of a folder. The texts of `widget` in its YAML header are examples by the model's authors.
Without a `widget` entry, Regard's own short texts are the examples: beginnings of sentences for a causal language
model, sentences with a mask for a masked one, opinions for a classifier, names for a classifier of tokens, and
sentences in the source language for a translator. The examples for an image model are two generated pictures.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from regard.errors import InputError
from regard.external.adapters import (
    Adapter,
    CausalLMAdapter,
    ClassifierAdapter,
    CustomModel,
    MaskedLMAdapter,
    Seq2SeqAdapter,
)
from regard.external.model_input import ImageProcessor, ModelInput
from regard.io import is_file, read_text

CARD = "README.md"
MAX_HEADER = 100_000
"""Number of characters at the start of a card that may contain the header."""
MAX_TEXTS = 10
"""Largest number of texts that are taken from a card."""
MAX_CHARACTERS = 2_000
"""Largest number of characters in an example from a card; longer examples are left out."""
FROM_CARD = f"from the model's card ({CARD})"
OWN = "of Regard's own"
FIRST = "The cat sat on the mat"
"""Text with which a model without inputs runs first, to find its attention layers."""

EXAMPLES: dict[str, Any] = json.loads(Path(__file__).with_name("examples.json").read_text(encoding="utf-8"))
SENTENCES: Mapping[str, Sequence[str]] = EXAMPLES["sentences"]
"""Sentences by language. The word in braces is masked, or omitted so that the model predicts it."""


class Examples(NamedTuple):
    """Example inputs of a model."""

    inputs: tuple[str, ...]
    """Texts, or names of drawn pictures; empty if no known example suits the model."""
    origin: str
    """Where they come from: `from the model's card (README.md)`, or `of Regard's own`."""


def find_examples(model: Any, adapter: Adapter, folder: Path | None, check: Callable[[str], None]) -> Examples:
    """Return the example inputs of a model card, otherwise Regard's own examples.

    `folder`: the folder of the model, if it has one. `check` raises `InputError` for an input that the model
    rejects; such examples are left out.
    """
    header = {} if folder is None else _card_header(folder)
    if isinstance(adapter, CustomModel):
        return Examples((), "")
    if isinstance(adapter.encoder, ImageProcessor):
        return Examples(_draw_pictures(adapter.encoder), OWN)
    if texts := _accepted(_card_texts(header), check):
        return Examples(texts, FROM_CARD)
    own, language = _own_texts(model, adapter, header)
    return Examples(_accepted(own, check), OWN if language is None else f"{OWN}, in English, not in {language}")


def example_arguments(model: Any, adapter: Adapter, inputs: Sequence[ModelInput], images: ImageProcessor | None) -> Any:
    """Return arguments for the first run of a model; raises `InputError` if no input is known."""
    if inputs:
        return adapter.prepare(model, inputs[0]).arguments
    if isinstance(adapter, CustomModel):
        raise InputError("no input for the function is known: pass inputs=[...] to look()")
    value = FIRST if images is None else torch.zeros(1, 3, images.height, images.width)
    try:
        return adapter.prepare(model, ModelInput(value)).arguments
    except InputError:
        if not adapter.alphabet:
            raise
        text = adapter.encoder.decode(adapter.alphabet[:6])
        return adapter.prepare(model, ModelInput(text)).arguments  # a vocabulary without these words


def _accepted(texts: Sequence[str], check: Callable[[str], None]) -> tuple[str, ...]:
    accepted = []
    for text in texts:
        try:
            check(text)
        except InputError:
            continue
        accepted.append(text)
    return tuple(accepted)


def _card_header(folder: Path) -> dict[str, Any]:
    """Return the YAML header of the card in a folder; empty if it is unreadable, because only examples need it."""
    if find_spec("yaml") is None or not is_file(folder / CARD):
        return {}
    import yaml  # which transformers needs

    try:
        text = read_text(folder / CARD, "remove it")[:MAX_HEADER]
        header = yaml.safe_load(text.split("---", 2)[1]) if text.startswith("---") else None
    except (InputError, IndexError, ValueError, RecursionError, yaml.YAMLError):
        return {}
    return header if isinstance(header, dict) else {}


def _card_texts(header: Mapping[str, Any]) -> list[str]:
    """Return the texts of `widget` in the header of a card.

    >>> _card_texts({"widget": [{"text": "Hello"}, {"source_sentence": "A dog", "sentences": ["A cat"]}]})
    ['Hello', 'A dog', 'A cat']
    """
    widget = header.get("widget")
    entries = [entry for entry in widget if isinstance(entry, dict)] if isinstance(widget, list) else []
    texts: list[Any] = []
    for entry in entries:
        sentences = entry.get("sentences")
        texts += [entry.get("text"), entry.get("source_sentence")]
        texts += sentences if isinstance(sentences, list) else []
    usable = (text.strip() for text in texts if isinstance(text, str) and len(text) <= MAX_CHARACTERS)
    return list(dict.fromkeys(filter(None, usable)))[:MAX_TEXTS]


def _own_texts(model: Any, adapter: Adapter, header: Mapping[str, Any]) -> tuple[Sequence[str], str | None]:
    """Return texts for a kind of model, and the model's language if it is known but the texts are English."""
    name = type(model).__name__
    tasks = getattr(model.config, "task_specific_params", None) or {}
    tags = json.dumps([header.get("pipeline_tag"), list(tasks)])
    tokenizer = getattr(adapter.encoder, "tokenizer", None)
    if isinstance(adapter, Seq2SeqAdapter):
        to = {key: value for key, value in tasks.items() if key.startswith("translation_en")}
        if to:
            prefix = next((str(value.get("prefix", "")) for value in to.values() if isinstance(value, dict)), "")
            return [prefix + _whole(sentence) for sentence in SENTENCES["en"]], None
        if "summarization" in tags:
            return EXAMPLES["articles"], None
    language = _language(getattr(tokenizer, "source_lang", None) or getattr(tokenizer, "src_lang", None))
    language = language or _language(header.get("language")) or "en"
    known = language in SENTENCES
    sentences = SENTENCES[language if known else "en"]
    if isinstance(adapter, ClassifierAdapter) and language == "en":
        return EXAMPLES["names"] if "TokenClassification" in name else EXAMPLES["opinions"], None
    if isinstance(adapter, MaskedLMAdapter) and (mask := getattr(tokenizer, "mask_token", None)):
        texts = [re.sub("{.*?}", lambda word: mask, sentence) for sentence in sentences]
    elif isinstance(adapter, CausalLMAdapter):
        texts = [sentence.partition("{")[0].strip() for sentence in sentences]
    else:
        texts = [_whole(sentence) for sentence in sentences]
    return texts, None if known else language


def _whole(sentence: str) -> str:
    return sentence.replace("{", "").replace("}", "")


def _language(code: Any) -> str | None:
    """Return the two-letter code of a single language; other codes are returned unchanged.

    >>> _language("de_DE"), _language("deu_Latn"), _language(["en"]), _language(["en", "de"]), _language("fi")
    ('de', 'de', 'en', None, 'fi')
    """
    if isinstance(code, list):
        code = code[0] if len(code) == 1 else None
    if not isinstance(code, str) or not code:
        return None
    from babel.core import get_global  # slow to import

    first = code.replace("-", "_").split("_")[0].lower()
    return (
        get_global("language_aliases").get(first, first)
        if first.isalpha() and first not in ("multilingual", "code")
        else None
    )


def _draw_pictures(images: ImageProcessor) -> tuple[str, ...]:
    """Draw a house and a pattern of discs, store them as inputs, and return their names."""
    y, x = np.mgrid[0 : images.height, 0 : images.width]
    y, x = (y + 0.5) / images.height, (x + 0.5) / images.width  # from 0 to 1, the first row at the top
    house = np.zeros((images.height, images.width, 3), dtype=np.uint8)
    house[:] = (135, 190, 235)
    house[(x - 0.8) ** 2 + (y - 0.2) ** 2 < 0.01] = (250, 215, 80)
    house[y > 0.7] = (95, 155, 75)
    house[(abs(x - 0.4) < 0.2) & (y > 0.45) & (y < 0.8)] = (225, 205, 175)
    house[(y > 0.25) & (y < 0.45) & (abs(x - 0.4) < 1.3 * (y - 0.25))] = (165, 60, 50)
    house[(abs(x - 0.47) < 0.05) & (y > 0.6) & (y < 0.8)] = (100, 65, 40)
    house[(abs(x - 0.3) < 0.05) & (abs(y - 0.57) < 0.05)] = (80, 110, 150)
    discs = np.full_like(house, 240)
    for row, column, colour in ((0.3, 0.3, (200, 60, 60)), (0.3, 0.7, (60, 120, 200)), (0.72, 0.5, (70, 150, 90))):
        discs[(x - column) ** 2 + (y - row) ** 2 < 0.025] = colour
    pictures = {"house (drawn)": house, "discs (drawn)": discs}
    for name, pixels in pictures.items():
        if name not in images.store:
            images.store.put(name, pixels)
    return tuple(pictures)
