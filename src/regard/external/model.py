"""A model that was not built here, as a subject: to be looked at, touched and asked as every run is.

subject = regard.look("folder")                 # as save_pretrained writes it
subject = regard.look(model, tokenizer)         # of Hugging Face's
subject = regard.look(module, function)         # one's own, with what makes tensors of an input
subject.attend("The cat sat").save("cat.html")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from regard import interpret
from regard.attention import Records
from regard.attention.interventions import To
from regard.errors import InputError, begun, check_range
from regard.external.asked import Asked, all_asked, check_given, find_asked, name_of, pair_of
from regard.external.comparing import Beside, beside
from regard.external.families import Answer, Family, Fed, called, states_of
from regard.external.intervening import intervene
from regard.external.naming import layers_and_left_out, layers_of_input, named_layer
from regard.external.pictures import Pictures
from regard.external.pruned import ForeignPruned, count_of, prune_model
from regard.external.readers import OwnReader
from regard.external.recording import record
from regard.external.removing import removable_heads, remove_heads
from regard.external.texts import Texts
from regard.external.trials import trial_of
from regard.external.untrained import untrained_model
from regard.external.wrappers import device_of
from regard.viz import AttentionMap, Layer, Playback, Trial
from regard.viz.intervened import with_original

if TYPE_CHECKING:
    from regard.interpret import Examination, HeadImportance, HeadRoles
    from regard.viz.widget import AttentionWidget

IMPORTANCE = 50
"""Inputs that importance is asked over, at most, where nothing else is said."""
MOST = 100_000
"""Tokens that a model is asked to write, at most."""
WORDS = "The cat sat on the mat"
"""What a model of texts is tried on, to see which layers it has."""


@dataclass(frozen=True, kw_only=True, repr=False)
class ForeignModel:
    """A model that was not built here. It satisfies `regard.viz.Subject`."""

    model: nn.Module
    family: Family
    """How it is fed, what it answers, and what its loss is."""
    name: str
    where: str
    inputs: tuple[Asked, ...] = ()
    """Those that it is asked over, where no others are given."""
    at: str | None = None
    """Modules through which weights pass that nothing else sees."""
    generate: int = 0
    """Tokens that it writes at most, where it writes any; 0: one, or as many as an answer has."""
    fed: tuple[Fed, ...] | None = None
    """Its inputs with what it answered, where that is of the model before something was taken out of it."""

    @property
    def importance_samples(self) -> int:
        """Inputs that importance is asked over, at most."""
        return IMPORTANCE

    @property
    def measure(self) -> str:
        """What `loss` returns, for people."""
        return "loss against its own answers" if self.family.own_answers(self.inputs) else self.family.measure

    @property
    def unanswered(self) -> Sequence[str]:
        """What nothing can be said of, a sentence each."""
        known = "Which inputs an answer depends on is not known: no share of attention on them is told."
        right = (
            "Whether its answers are right is not known: the loss is that of what it answers untouched, so a"
            " head's importance is how much of that rests on it."
        )
        more = (right, known) if self.family.own_answers(self.inputs) else (known,)
        return (*self.family.unanswered, *more)

    @property
    def tokenizer(self) -> Any:
        """That of its texts; None where it reads none."""
        texts = getattr(self.family, "texts", None) or getattr(self.family, "inputs", None)
        return texts.tokenizer if isinstance(texts, Texts) else None

    @property
    def layers(self) -> Sequence[Layer]:
        """Its attention layers, in the order in which they run; all calls of one are one layer."""
        return self._once[0]

    @property
    def left_out(self) -> str:
        """One line that names the layers that are not recorded; empty where all are, or no input is known."""
        return "" if isinstance(self.family, OwnReader) and not self.inputs else self._once[1]

    @cached_property
    def _once(self) -> tuple[Sequence[Layer], str]:
        return layers_and_left_out(self.model, self._tried(), self.at)

    def _tried(self) -> Any:
        """Return what it is called with to see what it does."""
        if self.inputs:
            return self.family.plain(self.model, self.family.feed(self.model, self.inputs[0]))
        if isinstance(self.family, OwnReader):
            raise InputError("no input is known that the function takes: give look() inputs=[...]")
        pictures = self.pictures
        given = WORDS if pictures is None else torch.zeros(1, 3, pictures.height, pictures.width)
        return self.family.plain(self.model, self.family.feed(self.model, Asked(given)))

    def about(self) -> dict[str, Any]:
        """Return what a page says of it."""
        return {
            "task": self.name,
            "summary": "; ".join(filter(None, (self.family.summary, self.left_out))),
            "kind": type(self.model).__name__,
            "step": None,
            "draws": bool(self.inputs),
            "snapshots": False,
            "accepts": self.family.accepts if self.pictures is None else "a picture, PNG or JPEG",
            "pictures": self.pictures is not None,
            "examined": {},
        }

    def __str__(self) -> str:
        kind = type(self.model).__name__
        return f"{self.name}: {kind}, {count_of(self.model):,} parameters, {self.family.summary}"

    def __repr__(self) -> str:
        return f"<ForeignModel: {self}>"

    def recording(self, layers: Sequence[str] | None = None) -> AbstractContextManager[Records]:
        """Record some layers of the model, or all, while a block runs."""
        return record(self.model, layers=layers, at=self.at, tokenizer=self.tokenizer)

    def touching(
        self,
        layer: str,
        *,
        heads: Sequence[int] | None = None,
        to: To | float = "off",
        query: int | None = None,
        key: int | None = None,
    ) -> AbstractContextManager[None]:
        """Change what some heads of a layer attend to while a block runs; see `regard.intervene`."""
        return intervene(self.model, layer, heads=heads, to=to, query=query, key=key, at=self.at)

    @property
    def removable(self) -> Mapping[str, Sequence[Sequence[int]]]:
        """By layer: which heads go together, of those that can be taken out for good."""
        return removable_heads(self.model, self.layers)

    def keep_heads(self, layer: str, heads: Sequence[int]) -> None:
        """Leave only some heads in a layer, for good."""
        tried = self._tried()
        with torch.no_grad():
            remove_heads(self.model, self.layers, layer, heads, lambda: states_of(called(self.model, tried)))
        self.__dict__.pop("_once", None)

    def weighing(self, shown: str | None) -> ForeignModel:
        """Return itself where it has inputs of its own, or else one that has what is shown."""
        return self if self.inputs or shown is None else self.over([shown])

    def over(self, inputs: Iterable[Any]) -> ForeignModel:
        """Return the same subject, asked over these inputs: texts, pairs of source and target, or pictures."""
        given = all_asked(inputs)
        if not given:
            raise InputError("no inputs are given: give one or more texts")
        return dataclasses.replace(self, inputs=given)

    def called(self, classes: Sequence[int]) -> list[str]:
        """Return what some of the classes that it answers with are called."""
        tokenizer = self.tokenizer
        return [str(each) for each in classes] if tokenizer is None else Texts(tokenizer).labels(list(classes))

    def draw(self, *, seed: int = 0) -> str:
        """Return one of its inputs, or where that is no text, what it is called; raises `InputError` where it has
        none."""
        if not self.inputs:
            raise InputError(
                f"{self.name} has no inputs to draw from: {'choose' if self.pictures else 'type'} one"
            )
        return name_of(self.inputs, seed % len(self.inputs))

    @property
    def pictures(self) -> Pictures | None:
        """How it is given pictures; None where it reads something else."""
        found = getattr(self.family, "inputs", None)
        return found if isinstance(found, Pictures) else None

    def put_picture(self, name: str, content: bytes) -> None:
        """Take a picture, PNG or JPEG, as an input under a name; raises `InputError` for what it cannot see."""
        if self.pictures is None:
            raise InputError(f"{self.name} sees no pictures: type {self.family.accepts}")
        self.pictures.put(name, content)

    def check(self, input: str) -> None:
        """Raise `InputError` where an input cannot be answered, or is a file that was not given."""
        asked = find_asked(self.inputs, input)
        check_given(asked, self.pictures)
        texts = getattr(self.family, "texts", None)
        if texts is not None:
            texts.tensors(self.model, asked.given)

    @torch.no_grad()
    def attend(
        self, input: Any = None, *, target: str | None = None, generate: int | None = None, seed: int = 0
    ) -> AttentionMap:
        """Answer an input, or one of its own by `seed`, and keep what each layer attended to.

        `target`: what is written, given the input as its source; `generate`: tokens that are written at most.
        Every token that was written has its row, over all that was there before it. With an intervention in
        force, the map names it and has what is answered without it, in `original`. Raises `InputError` for an
        input that the model cannot take.
        """
        asked = find_asked(self.inputs, self.draw(seed=seed) if input is None else input)
        asked = asked if target is None else pair_of(asked.given, target)
        count = self.generate if generate is None else generate
        check_range("generate", count, 0, MOST)
        answer = partial(self.family.answer, self.model, asked, count)
        return with_original(self.model, self.where, lambda: self._map(answer()))

    def _map(self, answer: Answer) -> AttentionMap:
        layers = layers_of_input(self.model, answer.fed, self.tokenizer, self.at)
        asked = answer.fed.asked
        named = {name: named_layer(layer, self.family, self.model, asked) for name, layer in layers.items()}
        pictures, given = self.pictures, answer.fed.given
        pixels = pictures.shown(given["pixel_values"]) if pictures and isinstance(given, dict) else None
        return AttentionMap(
            task=self.name,
            input=asked.text,
            prediction=answer.prediction,
            truth=answer.truth,
            layers=named,
            outputs=list(answer.outputs),
            probabilities=list(answer.probabilities),
            pixels=pixels,
        )

    def playback(self, input: str | None = None, *, seed: int = 0) -> Playback:
        """Raise `InputError`: how its attention formed was not kept."""
        raise InputError(f"{self.name} was not trained here: how its attention formed was not kept")

    @torch.no_grad()
    def unseen(self, samples: int, seed: int, *, purpose: str = "examine") -> Sequence[Any]:
        """Return at most so many of its inputs, with what they are to be answered with.

        Raises `InputError` where it has none.
        """
        del seed, purpose
        if not self.inputs:
            raise InputError(f"{self.name} has no inputs to be asked over: give texts (--texts FILE)")
        return self.fed or [self.family.feed(self.model, each) for each in self.inputs[:samples]]

    @torch.no_grad()
    def look(self, input: Fed) -> AttentionMap:
        """Return what it attends to in one of its inputs, given its target where it has one."""
        return self._map(Answer(dataclasses.replace(input, given=self.family.plain(self.model, input))))

    def untrained(self, seed: int) -> ForeignModel:
        """Return the same subject before training: with initial parameters, or else its own in another order."""
        model = untrained_model(self.model, seed)
        return dataclasses.replace(self, model=model.to(device_of(self.model)).eval())

    @torch.no_grad()
    def loss(self, inputs: Sequence[Fed]) -> float:
        """Return the mean cross-entropy of all outputs of some inputs, in nats, or what `measure` says."""
        total, count = self.losses(inputs).sum(0)
        return float(total / max(count, 1))

    @torch.no_grad()
    def losses(self, inputs: Sequence[Fed]) -> np.ndarray:
        """Return (N, 2), of each input: the sum of what `measure` says over its outputs, and their number."""
        return np.array([self.family.loss(self.model, each) for each in inputs], dtype=np.float64)

    def trial(self, input: Fed) -> Trial | None:
        """Return an input ready to be probed; None for a model without outputs step by step."""
        return trial_of(self.model, self.family, self.layers, input)

    def alignment_error(self, inputs: Sequence[Fed]) -> dict[str, float]:
        """Return nothing: no alignment is known."""
        del inputs
        return {}

    def importance(self, texts: Iterable[Any] | None = None) -> HeadImportance:
        """Return by how much the loss of some inputs rises when each head is off (None: its own inputs).

        The loss is the model's own: of each next token, of masked tokens, of targets given sources; or that of
        what it answers itself, where no truth is known. See `measure`. Raises `InputError` without inputs.
        """
        subject = self if texts is None else self.over(texts)
        return interpret.head_importance(subject, samples=max(len(subject.inputs), 1))

    def examine(self, texts: Iterable[Any] | None = None, *, seed: int = 0) -> Examination:
        """Ask what the attention to some inputs means, two or more (None: its own).

        What cannot be asked of such a model is said in `unanswered`. Raises `InputError` without inputs.
        """
        subject = self if texts is None else self.over(texts)
        found = interpret.examine(subject, samples=max(len(subject.inputs), 2), seed=seed)
        own = isinstance(self.family, OwnReader)
        return dataclasses.replace(found, over="inputs" if own else "pictures" if self.pictures else "texts")

    def roles(self, texts: Iterable[Any] | None = None, *, seed: int = 0) -> HeadRoles:
        """Describe what each head does, over ten inputs or more (None: its own)."""
        subject = self if texts is None else self.over(texts)
        return interpret.head_roles(subject, samples=max(len(subject.inputs), 10), seed=seed)

    def prune(
        self, heads: int, output: str | Path, *, texts: Iterable[Any] | None = None, overwrite: bool = False
    ) -> ForeignPruned:
        """Take the `heads` least important heads out of a copy of the model, and save what is left in a folder
        that transformers loads; `texts`: what importance is asked over (None: its own inputs).

        Heads that share their keys go together, and count as one. Where the config cannot say how many heads each
        layer has, the folder brings code that builds it: transformers wants `trust_remote_code`, `look` does not.
        Raises `InputError` where there are not so many to take away, or the folder is there already.
        """
        whole = self if texts is None else self.over(texts)
        return prune_model(whole, heads, Path(output), samples=IMPORTANCE, overwrite=overwrite)

    def beside(self, other: ForeignModel, texts: Iterable[Any]) -> Beside:
        """Return two models over the same inputs; raises `InputError` where they do not measure the same."""
        if not isinstance(other, ForeignModel):
            raise InputError(f"{begun(str(other))} is no model to stand beside: give what look() returns")
        one = self.over(texts)
        return beside(one, other.over(one.inputs), one.inputs)

    def view(self, input: Any = None, **options: Any) -> AttentionWidget:
        """Return a widget for a notebook that shows an input; `options` as in `attend`."""
        return self.attend(input, **options).view()
