"""The interface of models that can be examined: runs of any kind, and external models with a tokenizer.

The explorer, head importance, head pruning, all examinations and the pages use only this interface.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from torch import Tensor, nn

from regard.attention.names import find_name
from regard.errors import InputError, shorten, unknown_choice
from regard.statistics import Interval
from regard.viz.maps import CROSS, LayerKind

if TYPE_CHECKING:
    from regard.activations.components import Components
    from regard.decoding.search_tree import SearchTree
    from regard.viz.attention_map import AttentionMap, Playback

Input = TypeVar("Input")
LISTED_LAYERS = 3  # layers that an error lists


class Layer(NamedTuple):
    """One attention layer of a model."""

    name: str  # as in records and interventions
    kind: LayerKind
    heads: int


class ProbeInput(NamedTuple):
    """One input that can be run repeatedly with a modified embedding."""

    run: Callable[[int], Tensor]  # feeds N copies of the input to the model and returns logits (N, Tq, classes)
    embedding: nn.Module  # the module whose first output in a run, (N, Tk, D), is the embedding of the input
    layers: Sequence[str]  # names of the layers in which outputs attend to inputs
    relevant: np.ndarray | None  # (Tq, Tk) bool: the inputs on which each output depends; None if unknown
    causal: bool = False  # whether each output attends to the inputs up to its own position only
    tokens: Tensor | None = None  # (Tk,) int64, of the source if there is one; None for other inputs
    # maps tokens (N, Tk) to logits (N, Tq, classes); the same function for inputs that can share a batch
    run_tokens: Callable[[Tensor], Tensor] | None = None
    alphabet: Sequence[int] = ()  # tokens that may replace a token; empty if they are not known
    steps: Sequence[int] | None = None  # output steps that are part of the answer; None: all
    keys_before: bool = False  # whether additional keys, such as a class token, are before those of the input
    loss: ProbeInput | None = None  # the same input with the user's loss (N, 1, 1) as the output

    def __repr__(self) -> str:
        return f"<ProbeInput: of {', '.join(self.layers) or 'no layer'}>"


class Patchable(NamedTuple):
    """Forward passes of a model on one input, for patching."""

    # maps what a user passes as an input, and perhaps the clean input, whose answer a model reads that generates
    # its answers, to an input for `outputs` and `trial`
    prepare: Callable[..., Any]
    outputs: Callable[[Any], Tensor]  # maps an input to logits (T, C), or to a custom model's first tensor (T, ...)
    answer_class: Callable[..., int]  # maps a text and the number of classes to the class of its first token
    calling_hooks: Callable[[], AbstractContextManager[None]]  # inside the block, all modules call their hooks
    # maps an input to logits (T, C), or with loss=True to the user's loss (1, 1) if there is one; None: `outputs`
    logits: Callable[..., Tensor] | None = None


class ScoreCall(NamedTuple):
    """One call of an attention layer for one input. Query, key and value are connected to the autograd graph.

    score = factors * (query · key) + sum of the additions
    """

    query: Tensor
    """(H, Tq, D), after rotary positions and norms of queries."""
    key: Tensor
    """(G, Tk, D), as multiplied with the queries. H is a multiple of G."""
    value: Tensor
    """(G', Tk, Dv). H is a multiple of G'."""
    weights: Tensor
    """(H, Tq, Tk)."""
    scores: Tensor
    """(H, Tq, Tk), before the mask."""
    factors: Tensor
    """Broadcastable to (H, Tq, Tk)."""
    additions: Mapping[str, Tensor]
    """By name: what is added to the scores, such as a position bias, broadcastable to (H, Tq, Tk)."""
    mask: Tensor | None
    """Broadcastable to (H, Tq, Tk), True = may be attended; None if there is no mask."""
    remarks: tuple[str, ...] = ()
    """What is fixed at its value in this pass, one phrase each."""
    refusal: str = ""
    """Why the scores are not a sum of products of query and key; empty if they are."""


Calls = Mapping[str, list[ScoreCall]]
"""The calls of each attention layer, by short name."""


class ForwardPass(NamedTuple):
    """The forward pass that an attention map shows, which can be run again."""

    run: Callable[[], Any]
    """Runs the pass."""
    record: Callable[[], AbstractContextManager[Calls]]
    """Records the calls of all attention layers inside a block."""
    embeddings: frozenset[nn.Module]
    """The modules that embed tokens."""


@runtime_checkable
class GeneratesSequences(Protocol):
    """A subject that generates its answer token by token and can show its search."""

    def tree(self, input: str | None = None, *, beam: int | None = None, seed: int = 0) -> SearchTree:
        """Return the search tree of an input, or of an input drawn with `seed`."""

    def attend_tokens(self, input: str, tokens: list[int]) -> AttentionMap:
        """Return the attention while the model answers `input` with tokens from its search tree."""


@runtime_checkable
class AcceptsImages(Protocol):
    """A subject whose inputs may be images."""

    def add_image(self, name: str, content: bytes) -> None:
        """Register an image, the bytes of a PNG or JPEG file, as an input with a name.

        Raises `InputError` if the model cannot process the image.
        """


class Traits(NamedTuple):
    """What tables and sentences say about the measurements of a subject."""

    measure: str = "loss"
    """Name of the value that `losses` returns: "loss" if the correct answers are known."""
    samples: int = 1000
    """Default number of unseen inputs for head importance."""
    origin: str = "run"
    """How the model was given; error rates of sentences are measured for runs only."""
    unanswered: Sequence[str] = ()
    """A sentence for each examination that is not possible, for example without correct answers."""


class Subject(Protocol[Input]):
    """A model that can be examined. `Input` is the type of the model's inputs."""

    @property
    def name(self) -> str:
        """The name of the model."""

    @property
    def model(self) -> nn.Module:
        """The module itself, which can be recorded and changed."""

    @property
    def layers(self) -> Sequence[Layer]:
        """The attention layers in the order of the forward pass; empty for a model without attention."""

    @property
    def traits(self) -> Traits:
        """What tables and sentences say about the measurements."""

    def unseen(self, samples: int, seed: int, *, purpose: str = "examine") -> Sequence[Input]:
        """Return up to `samples` inputs not used in training; random inputs differ for each `purpose`.

        Raises `InputError` if the subject has no such inputs.
        """

    def prepare(self, input: Any) -> Input:
        """Return an input as `unseen` does.

        `input`: a text, or an input of `unseen`, which is returned unchanged. If a model generates its answers,
        the answer is the one that the model generates. Raises `InputError` for an input that the model rejects.
        """

    def look(self, input: Input) -> AttentionMap:
        """Return the attention map of an input of `unseen`; a generated answer is forced to the correct one."""

    def losses(self, inputs: Sequence[Input]) -> np.ndarray:
        """Return (N, 2): for each input, the sum of the loss over its outputs, and the number of outputs.

        The loss is the cross-entropy in nats, or the value that `traits.measure` names.
        """

    def called(self, classes: Sequence[int]) -> list[str]:
        """Return the names of answer classes."""

    @property
    def components(self) -> Components:
        """The heads and feed-forward layers of the model, for explanation methods."""

    @property
    def patchable(self) -> Patchable:
        """Forward passes on one input, for patching."""

    def trial(self, input: Input) -> ProbeInput:
        """Return an input for probing; raises `InputError` if the model does not support probing."""


class LearnedSubject(Subject[Input], Protocol[Input]):
    """A subject that can be compared with models of the same form before training."""

    def untrained(self, seed: int) -> Subject[Input]:
        """Return the same subject with initial parameters drawn with `seed`."""


class ViewedSubject(LearnedSubject[Input], Protocol[Input]):
    """A subject that pages can show."""

    @property
    def where(self) -> str:
        """The path or address of the model, for display."""

    def attend(self, input: str | None = None, *, seed: int = 0) -> AttentionMap:
        """Answer an input, or an input drawn with `seed`, and record the attention of each layer."""

    def forward_pass(self, input: str) -> ForwardPass:
        """Return the forward pass whose attention `attend` shows; raises `InputError` for a rejected input."""

    def about(self) -> dict[str, Any]:
        """Return the facts on a page: task, summary, kind, step, whether inputs can be drawn, snapshots.

        Optional facts are the accepted inputs, and results by layer and head.
        """

    def draw(self, *, seed: int = 0) -> str:
        """Return a random input; raises `InputError` if the model has no input generator."""


class PrunableSubject(Subject[Input], Protocol[Input]):
    """A subject whose heads can be removed permanently."""

    @property
    def removable(self) -> Mapping[str, Sequence[Sequence[int]]]:
        """Groups of heads that can be pruned together, by layer."""

    def keep_heads(self, layer: str, heads: Sequence[int]) -> None:
        """Prune all heads of a layer except `heads`."""


@runtime_checkable
class HasSnapshots(Protocol):
    """A subject with snapshots of its training."""

    def playback(self, input: str | None = None, *, seed: int = 0) -> Playback:
        """Return attention maps of one input at each snapshot; raises `InputError` without snapshots."""


@runtime_checkable
class NeedsInputs(Protocol):
    """A subject without unseen inputs, which examinations need."""

    def over(self, inputs: Any) -> Any:
        """Return a copy of the subject with some inputs: texts, pairs or images."""

    def with_inputs(self, labels: Sequence[str]) -> Any:
        """Return a copy with the inputs of some labels; raises `InputError` if the model rejects one."""


@runtime_checkable
class KnowsAlignment(Protocol):
    """A subject whose true alignment of outputs and inputs is known."""

    def alignment_error(self, inputs: Sequence[Any]) -> dict[str, Interval]:
        """Return the alignment error rate (0 to 1) of each layer with its interval over the inputs."""


def match_layers(layers: Sequence[Layer], others: Sequence[Layer]) -> Mapping[str, str]:
    """Match the layers of two models for comparison: return the other model's layer by the name of each layer.

    Layers match by name. If the models share no layer name, layers match by position within each kind that has the same
    number of layers in both models. `layerBeside` in scene.js matches them so for pages.

    >>> match_layers([Layer("first", "cross", 2)], [Layer("other", "cross", 4)])
    {'first': 'other'}
    """
    names = {layer.name for layer in others}
    if shared := {layer.name: layer.name for layer in layers if layer.name in names}:
        return shared
    matches: dict[str, str] = {}
    for kind in ("encoder", "decoder", "cross"):
        first, second = ([layer.name for layer in model if layer.kind == kind] for model in (layers, others))
        if len(first) == len(second):
            matches |= dict(zip(first, second, strict=True))
    return matches


def first_layer(subject: Subject[Any]) -> str:
    """Return the first layer in which outputs attend to inputs, or, without such a layer, the first layer.

    Raises `InputError` for a model without attention.
    """
    if not subject.layers:
        raise InputError("the model has no attention to explain: train a model with attention")
    return next((layer.name for layer in subject.layers if layer.kind == CROSS), subject.layers[0].name)


def layer_named(text: str, names: Sequence[str]) -> str:
    """Return the layer whose number, name or full module name is `text`; raises `InputError` if unknown.

    >>> layer_named("1", ["encoder.0", "encoder.1"])
    'encoder.1'
    """
    if text.isdecimal() and int(text) < len(names):
        return names[int(text)]
    if (name := find_name(text, names)) is not None:
        return name
    raise unknown_choice("layers", text, names, other=f"0 to {len(names) - 1}")


def check_comparable(subject: Subject[Any], others: Sequence[Subject[Any]]) -> None:
    """Raise `InputError` for a model in `others` without layers that match a layer of `subject`."""
    for other in others:
        if not match_layers(subject.layers, other.layers):
            raise InputError(
                f"{other.name} has {_describe(other.layers)}, {subject.name} has {_describe(subject.layers)}: "
                f"neither the names of layers nor their numbers of any kind match; choose a model with "
                f"matching layers"
            )


def _describe(layers: Sequence[Layer]) -> str:
    names = [layer.name for layer in layers[:LISTED_LAYERS]] + (["…"] if len(layers) > LISTED_LAYERS else [])
    return f"{len(layers)} layers ({', '.join(names)})" if layers else "no attention layers"


def check_subject(subject: object) -> None:
    """Raise `InputError` for a value that is not a subject."""
    if not hasattr(subject, "patchable"):
        raise InputError(f"{shorten(str(subject))} is not a model: pass a run, or a result of look()")
