"""Attention mechanisms: a choice of one part for each slot.

    Mechanism.parse("alibi,sink")         positions as a bias of the scores, softmax with a learned sink
    Mechanism.parse("window:16,cosine")   a window of 16 steps, cosine scores

Parts are joined by commas or by plus signs. Numbers after a colon are arguments of the part. A custom part is a
subclass of a slot's base class in `regard.attention.parts`, or of `Score`, and is named by `module:Class`. A slot
without a part has its default: scaled dot product, softmax, the mask of the layer, and for each head its own keys
and values. To add a part to the table, write its class and add one line to `PARTS`; `regard_lab/cards/card.py` and the
table of its module name it, too.
"""

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.arguments import guard_class, public
from regard.attention.masks import Causal, Streaming, Window
from regard.attention.normalizers import Entmax, Sigmoid, Sink, Softmax, SoftmaxOne, Sparsemax, TopK
from regard.attention.parts import (
    AttentionKind,
    DeltaRule,
    Differential,
    Forgetting,
    GatedLinear,
    Grouped,
    HeadGate,
    Latent,
    LayerSizes,
    Linear,
    MultiQuery,
    OutputGate,
    Part,
    Selective,
    ShiftedKeys,
    Slot,
    TalkingHeads,
)
from regard.attention.positions import Alibi, Concatenated, LearnedPositions, NoPositions, Rotary, Sinusoidal, T5Bias
from regard.attention.scores import SCORES, Score
from regard.errors import InputError, unknown_choice
from regard.plugins import describe_error, import_plugin

PARTS: dict[str, type[nn.Module]] = {
    **SCORES,
    "none": NoPositions,
    "learned": LearnedPositions,
    "sinusoidal": Sinusoidal,
    "concatenated": Concatenated,
    "rotary": Rotary,
    "alibi": Alibi,
    "t5": T5Bias,
    "causal": Causal,
    "window": Window,
    "streaming": Streaming,
    "softmax": Softmax,
    "softmax_one": SoftmaxOne,
    "sink": Sink,
    "sigmoid": Sigmoid,
    "sparsemax": Sparsemax,
    "entmax": Entmax,
    "topk": TopK,
    "output_gate": OutputGate,
    "head_gate": HeadGate,
    "differential": Differential,
    "talking_heads": TalkingHeads,
    "forgetting": Forgetting,
    "selective": Selective,
    "multi_query": MultiQuery,
    "grouped": Grouped,
    "latent": Latent,
    "shifted_keys": ShiftedKeys,
    "linear": Linear,
    "gated_linear": GatedLinear,
    "delta_rule": DeltaRule,
}
"""The parts by name."""
for part in PARTS.values():
    guard_class(part)
EMBEDDING_POSITIONS = ("none", "learned", "sinusoidal", "concatenated")
"""Positions that act on embeddings, before the first layer."""
REPLACED: tuple[Slot, ...] = ("score", "mask", "normalizer", "combination")
"""Slots that exclude a part of the linear family: it has no scores, and its state keeps all earlier steps."""


@dataclass(frozen=True)
class PartChoice:
    """A part of a mechanism: its class, and the numbers for its constructor."""

    name: str
    """Name in the table, or `module:Class`."""
    cls: type[nn.Module]
    """Class of the part."""
    numbers: tuple[float, ...] = ()
    """Arguments of the constructor after the sizes of the layer."""

    @property
    def slot(self) -> Slot:
        if issubclass(self.cls, Score):
            return "score"
        return self.cls.slot if issubclass(self.cls, Part) else "position"

    @property
    def kinds(self) -> tuple[AttentionKind, ...]:
        """Kinds of layers in which the part has a meaning; none for positions of embeddings."""
        if issubclass(self.cls, Score):
            return ("causal", "self", "cross")
        if issubclass(self.cls, Part):
            return self.cls.kinds
        return ("causal", "self") if self.cls is Rotary else ()

    def build(self, sizes: LayerSizes) -> Any:
        """Return the part for a layer. Raises `InputError` if the numbers or sizes do not fit."""
        head = (sizes.head_width, sizes.head_width) if self.slot == "score" else (sizes.head_width,)
        return self.make(*((sizes,) if issubclass(self.cls, Part) else head))

    def make(self, *arguments: Any) -> Any:
        """Return the part for the first arguments of its class. Raises `InputError` if numbers or widths do not fit."""
        parameters = [*inspect.signature(self.cls).parameters.values()]
        most = len(parameters) - len(arguments)
        bounded = all(parameter.kind is not parameter.VAR_POSITIONAL for parameter in parameters)
        if bounded and len(self.numbers) > max(most, 0):
            raise InputError(
                f"attention part {self.name} takes {f'at most {most}' if most > 0 else 'no'} "
                f"number{'' if most == 1 else 's'}, and not {len(self.numbers)}: leave some out"
            )
        try:
            return self.cls(*arguments, *self.numbers)
        except InputError as error:
            raise InputError(f"{self.name}: {str(error).removeprefix(f'{self.name}: ')}") from None
        except Exception as error:  # custom code can raise anything; a wrong number of arguments is a TypeError
            numbers = ":".join(f"{number:g}" for number in self.numbers) or "no numbers"
            raise InputError(
                f"attention part {self.name} with {numbers} cannot be built: {describe_error(error)}"
            ) from error


