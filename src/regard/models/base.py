"""Base classes of all models, with the interface for training, testing and attention maps.

    logits = model(inputs, mask)        B x To x classes, of an `AnswerModel`

`Seq2Seq`, the base class of models that generate text, is in `seq2seq`. `LanguageModel`, the base class of
models that predict the next token, is in `language_model`. A custom model is a subclass of one of these
classes. `regard train TASK --model module:Class` trains it (docs/how-to/extend.md).

Letters: B batch, T input steps, To output steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from regard.arguments import public
from regard.attention.mechanism import Mechanism, list_parts
from regard.attention.parts import Part, Slot
from regard.attention.positions import Positions, Rotary
from regard.errors import InputError
from regard.fast.query_gradient import QueryGradient


@public
@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Base class of model configs.

    Options that only some models have are class attributes here. Their values apply to all other models, so
    that code can read the options from any config.
    """

    attention = "softmax"
    dropout = 0.0
    enc_layers = 0
    layer = "standard"
    positions = "none"
    score = "none"

    @cached_property
    def mechanism(self) -> Mechanism:
        """Parts of the attention mechanism. Positions of embeddings are left out; see `embedding_positions`.

        Raises `InputError` for unknown parts, and for a part that contradicts `score` or `positions`.
        """
        mechanism = Mechanism.parse(self.attention)
        # Values equal to a default, of the model or of a task, do not count: a config does not know which values
        # were given.
        changed = {
            name: value
            for name in ("score", "positions")
            if (value := getattr(self, name)) not in [vars(base).get(name) for base in type(self).__mro__]
        }
        check_replaced(mechanism.without("linear"), changed)
        return mechanism

    def check_heads(self, hidden: int, heads: int, hint: str = "") -> None:
        """Raise `InputError` unless a width can be split into heads. `hint`: another way out."""
        if hidden % heads:
            raise InputError(
                f"hidden {hidden} cannot be split into {heads} heads: choose a multiple of {heads}{hint}"
            )

    def check_even(self, hidden: int, head_width: int) -> None:
        """Raise `InputError` for an odd width with rotary or concatenated positions."""
        if self.embedding_positions == "rotary" and head_width % 2:
            raise InputError(
                f"head width {head_width} is odd, but rotary positions rotate pairs of dimensions: choose an "
                f"even width"
            )
        if self.embedding_positions == "concatenated" and hidden % 2:
            raise InputError(
                f"hidden {hidden} is odd, but embeddings and concatenated positions each need half of hidden: "
                f"choose an even number"
            )

    def check_single_head(self, model: str) -> None:
        """Raise `InputError` unless the mechanism has only a score and a normalizer, for a model with one head
        without projections whose outputs attend to a memory."""
        for slot, choice in self.mechanism.slots.items():
            if slot not in ("score", "normalizer"):
                raise InputError(
                    f"attention part {choice.name} is for the slot {slot}, which a {model} model does not have: "
                    f"choose a score ({', '.join(list_parts('score'))}) or a normalizer "
                    f"({', '.join(list_parts('normalizer'))})"
                )

    @property
    def embedding_positions(self) -> str:
        """Positional encoding of the embeddings: that of the attention mechanism, or `positions`.

        "bias" stands for positions that are added to the scores.
        """
        position = self.mechanism.slots.get("position")
        if position is None:
            return self.positions
        return "bias" if issubclass(position.cls, Part) else position.name


REPLACED: dict[Slot, str] = {
    "score": "score",
    "linear": "score",
    "position": "positions",
    "sharing": "key_value_heads",
}
"""Option that a part of each slot replaces."""


def check_replaced(mechanism: Mechanism, options: Mapping[str, object]) -> None:
    """Raise `InputError` for one of the options that a part of the mechanism replaces."""
    for slot, part in mechanism.slots.items():
        name = REPLACED.get(slot, "")
        if options.get(name) not in (None, "none", part.name):
            raise InputError(
                f"--{name} {options[name]} and attention part {part.name} are both for the slot {slot}: give one "
                f"of them{', or --positions none' if slot == 'position' else ''}"
            )


@public
class TaskModel(nn.Module):
    """Base class of `AnswerModel`, `Seq2Seq` and `LanguageModel`."""

    answers: ClassVar[Literal["numbers", "text", "tokens"]]
    """Kind of output."""
    config_class: ClassVar[type[ModelConfig]] = ModelConfig
    """Config of the model; its fields are command-line flags."""
    compilable: ClassVar[bool] = False
    """Whether the model's layers are blocks of `regard.attention`, which `torch.compile` supports."""
    cross_layers: tuple[str, ...] = ()
    """Names of the attention layers from outputs to inputs. `regard test` evaluates the first layer."""

    @property
    def input_embedding(self) -> nn.Module:
        """The module whose first output in a forward pass, (B, T, D), is the embedding of the inputs."""
        raise NotImplementedError

    @property
    def input_positions(self) -> Positions | Rotary | None:
        """Positional encoding of the input, or None."""
        return None

    @property
    def learned_positions(self) -> Tensor | None:
        """Learned position vectors (T, D) of the input, or None."""
        return None


class AutoregressiveModel(TaskModel):
    """Base of `Seq2Seq` and `LanguageModel`: models that predict the next token with a vocabulary layer."""

    def logits(self, states: Tensor) -> Tensor:
        return F.linear(states, *self.vocabulary_layer)

    @property
    def vocabulary_layer(self) -> tuple[Tensor, Tensor | None]:
        """Return weight (V, D) and bias (V,) of the last layer."""
        raise NotImplementedError


@public
class AnswerModel(TaskModel):
    """Base class of models that predict a number for each output step.

    The constructor takes an instance of `config_class` and properties of the task as keywords: the number of
    `letters`, the largest number of input steps (`input_len`), the number of `outputs`, the number of `classes`
    of an output, and whether sequence lengths vary (`vary_len`).
    """

    answers = "numbers"

    def forward(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits (B, To, classes) for letters (B, T) int64, with `mask` (B, T) True before the end.

        Inputs are -1 after the end of a sequence.
        """
        raise NotImplementedError

    def fast_gradient(self) -> QueryGradient | None:
        """Return a function that computes loss and gradients faster than autograd, or None if the model has no
        such function."""
        return None
