"""Find the parameters of a learner's module, or the arrays of a class without PyTorch, and interpret their
names."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from regard_course.arrays import loaded_torch

MAX_DEPTH = 4
"""Maximum depth of attributes, lists and dictionaries that are searched for arrays."""
WORDS = {
    feature: {value: pieces.split() for value, pieces in values.items()}
    for feature, values in {
        "letter": {
            "q": "q wq query queries toq wquery",
            "k": "k wk key keys tok wkey",
            "v": "v wv value values tov wvalue",
            "o": "o wo out output unify wout proj final",
        },
        "block": {
            "cross": "cross src memory encdec encatt encattn multihead context second mem",
            "self": "self own masked selfattn causal first",
            "feed_forward": "ff ffn feed feedforward mlp linear fc pos positionwise inner",
        },
        "side": {
            "encoder": "encoder encoders enc source src encoderlayers",
            "decoder": "decoder decoders dec target tgt trg decoderlayers",
        },
    }.items()
}
"""Parts of names that learners use, by feature and value. "multihead" is cross-attention, because PyTorch's
decoder layer calls its two attentions self_attn and multihead_attn."""


def find_parameters(module: Any) -> dict[str, tuple[Any, str]]:
    """Return all parameters of a module, or the float arrays of any other object, with the kind of their
    owners.

    A parameter that several modules share is listed once.
    """
    torch = loaded_torch()
    if torch is None or not isinstance(module, torch.nn.Module):
        return dict(_find_arrays(module, "", 0))
    parameters = {}
    for path, part in module.named_modules():
        for name, parameter in part.named_parameters(recurse=False):
            parameters[f"{path}.{name}".lstrip(".")] = parameter, _owner_kind(part, torch)
    first_names = {id(value): name for name, (value, _) in reversed(parameters.items())}
    return {name: parameters[name] for name in parameters if name in first_names.values()}


def _owner_kind(module: Any, torch: Any) -> str:
    convolutions = torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d  # with a kernel of size 1, a linear layer
    if isinstance(module, (torch.nn.Linear, *convolutions)):
        return "linear"
    if isinstance(module, torch.nn.Embedding):
        return "embedding"
    return "norm" if "norm" in type(module).__name__.lower() else "other"


def _find_arrays(value: Any, path: str, depth: int) -> Iterator[tuple[str, tuple[Any, str]]]:
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f":
            yield path, (value, "norm" if "norm" in path.lower() else "other")
    elif depth < MAX_DEPTH:
        attributes = value if isinstance(value, Mapping) else getattr(value, "__dict__", None)
        if isinstance(value, list | tuple):
            attributes = dict(enumerate(value))
        for name, attribute in (attributes or {}).items():
            yield from _find_arrays(attribute, f"{path}.{name}".lstrip("."), depth + 1)


def find_hidden_modules(module: Any) -> list[str]:
    """Return attributes that are plain lists or dictionaries of modules, which PyTorch does not register."""
    torch = loaded_torch()
    if torch is None or not isinstance(module, torch.nn.Module):
        return []
    hidden = []
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            items = list(value.values()) if isinstance(value, dict) else value
            if name.startswith("_") or not isinstance(items, list | tuple):
                continue
            if any(isinstance(item, torch.nn.Module | torch.nn.Parameter) for item in items):
                hidden.append(f"{path}.{name}".lstrip("."))
    return hidden


def split_name(name: str) -> list[str]:
    """Return the words and numbers in a name.

    >>> split_name("layers.0.selfAttn.q_proj")
    ['layers', '0', 'self', 'attn', 'q', 'proj']
    """
    spaced = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
    return [piece for piece in re.split(r"[._]|(?<=[a-zA-Z])(?=\d)|(?<=\d)(?=[a-zA-Z])", spaced) if piece]


def name_features(name: str) -> dict[str, str]:
    """Return the features that a parameter's name indicates.

    The last matching part counts, because it is the most specific. For the side (encoder or decoder), the first
    part counts.

    >>> name_features("decoder.layers.1.src_attn.w_k")
    {'letter': 'k', 'block': 'cross', 'side': 'decoder', 'layer': '1'}
    """
    pieces = split_name(name)
    features = {}
    for feature, values in WORDS.items():
        for piece in pieces if feature == "side" else reversed(pieces):
            value = next((value for value, words in values.items() if piece in words), None)
            if value:
                features[feature] = value
                break
    numbers = [piece for piece in pieces if piece.isdigit()]
    if numbers:
        features["layer"] = numbers[0]
    return features


def weight_features(name: str, stacked: bool, decodes: bool = False) -> dict[str, str]:
    """Return the features of a weight of the exercise, as in `name_features`, and its kind of norm.

    stacked: whether the exercise has several layers. decodes: whether the exercise is a decoder layer.

    >>> weight_features("encoder.0.gain_2", stacked=True)
    {'side': 'encoder', 'layer': '0', 'norm': 'gain', 'block': 'feed_forward'}
    """
    *path, last = name.partition("@")[0].split(".")
    head, _, letter = last.partition("_")
    features = {}
    if path and path[0] in ("encoder", "decoder"):
        features["side"], features["layer"] = path[0], path[1]
    if letter in tuple("qkvo") and head in ("w", "cross"):
        features |= {"letter": letter, "block": "cross" if head == "cross" else "self"}
    elif head in ("w", "b") and letter in ("1", "2"):
        features |= {"block": "feed_forward"}
    elif head in ("gain", "shift"):
        blocks = ("self", "cross", "feed_forward") if decodes or "decoder" in path else ("self", "feed_forward")
        features |= {"norm": head, "block": blocks[int(letter) - 1]}
    elif last in ("source", "target"):
        features["side"] = "encoder" if last == "source" else "decoder"
    if not stacked:
        features.pop("layer", None)
    return features