@public
@dataclass(frozen=True)
class Mechanism:
    """A choice of parts, at most one for each slot.

    >>> mechanism = Mechanism.parse("alibi,sink")
    >>> mechanism.slots["position"].name, mechanism.text
    ('alibi', 'alibi,sink')
    """

    choices: tuple[PartChoice, ...] = ()
    """The parts, in the order of the text."""

    @classmethod
    def parse(cls, text: str) -> "Mechanism":
        """Return the mechanism for a text such as `alibi,sink` or `window:16+cosine`.

        Raises `InputError` for an unknown part, for two parts of one slot, and for a part of the linear family
        together with a part that it replaces.
        """
        mechanism = cls(tuple(map(_parse_part, _split(text))))
        slots: dict[Slot, PartChoice] = {}
        for choice in mechanism.choices:
            if choice.slot in slots:
                raise InputError(
                    f"attention parts {slots[choice.slot].name} and {choice.name} are both for the slot "
                    f"{choice.slot}: choose one of them"
                )
            slots[choice.slot] = choice
        # A recurrence has neither scores nor a window over past keys.
        if "linear" in slots:
            replaced = [slots[slot].name for slot in REPLACED if slot in slots]
            if "position" in slots and issubclass(slots["position"].cls, Part):
                replaced.append(slots["position"].name)
            if replaced:
                raise InputError(
                    f"attention part {slots['linear'].name} has neither scores nor a window, so it excludes "
                    f"{', '.join(replaced)}: leave one of them out"
                )
        return mechanism

    @classmethod
    def for_layer(cls, mechanism: "Mechanism | str | None", kind: AttentionKind) -> "Mechanism":
        """Return the mechanism of a layer, given as parts or as text; None has no parts, and softmax is the default.

        Raises `InputError` as `parse`, and for a part that has no meaning in a layer of this kind.
        """
        parsed = cls.parse(mechanism) if isinstance(mechanism, str) else mechanism or cls()
        parsed.check_kinds([kind])
        # A layer without a normalizer may call the fused kernel. With numbers, softmax is refused when it is built.
        return cls(tuple(part for part in parsed.choices if part.cls is not Softmax or part.numbers))

    @property
    def slots(self) -> dict[Slot, PartChoice]:
        """The chosen part of each slot."""
        return {choice.slot: choice for choice in self.choices}

    @property
    def text(self) -> str:
        """The text from which `parse` makes the same mechanism."""
        return ",".join(
            ":".join([choice.name, *(f"{number:.12g}" for number in choice.numbers)]) for choice in self.choices
        )

    @property
    def position(self) -> str | None:
        """Name of the chosen positions, or None."""
        choice = self.slots.get("position")
        return None if choice is None else choice.name

    def for_kind(self, kind: AttentionKind) -> "Mechanism":
        """Return the parts that have a meaning in a layer of this kind.

        >>> Mechanism.parse("alibi,sink").for_kind("cross").text
        'sink'
        """
        return Mechanism(tuple(choice for choice in self.choices if kind in choice.kinds))

    def without(self, slot: Slot) -> "Mechanism":
        """Return the mechanism without the part of a slot."""
        return Mechanism(tuple(choice for choice in self.choices if choice.slot != slot))

    def check_kinds(self, kinds: Iterable[AttentionKind], *, positions: Iterable[str] = ()) -> None:
        """Raise `InputError` unless each part acts in a layer of one of the `kinds`, or is one of the `positions`
        of embeddings that the model offers."""
        kinds, positions = set(kinds), tuple(positions)
        for choice in self.choices:
            if choice.name in EMBEDDING_POSITIONS:
                if choice.name not in positions:
                    raise InputError(
                        f"attention part {choice.name} acts on embeddings, which this model or layer does not "
                        f"offer: {'choose ' + ', '.join(positions) if positions else 'leave it out'}"
                    )
            elif not kinds & set(choice.kinds):
                raise InputError(
                    f"attention part {choice.name} needs a layer of kind {' or '.join(choice.kinds)}: "
                    f"this model has {' and '.join(sorted(kinds)) or 'no attention layer'}"
                )


@public
def list_parts(slot: Slot) -> list[str]:
    """Return the names of the parts of a slot.

    >>> list_parts("gate")
    ['output_gate', 'head_gate']
    """
    return [name for name, cls in PARTS.items() if PartChoice(name, cls).slot == slot]


def custom_parts(text: str) -> list[str]:
    """Return the names of the custom parts in the text of a mechanism, without importing their modules.

    >>> custom_parts("window:4, mine:Sharp:2")
    ['mine:Sharp']
    """
    parts = (part.split(":") for part in _split(text))
    return [":".join(words[:2]) for words in parts if words[0] not in PARTS and len(words) > 1]


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.replace("+", ",").split(",")]


def _parse_part(text: str) -> PartChoice:
    name, *rest = text.split(":")
    if name in EMBEDDING_POSITIONS and rest:
        raise InputError(f"attention part {name} takes no numbers: write {name}")
    if name in PARTS:
        return PartChoice(name, PARTS[name], tuple(_parse_number(name, number) for number in rest))
    # A name with a colon may be a custom class; a single unknown word is a mistake.
    if not rest:
        raise unknown_choice("attention part", name, PARTS, other="module:Class")
    name, rest = f"{name}:{rest[0]}", rest[1:]
    cls = import_plugin("attention part", name)
    if not isinstance(cls, type) or not issubclass(cls, Part | Score):
        raise InputError(
            f"attention part {name!r} is not a class derived from Score or from a class of regard.attention.parts"
        )
    return PartChoice(name, cls, tuple(_parse_number(name, number) for number in rest))


def _parse_number(part: str, text: str) -> float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise InputError(f"attention part {part}: {text!r} is not a number") from None
