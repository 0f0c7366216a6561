"""A trained run: its config, task, model and metrics, for inspection and explanation methods."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self

from torch import Tensor

from regard.activations.components import Components, find_components
from regard.arguments import public
from regard.attention.layer import attention_layers, find_layer
from regard.attention.multihead import MultiHeadAttention, keep_heads
from regard.attention.names import short_name
from regard.errors import InputError, unknown_choice
from regard.result import Result, percent, to_plain
from regard.training.building import build_model
from regard.training.checkpoint import load_snapshots
from regard.training.config import ModelPart, RunConfig, TaskPart, changed_config
from regard.training.run_folder import RunFolder
from regard.viz.attention_map import AttentionMap, Playback
from regard.viz.maps import layer_kind
from regard.viz.subject import ForwardPass, Layer, Patchable, ProbeInput, Traits

if TYPE_CHECKING:
    import numpy as np

    from regard.interpret.examination import Examination
    from regard.interpret.explanation import Explanation
    from regard.interpret.importance import HeadImportance
    from regard.interpret.roles import HeadRoles
    from regard.interpret.single_heads import HeadSamples
    from regard.models.base import TaskModel
    from regard.tasks.base import AnyTask
    from regard.viz.widget import AttentionWidget

MOST_POINTS = 300  # Largest number of points of the loss curve of a playback


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Figures(Result):
    """Measurements of a run in a comparison. Measurements that do not apply to the run are None."""

    exact_match: float
    """Fraction (0 to 1) of inputs whose answer is entirely correct."""
    relevance: float | None = None
    """Fraction (0 to 1) of the best head's attention that is on relevant inputs."""
    uniform: float | None = None
    """Fraction (0 to 1) of uniform attention that is on relevant inputs."""
    alignment_error: float | None = None
    bleu: float | None = None
    """BLEU, case-insensitive for a lowercase model."""
    bleu_tokenizer: str | None = None
    """Tokenizer of sacrebleu for `bleu`."""

    def summary(self) -> str:
        return f"exact match {percent(self.exact_match, 2)}"


