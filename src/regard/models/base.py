"""Base classes of all models, with the interface for training, decoding, testing and attention maps.

`AnswerModel`:

    logits = model(inputs, mask)                     B x To x classes

`Seq2Seq`, for models that generate text:

    memory = model.encode(source, mask)              once for each source
    states = model.read(target_in, memory)           all steps at once, with the true target (teacher forcing)
    logits = model.logits(states)                    output of the vocabulary layer
    state  = model.start(memory)                     before the first step
    states, state = model.step(tokens, state)        one step for the last tokens, with cached keys and values

`LanguageModel`, for models that predict the next token:

    logits = model(tokens)                           B x T x V; step t depends on tokens up to and including t
    states = model.read(tokens)                      inputs of the vocabulary layer, B x T x D
    states, state = model.start(prompt)              of the prompt's last position, before the first step
    states, state = model.step(tokens, state)        one step for the last tokens, with cached keys and values

`read` and `logits` are separate methods, because a large vocabulary layer takes most of the time. With separate
methods, the loss can avoid storing the logits of a whole batch, and a search can pack the weight once. `start`
and `step` have one interface, so `regard.decoding` searches with both kinds of models. A custom model is a
subclass of one of these classes. `regard train TASK --model module:Class` trains it (docs/how-to/extend.md).

Letters: B sources or prompts, K hypotheses of each (1 for greedy search), T input steps, To output steps, D
width, V vocabulary. The hypotheses of a source share its memory, so a beam search does not copy the memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.arguments import public
from regard.attention.mechanism import Mechanism, list_parts
from regard.attention.multihead import KeyValues
from regard.attention.parts import Part, Slot
from regard.attention.positions import Concatenated, LearnedPositions, Positions, Rotary
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
            raise InputError(f"hidden {hidden} cannot be split into {heads} heads: choose a multiple of {heads}{hint}")

    def check_even(self, hidden: int, head_width: int) -> None:
        """Raise `InputError` for an odd width with rotary or concatenated positions."""
        if self.embedding_positions == "rotary" and head_width % 2:
            raise InputError(
                f"head width {head_width} is odd, but rotary positions rotate pairs of dimensions: choose an even width"
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


REPLACED: dict[Slot, str] = {"score": "score", "linear": "score", "position": "positions", "sharing": "key_value_heads"}
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
        positions = self.input_positions
        return positions.weight.detach() if isinstance(positions, LearnedPositions) else None


def positions_of_input(positions: Any, layers: nn.Module) -> Positions | Rotary | None:
    """Return the positions of an input: those of its embedding, or the first rotary positions in its layers."""
    if isinstance(positions, Concatenated):
        return positions.positions
    return positions or next((module for module in layers.modules() if isinstance(module, Rotary)), None)


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
        """Return a function that computes loss and gradients without autograd, or None if there is none."""
        return None


class State(Protocol):
    """Immutable state between two decoding steps, for B sources with K hypotheses each."""

    def choose(self, hypotheses: Tensor) -> "State":
        """Select hypotheses of each source by their indices (B, K') int64."""

    def keep(self, sources: Tensor) -> "State":
        """Select sources by their indices (B',) int64."""


@public
class Seq2Seq(AutoregressiveModel):
    """Base class of all sequence-to-sequence models.

    The constructor takes an instance of `config_class` and properties of the task as keywords: the vocabulary
    sizes `source_symbols` and `target_symbols`, the largest number of steps (`longest`), and whether source and
    target share a vocabulary (`shared`).
    """

    answers = "text"

    def forward(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor:
        """Return logits (B, Tt, V) for sources (B, Ts) with mask (B, Ts) and target_in (B, Tt)."""
        return self.decode(target_in, self.encode(source, source_mask))

    def encode(self, source: Tensor, source_mask: Tensor) -> Any:
        """Return the memory of sources (B, Ts), with `source_mask` (B, Ts) True before the end."""
        raise NotImplementedError

    def decode(self, target_in: Tensor, memory: Any) -> Tensor:
        """Return logits (B, Tt, V). Step t depends on steps 0 to t of target_in (B, Tt)."""
        return self.logits(self.read(target_in, memory))

    def read(self, target_in: Tensor, memory: Any, forced: Tensor | None = None) -> Tensor:
        """Return the states (B, Tt, D) of all steps: the inputs of the vocabulary layer.

        `forced` (B, Tt) bool: where False, the input of the step is the model's last prediction instead of
        target_in (scheduled sampling, Bengio et al. 2015, with the most likely token). The input of the first
        step is always target_in.
        """
        raise NotImplementedError

    def start(self, memory: Any) -> State:
        """Return the state before the first step, with one hypothesis per source."""
        raise NotImplementedError

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, State]:
        """Append one token (B, K) to each hypothesis. Returns inputs of the vocabulary layer (B, K, D) and the
        next state.

        Implementations must pass `step` to attention layers: the target step, counted from 0. Without `step`, a
        record cannot detect that a call continues a sequence.
        """
        raise NotImplementedError


class CacheState(NamedTuple):
    """State between two steps: the KV cache of B prompts or sources with K hypotheses each."""

    past: tuple[KeyValues, ...]
    """For each layer, keys (B K, G, T, d) and values (B K, G, T, d) of all steps so far."""
    prompts: int
    """Number of prompts or sources, B."""
    memory: Any = None
    """What the decoder attends to, with a method `keep`; None for a language model."""

    @property
    def time(self) -> int:
        return self.past[0].keys.shape[2]

    def choose(self, hypotheses: Tensor) -> "CacheState":
        """Select hypotheses of each prompt by their indices (B, K') int64."""
        begin = torch.arange(self.prompts, device=hypotheses.device).unsqueeze(1) * self._hypotheses
        return self._replace(past=take_rows(self.past, (begin + hypotheses).flatten()))

    def keep(self, sources: Tensor) -> "CacheState":
        """Select prompts by their indices (B',) int64."""
        count = self._hypotheses
        rows = (sources.unsqueeze(1) * count + torch.arange(count, device=sources.device)).flatten()
        memory = None if self.memory is None else self.memory.keep(sources)
        return CacheState(take_rows(self.past, rows), len(sources), memory)

    @property
    def _hypotheses(self) -> int:
        return len(self.past[0].keys) // self.prompts


def take_rows(layers: tuple[KeyValues, ...], rows: Tensor) -> tuple[KeyValues, ...]:
    # Indexing by `keys[rows]` takes five times as long.
    return tuple(layer.map(lambda states: states.index_select(0, rows)) for layer in layers)


@public
class LanguageModel(AutoregressiveModel):
    """Base class of all language models.

    The constructor takes an instance of `config_class` and properties of the task as keywords: the number of
    `symbols` (outputs of the last layer), the largest number of steps (`longest`), and the width of real-valued
    inputs (`input_width`; 0 for tokens).
    """

    answers = "tokens"

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits (B, T, V) of tokens (B, T) int64, or of real-valued inputs (B, T, W); see `read`."""
        return self.logits(self.read(tokens, mask))

    def read(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the states (B, T, D) of all steps, which are the inputs of the vocabulary layer.

        `mask` is (B, T) bool, True before the end of a sequence. Padding is on the right.
        """
        raise NotImplementedError

    def start(self, prompt: Tensor) -> tuple[Tensor, State]:
        """Return the states (B, 1, D) of the last position of prompts (B, T), and the state after the prompts.

        All prompts of a batch have the same length.
        """
        raise NotImplementedError

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, State]:
        """Feed one token (B, K) to each hypothesis, and return inputs (B, K, D) of the vocabulary layer and the
        next state."""
        raise NotImplementedError
