"""A trained run: its config, its task, its model and its metrics, as a subject to be looked at and asked."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self

from regard import interpret
from regard.attention import (
    MultiHeadAttention,
    find_layer,
    intervene,
    keep_heads,
    layers_of,
    short_name,
)
from regard.attention.recording import record_own
from regard.result import Result, plain
from regard.training import ModelPart, RunFolder, TaskPart, TrainingPart, build_model
from regard.viz import Layer, kind_of

if TYPE_CHECKING:
    import numpy as np

    from regard.attention import (
        Record,
    )
    from regard.attention.intervening import To
    from regard.interpret import (
        Examination,
        Explanation,
        HeadImportance,
        HeadRoles,
        HeadSamples,
    )
    from regard.models import TaskModel
    from regard.tasks import AnyTask
    from regard.training import RunConfig
    from regard.viz import AttentionMap, Playback, Trial
    from regard.viz.widget import AttentionWidget


@dataclass(frozen=True, kw_only=True, repr=False)
class Figures(Result):
    """What a comparison wants to know of a run; None where it has no such thing."""

    exact_match: float
    """Share (0 to 1) of inputs that are answered without any error."""
    relevance: float | None = None
    """Share (0 to 1) of the attention on relevant inputs, of the best head."""
    uniform: float | None = None
    """The same of uniform attention."""
    alignment_error: float | None = None
    bleu: float | None = None
    """BLEU, without regard to case for a model of lower case."""
    bleu_tokenizer: str | None = None
    """sacrebleu's tokenizer that it was worked out with."""

    def summary(self) -> str:
        """Say how many answers are right."""
        return f"exact match {self.exact_match:.2%}"