@public
@dataclass(frozen=True, repr=False)
class Run(ABC, Generic[TaskPart, ModelPart]):
    """Base class of `AnswerRun`, `PairRun`, `TranslationRun` and `LanguageRun`: a `regard.viz.subject.Subject`."""

    folder: Path
    config: RunConfig[TaskPart, ModelPart]
    step: int
    """Number of training steps of the model."""
    task: AnyTask
    model: TaskModel
    trust_edited: bool = False
    """Whether files of the run were edited."""

    drawn_by: ClassVar[tuple[str, ...]] = ()
    """Options for a random input, besides the seed."""

    @property
    def name(self) -> str:
        """Name of the task."""
        return self.task.name

    @property
    def where(self) -> str:
        """Folder of the run, as text."""
        return str(self.folder)

    @property
    def layers(self) -> Sequence[Layer]:
        """Attention layers of the model, by their short names."""
        layers = {short_name(name): layer for name, layer in attention_layers(self.model).items()}
        return [Layer(name, layer_kind(name), layer.heads) for name, layer in layers.items()]

    @property
    def traits(self) -> Traits:
        """What tables and sentences say about the measurements of the run."""
        return Traits()

    @property
    def removable(self) -> Mapping[str, Sequence[Sequence[int]]]:
        """For each layer, the groups of heads that can be removed. Each group is a single head."""
        return {
            short_name(name): [[head] for head in range(layer.heads)]
            for name, layer in self.model.named_modules()
            if isinstance(layer, MultiHeadAttention) and layer.can_prune
        }

    def keep_heads(self, layer: str, heads: Sequence[int]) -> None:
        """Remove all heads of a layer permanently, except for `heads`."""
        keep_heads(find_layer(self.model, layer), heads)

    @property
    def has_snapshots(self) -> bool:
        """Whether `playback` is possible."""
        return bool(self.files.snapshots)

    @property
    def files(self) -> RunFolder:
        """Files of the run."""
        return RunFolder(self.folder, self.trust_edited)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """Loss and exact match of the training batch every 10 steps, as in metrics.jsonl."""
        return self.files.read_metrics()

    @property
    def parameters(self) -> int:
        """Number of parameters of the model."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def about(self) -> dict[str, Any]:
        """Return a description of the run for a page."""
        from regard.interpret.examination import examined_facts

        return {
            "task": self.task.name,
            "summary": self.task.summary,
            "kind": self.config.kind,
            "step": self.step,
            "history": self.config.history,
            "draws": self.draws,
            "snapshots": self.has_snapshots,
            "accepts": self.task.accepts,
            **examined_facts(self.files),
        }

    @property
    def draws(self) -> bool:
        """Whether `draw` is possible."""
        return self.task.draws

    def json(self) -> dict[str, Any]:
        """Return the run as plain data: its folder, step, number of parameters and config."""
        config: dict[str, Any] = to_plain(self.config.json())
        return {"folder": str(self.folder), "step": self.step, "parameters": self.parameters, "config": config}

    def __str__(self) -> str:
        past = f" ({self.config.history})" if self.config.history else ""
        return f"{self.folder}: {self.name}, {self.config.kind} model, {self.step:,} training steps{past}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"

    def importance(self, *, samples: int | None = None, seed: int = 0) -> HeadImportance:
        """Return the increase in the loss on unseen inputs when each head is ablated.

        `samples` None: 1000, or 500 for text. Raises `InputError` without attention or unseen inputs.
        """
        from regard.interpret.importance import head_importance

        return head_importance(self, samples=samples, seed=seed)

    def examine(self, *, samples: int = 200, seed: int = 0) -> Examination:
        """Test on unseen inputs whether attention explains the answers; see `regard.interpret.examination`.

        Raises `InputError` for a model without attention, or if there are no unseen inputs.
        """
        from regard.interpret.examination import examine

        return examine(self, samples=samples, seed=seed)

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
        """Return the computation of a head's weights at one output step, with all intermediate numbers.

        See `regard.interpret.explanation.explain`.
        """
        from regard.interpret.explanation import explain

        return explain(self, input, layer=layer, head=head, output=output, key=key, temperature=temperature, seed=seed)

    @abstractmethod
    def forward_pass(self, input: str) -> ForwardPass:
        """Return the forward pass whose attention `attend` shows. Raises `InputError` for an invalid input."""

    def with_sums(self, shown: AttentionMap) -> AttentionMap:
        """Return an attention map with the sums of each weight; see `regard.interpret.explanation.with_sums`."""
        from regard.interpret.explanation import with_sums

        return with_sums(self, shown)

    def view(self, input: str | None = None, *, seed: int = 0) -> AttentionWidget:
        """Return a notebook widget that shows the attention map for an input and explains each weight.

        If `input` is None, a random input is generated with `seed`. Raises `InputError` if anywidget is not installed.
        """
        from regard.viz.widget import view

        shown = self.attend(input, seed=seed)

        def explain(**options: Any) -> dict[str, Any]:
            return self.explain(shown.input, **options).json()

        return view([shown], explain=explain)

    def untrained(self, seed: int) -> Self:
        """Return the same run with an untrained model, initialized with `seed`."""
        model = build_model(changed_config(self.config, {"seed": seed}), self.task)
        device = next(self.model.parameters()).device
        return dataclasses.replace(self, model=model.to(device).eval())

    def roles(self, *, samples: int = 100, seed: int = 0) -> HeadRoles:
        """Describe the role of each head on unseen inputs; see `regard.interpret.roles`.

        Raises `InputError` for a model without attention, or if there are no unseen inputs.
        """
        from regard.interpret.roles import head_roles

        return head_roles(self, samples=samples, seed=seed)

    def samples(
        self, layer: str, head: int, *, token: str | None = None, wrong_first: bool = False, samples: int = 200
    ) -> HeadSamples:
        """Return the unseen inputs with the largest weights of a head; see `regard.interpret.single_heads`."""
        from regard.interpret.single_heads import head_samples

        return head_samples(self, layer, head, token=token, wrong_first=wrong_first, samples=samples)

    def loss(self, inputs: Sequence[Any]) -> float:
        """Return the mean cross-entropy of all outputs of some inputs, in nats."""
        if not inputs:
            raise InputError("inputs are empty: give one or more")
        total, outputs = self.losses(inputs).sum(0)
        return float(total / outputs)

    @abstractmethod
    def called(self, classes: Sequence[int]) -> list[str]:
        """Return the labels of some output classes."""

    @abstractmethod
    def draw(self, *, seed: int = 0) -> str:
        """Return a random input. Raises `InputError` if the task cannot generate inputs."""

    @abstractmethod
    def check(self, input: str) -> None:
        """Raise `InputError` if the input is invalid for the task."""

    @abstractmethod
    def attend(self, input: str | None = None, *, seed: int = 0) -> AttentionMap:
        """Answer an input, or a random input generated with `seed`, and return the attention of each layer."""

    @abstractmethod
    def playback(self, input: str | None = None, *, seed: int = 0) -> Playback:
        """Return the attention map for one input at each snapshot; raises `InputError` without snapshots."""

    def _play_back(self, attend: Callable[[Any], AttentionMap]) -> Playback:
        model, steps, frames = copy.deepcopy(self.model), [], []
        for step in load_snapshots(self.files, model):
            steps.append(step)
            frames.append(attend(model))
        lines = self.files.read_metrics()
        every = -(-len(lines) // MOST_POINTS) or 1
        losses = [(line["step"], round(line["loss"], 5)) for line in lines[::every]]
        return Playback(steps=steps, frames=frames, losses=losses)

    @abstractmethod
    def unseen(self, samples: int, seed: int, *, purpose: str = "examine") -> Sequence[Any]:
        """Return at most `samples` inputs outside the training data, sampled separately for each purpose."""

    @abstractmethod
    def look(self, input: Any) -> AttentionMap:
        """Return the attention map for an input of `unseen`; sequences have the true answer as decoder input."""

    @abstractmethod
    def losses(self, inputs: Sequence[Any]) -> np.ndarray:
        """Return (N, 2): the total cross-entropy of each input's outputs in nats, and their number."""

    @property
    def components(self) -> Components:
        """Heads and feed-forward layers of the model, for explanation methods."""
        return find_components(self.model)

    @property
    def patchable(self) -> Patchable:
        """Forward passes on one input, for patching."""

        def prepare(value: Any, clean: Any = None) -> Any:
            is_source = isinstance(clean, tuple) and isinstance(value, str)
            return self.prepare((value, clean[1]) if is_source else value)

        def outputs(prepared: Any) -> Tensor:
            return self.trial(prepared).run(1)[0].float()

        def answer_class(text: str, classes: int, argument: str = "answer") -> int:
            names = self.called(range(classes))
            if text not in names:
                raise unknown_choice(argument, text, names)
            return names.index(text)

        return Patchable(prepare, outputs, answer_class, nullcontext)

    @abstractmethod
    def prepare(self, input: Any) -> Any:
        """Return an input as `unseen` does: a text is read, another input is returned unchanged."""

    @abstractmethod
    def trial(self, input: Any) -> ProbeInput:
        """Return an input prepared for explanation methods."""

    @abstractmethod
    def figures(self, *, seed: int = 0) -> Figures:
        """Return the measurements for a comparison."""


def add_note(attention: AttentionMap, note: str) -> AttentionMap:
    return dataclasses.replace(attention, note="; ".join(filter(None, (note, attention.note))))


NULL_LABEL = "␣"  # Label of the null character and of whitespace characters on an axis


def visible(label: str) -> str:
    return NULL_LABEL if label.isspace() else label
