"""The contract of what is looked at and asked: a run of any kind, or somebody's own model with its tokenizer.

The explorer, the examination, head importance, pruning and the pages know nothing else of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from torch import Tensor, nn

if TYPE_CHECKING:
    from regard.attention import Record
    from regard.decoding import SearchTree
    from regard.viz.attention_map import AttentionMap
    from regard.viz.maps import LayerKind
    from regard.viz.playback import Playback

Input = TypeVar("Input")


class Layer(NamedTuple):
    """One attention layer of a model."""

    name: str
    """As records and interventions call it, without `.layers`."""
    kind: LayerKind
    heads: int


class Trial(NamedTuple):
    """One input, ready to be run again and again with its embedding changed."""

    run: Callable[[int], Tensor]
    """Feeds so many copies of the input to the model: logits (N, Tq, classes)."""
    embedding: nn.Module
    """The module whose first output in a run, (N, Tk, D), is the input's."""
    layers: Sequence[str]
    """Full names of the layers in which outputs attend to inputs."""
    relevant: np.ndarray | None
    """(Tq, Tk) bool, what each output depends on; None where nobody knows."""

    def __repr__(self) -> str:
        return f"<Trial: of {', '.join(self.layers) or 'no layer'}>"


@runtime_checkable
class Writes(Protocol):
    """A subject that writes its answer token by token, and can show how it went about it."""

    def tree(self, input: str | None = None, *, beam: int | None = None, seed: int = 0) -> SearchTree:
        """Return what its search tries while it answers an input, or one drawn by `seed`."""

    def along(self, input: str, tokens: list[int]) -> AttentionMap:
        """Return what it attends to while it answers `input` with tokens that its search has tried."""


@runtime_checkable
class Sees(Protocol):
    """A subject whose inputs may be pictures."""

    def put_picture(self, name: str, content: bytes) -> None:
        """Take a picture, the bytes of a PNG or JPEG file, as an input under a name.

        Raises `InputError` for what it cannot see.
        """


class Subject(Protocol[Input]):
    """What can be looked at and asked. `Input` is one of its inputs, however it has them."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def where(self) -> str:
        """Where it is kept, for people."""

    @property
    def model(self) -> nn.Module:
        """The model itself."""

    @property
    def importance_samples(self) -> int:
        """Unseen inputs that importance is asked over, where nothing else is said."""

    @property
    def measure(self) -> str:
        """What `loss` returns, for people: loss, where it is that of a truth."""

    @property
    def unanswered(self) -> Sequence[str]:
        """What nothing can be said of, a sentence each, for want of a truth or otherwise."""

    @property
    def layers(self) -> Sequence[Layer]:
        """Its attention layers, in the order in which they run; none for a model without attention."""

    def about(self) -> dict[str, Any]:
        """Return what a page says of it: task, summary, kind, step, whether it draws inputs and has snapshots;
        and where there is something to say, what it accepts and what was examined, by layer and head."""

    def called(self, classes: Sequence[int]) -> list[str]:
        """Return what it calls some of the classes that it answers with."""

    def draw(self, *, seed: int = 0) -> str:
        """Return a drawn input; raises `InputError` where it draws none."""

    def check(self, input: str) -> None:
        """Raise `InputError` where an input cannot be answered."""

    def attend(self, input: str | None = None, *, seed: int = 0) -> AttentionMap:
        """Answer an input, or one drawn by `seed`, and keep what each layer attended to."""

    def playback(self, input: str | None = None, *, seed: int = 0) -> Playback:
        """Return how attention on one input formed; raises `InputError` where that was not kept."""

    def recording(self, layers: Sequence[str] | None = None) -> AbstractContextManager[Mapping[str, Record]]:
        """Record some layers of its model, or all, while a block runs."""

    def touching(
        self,
        layer: str,
        *,
        heads: Sequence[int] | None = None,
        to: Literal["off", "uniform"] | float = "off",
        query: int | None = None,
        key: int | None = None,
    ) -> AbstractContextManager[None]:
        """Change what some heads of a layer attend to while a block runs, as `regard.intervene` does.

        Raises `InputError` for a layer that the model has not.
        """

    @property
    def removable(self) -> Mapping[str, Sequence[Sequence[int]]]:
        """By layer: which heads go together, of those that can be taken out for good."""

    def keep_heads(self, layer: str, heads: Sequence[int]) -> None:
        """Leave only some heads in a layer, for good."""

    def weighing(self, shown: str | None) -> Subject[Input]:
        """Return what head importance is asked of while an input is shown: itself, or where it has no unseen
        inputs, the same subject with that one."""

    def unseen(self, samples: int, seed: int, *, purpose: str = "examine") -> Sequence[Input]:
        """Return at most so many inputs that training has not seen, others for each purpose where they are drawn.

        Raises `InputError` where there are none.
        """

    def look(self, input: Input) -> AttentionMap:
        """Return what it attends to in one of its inputs, given the true answer where it writes one."""

    def untrained(self, seed: int) -> Subject[Input]:
        """Return the same subject with the parameters that training would begin with, drawn by `seed`."""

    def loss(self, inputs: Sequence[Input]) -> float:
        """Return the mean cross-entropy of all outputs of some inputs, in nats, or what `measure` says."""

    def losses(self, inputs: Sequence[Input]) -> np.ndarray:
        """Return (N, 2), of each input: the sum of what `loss` is the mean of, and over how many outputs."""

    def trial(self, input: Input) -> Trial | None:
        """Return an input ready to be probed; None where what its outputs depend on cannot be asked."""

    def alignment_error(self, inputs: Sequence[Input]) -> dict[str, float]:
        """Return the alignment error rate (0 to 1) of each layer; nothing where no alignment is known."""