@dataclass(frozen=True, repr=False)
class Run(ABC, Generic[TaskPart, ModelPart, TrainingPart]):
    """What `regard.train` and `regard.load` return, as one of three kinds: `AnswerRun`, `PairRun`,
    `TranslationRun`. It satisfies `regard.viz.Subject`."""

    folder: Path
    config: RunConfig[TaskPart, ModelPart, TrainingPart]
    step: int
    """Training steps behind the model."""
    task: AnyTask
    model: TaskModel
    trust_edited: bool = False
    """Whether its files are read also where they were edited."""

    drawn_by: ClassVar[tuple[str, ...]] = ()
    """What can be said of an input that is drawn, besides the seed."""

    @property
    def importance_samples(self) -> int:
        """Unseen inputs that importance is asked over, where nothing else is said."""
        return 1000

    @property
    def name(self) -> str:
        """The task's name."""
        return self.task.name

    @property
    def where(self) -> str:
        """The run's folder, for people."""
        return str(self.folder)

    @property
    def layers(self) -> Sequence[Layer]:
        """The model's attention layers, by their short names."""
        found = {short_name(name): layer for name, layer in layers_of(self.model).items()}
        return [Layer(name, kind_of(name), layer.heads) for name, layer in found.items()]

    @property
    def measure(self) -> str:
        """What `loss` returns, for people."""
        return "loss"

    @property
    def unanswered(self) -> Sequence[str]:
        """What nothing can be said of."""
        return ()

    def recording(self, layers: Sequence[str] | None = None) -> AbstractContextManager[Mapping[str, Record]]:
        """Record some layers of the model, or all, while a block runs."""
        return record_own(self.model, layers=layers)

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
        find_layer(self.model, layer)
        return intervene(self.model, layer, heads=heads, to=to, query=query, key=key)

    @property
    def removable(self) -> Mapping[str, Sequence[Sequence[int]]]:
        """By layer: the heads that can be taken out, one by one."""
        return {
            short_name(name): [[head] for head in range(layer.heads)]
            for name, layer in self.model.named_modules()
            if isinstance(layer, MultiHeadAttention) and layer.groups == layer.heads
        }

    def keep_heads(self, layer: str, heads: Sequence[int]) -> None:
        """Leave only some heads in a layer, for good."""
        keep_heads(find_layer(self.model, layer), heads)

    def weighing(self, shown: str | None) -> Self:
        """Return itself: it has unseen inputs of its own."""
        del shown
        return self

    @property
    def has_snapshots(self) -> bool:
        """Whether there is something to play back."""
        return bool(self.files.snapshots)

    @property
    def files(self) -> RunFolder:
        """Its files, as it was loaded from them."""
        return RunFolder(self.folder, self.trust_edited)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """Loss and exact match of the training batch, every 10 steps, as in metrics.jsonl."""
        return self.files.read_metrics()

    @property
    def parameters(self) -> int:
        """Numbers that training learned."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def about(self) -> dict[str, Any]:
        """Return what a page says of the run."""
        kept = interpret.load_examination(self.files)
        return {
            "task": self.task.name,
            "summary": self.task.summary,
            "kind": self.config.kind,
            "step": self.step,
            "origin": self.config.origin and self.config.origin.run,
            "draws": self.draws,
            "snapshots": self.has_snapshots,
            "accepts": self.task.accepts,
            "examined": kept.sentences,
            "importance": kept.worth or None,
            "roles": kept.roles,
        }

    @property
    def draws(self) -> bool:
        """Whether there are inputs to be drawn."""
        return self.task.draws

    def json(self) -> dict[str, Any]:
        """Return what the run is, as plain values: its folder, step, number of parameters and config."""
        told: dict[str, Any] = plain(self.config)
        return {"folder": str(self.folder), "step": self.step, "parameters": self.parameters, "config": told}

    def __str__(self) -> str:
        origin = self.config.origin
        begun = f", begun from {origin.run} at step {origin.step:,}" if origin else ""
        return f"{self.folder}: {self.name}, {self.config.kind} model, {self.step:,} training steps{begun}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"

    def importance(self, *, samples: int | None = None, seed: int = 0) -> HeadImportance:
        """Return by how much the loss rises when each head is off, over unseen inputs (None: as many as is
        usual).

        Raises `InputError` for a model without attention, or where there are no such inputs.
        """
        return interpret.head_importance(self, samples=samples, seed=seed)

    def examine(self, *, samples: int = 200, seed: int = 0) -> Examination:
        """Ask what the attention to the inputs means, over unseen ones: see `regard.interpret.examination`.

        Raises `InputError` for a model without attention, or where there are no such inputs.
        """
        return interpret.examine(self, samples=samples, seed=seed)

    def alignment_error(self, inputs: Sequence[Any]) -> dict[str, float]:
        """Return the alignment error rate of each layer, where the alignment is known."""
        del inputs
        return {}

    def explain(
        self,
        input: str | None = None,
        *,
        layer: str | None = None,
        head: int = 0,
        output: int = 0,
        key: int | None = None,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> Explanation:
        """Return how a head came to its weights for one output step, number by number, and what followed: see
        `regard.interpret.explain`."""
        return interpret.explain(
            self, input, layer=layer, head=head, output=output, key=key, temperature=temperature, seed=seed
        )

    def with_sums(self, shown: AttentionMap) -> AttentionMap:
        """Return a map that this run has answered with, with the sum behind each weight, for a page that tells
        it: see `regard.interpret.with_sums`."""
        return interpret.with_sums(self, shown)

    def view(self, input: str | None = None, *, seed: int = 0) -> AttentionWidget:
        """Return a widget for a notebook that shows an input, or one drawn by `seed`, and how each weight comes
        about. Raises `InputError` where anywidget is not installed."""
        from regard.viz.widget import view

        shown = self.attend(input, seed=seed)

        def explained(**which: Any) -> dict[str, Any]:
            return self.explain(shown.input, **which).json()

        return view([shown], explain=explained)

    @abstractmethod
    def called(self, classes: Sequence[int]) -> list[str]:
        """Return what it calls some of the classes that it answers with."""

    @abstractmethod
    def draw(self, *, seed: int = 0) -> str:
        """Return a drawn input; raises `InputError` where the task draws none."""

    @abstractmethod
    def check(self, input: str) -> None:
        """Raise `InputError` where an input cannot be answered."""

    @abstractmethod
    def attend(self, input: str | None = None, *, seed: int = 0) -> AttentionMap:
        """Answer an input, or one drawn by `seed`, and keep what each layer attended to."""

    @abstractmethod
    def playback(self, input: str | None = None, *, seed: int = 0) -> Playback:
        """Return how attention on one input formed; raises `InputError` where no snapshots were kept."""

    @abstractmethod
    def unseen(self, samples: int, seed: int, *, purpose: str = "examine") -> Sequence[Any]:
        """Return at most so many inputs that training has not seen, drawn apart for each purpose."""

    @abstractmethod
    def look(self, input: Any) -> AttentionMap:
        """Return what it attends to in one of its inputs, given the true answer where it writes one."""

    def untrained(self, seed: int) -> Self:
        """Return the same run with a model before its training, drawn by `seed`."""
        training = dataclasses.replace(self.config.training, seed=seed)
        model = build_model(dataclasses.replace(self.config, training=training), self.task)
        device = next(self.model.parameters()).device
        return dataclasses.replace(self, model=model.to(device).eval())

    def roles(self, *, samples: int = 60, seed: int = 0) -> HeadRoles:
        """Describe what each head does, over unseen inputs: see `regard.interpret.roles`.

        Raises `InputError` for a model without attention, or where there are no such inputs.
        """
        return interpret.head_roles(self, samples=samples, seed=seed)

    def samples(
        self, layer: str, head: int, *, token: str | None = None, wrong_first: bool = False, samples: int = 200
    ) -> HeadSamples:
        """Return unseen inputs that a head weighs most: see `regard.interpret.samples`."""
        return interpret.head_samples(self, layer, head, token=token, wrong_first=wrong_first, samples=samples)

    def loss(self, inputs: Sequence[Any]) -> float:
        """Return the mean cross-entropy of all outputs of some inputs, in nats."""
        total, outputs = self.losses(inputs).sum(0)
        return float(total / outputs)

    @abstractmethod
    def losses(self, inputs: Sequence[Any]) -> np.ndarray:
        """Return (N, 2), of each input: the cross-entropy of all its outputs, in nats, and how many they are."""

    @abstractmethod
    def trial(self, input: Any) -> Trial:
        """Return an input ready to be probed."""

    @abstractmethod
    def figures(self, *, seed: int = 0) -> Figures:
        """Test the run as a comparison does."""
