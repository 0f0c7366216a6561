"""What an explanation method receives: a subject, one input, the explained outputs, and other inputs.

A method is a function of a `Trial`. At the level of inputs it returns an array (Tq, Tk); at the level of heads a
dictionary of arrays (H,) by layer; at the level of edges a dictionary of numbers by (sender, receiver).

    def mine(trial: Trial) -> np.ndarray:
        without = [trial.values(trial.run_without(key)) for key in range(trial.keys)]
        return ...

The explained value of an output step is the log-probability of its target class: the class that the model
predicts, unless the user names another one. A model with one real output is explained by this output.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.activations.components import Components
from regard.activations.interface import read_values
from regard.attention.records import Record
from regard.errors import InputError, check_range
from regard.interpret.attribution.attribution_result import Level
from regard.interpret.attribution.background import Background, change_embedding, read_contexts, read_pass
from regard.streams import make_generator
from regard.viz.subject import Input, ProbeInput, Subject

MOST_ROWS = 256
"""Largest number of changed inputs in one forward pass."""


class Target(NamedTuple):
    """The explained output."""

    step: int | None = None
    """Output step; None: every step of the answer."""
    label: int | None = None
    """Class; None: the class that the model predicts."""


PREDICTED = Target()
"""Every step of the answer, and the predicted class."""


@dataclass
class Trial(Generic[Input]):
    """One input of a subject, on which explanation methods run.

    >>> trial = Trial(run, run.prepare("BCCCBAABACCCA"))    # doctest: +SKIP
    >>> trial.clean.shape    # doctest: +SKIP
    torch.Size([3])
    """

    subject: Subject[Input]
    input: Input
    """In the form of `Subject.prepare`."""
    level: Level = "inputs"
    target: Target = PREDICTED
    seed: int = 0
    truth: Any = None
    """The known answer, for the oracle: an array, or a dictionary, in the form that methods return."""
    background: Background[Input] = None  # type: ignore[assignment]
    """Other inputs, shared by all trials of a subject; by default unseen inputs of the subject."""
    remarks: list[str] = field(default_factory=list)
    """Sentences that a method adds on what its scores leave out or approximate."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Layers that a method leaves out, with the reason."""
    clean_pass: tuple[Tensor, list[Tensor]] | None = None
    """What `read_pass` returns for the input, if it was computed before, in a batch."""

    def __post_init__(self) -> None:
        """Raise `InputError` for a subject without probing."""
        if self.background is None:
            self.background = Background(self.subject, seed=self.seed)
        probe = self.subject.trial(self.input)
        # A class and a batch can be explained only in logits; otherwise, the user's loss is the output.
        by_loss = self.target == PREDICTED and self.clean_pass is None
        self.probe: ProbeInput = probe.loss if by_loss and probe.loss is not None else probe
        # Computed at once, so that no method computes them while the model is changed.
        logits, self._embeddings = read_pass(self.probe) if self.clean_pass is None else self.clean_pass
        self.logits: Tensor = logits.float()
        """(Tq, C), of the unchanged model."""

    @property
    def components(self) -> Components:
        return self.background.components

    @cached_property
    def classes(self) -> Tensor:
        """The target class (Tq,) of each output step."""
        predicted = self.logits.argmax(-1)
        if self.target.label is None:
            return predicted
        check_range("class", self.target.label, 0, self.logits.shape[-1] - 1)
        return torch.full_like(predicted, self.target.label)

    @cached_property
    def steps(self) -> list[int]:
        """The explained output steps: that of the target, or all steps of the answer."""
        count = len(self.logits)
        if self.target.step is not None:
            check_range("step", self.target.step, -count, count - 1)
            return [self.target.step % count]
        steps = self.probe.steps
        return list(range(count)) if self.level == "inputs" or steps is None else list(steps)

    def values(self, logits: Tensor) -> Tensor:
        """Return the explained values (N, S) in logits (N, Tq, C): S explained steps."""
        chosen = logits[:, self.steps].float()
        if logits.shape[-1] == 1:
            return chosen.squeeze(-1)
        classes = self.classes[self.steps].to(logits.device).expand(len(logits), -1)
        return chosen.log_softmax(-1).gather(-1, classes.unsqueeze(-1)).squeeze(-1)

    @cached_property
    def clean(self) -> Tensor:
        return self.values(self.logits.unsqueeze(0))[0]

    @property
    def embedding(self) -> Tensor:
        """The embedding (Tk, D) of the input, before positions are added."""
        return self._embeddings[0]

    @cached_property
    def contexts(self) -> Mapping[str, Tensor]:
        """By layer: the contexts (T, H, Dv) of all heads before the output projection."""
        return read_contexts(self.components, self.probe)

    @cached_property
    def records(self) -> Mapping[str, Record]:
        with torch.no_grad(), self.subject.recording() as records:
            self.probe.run(1)
        return records

    @cached_property
    def attention_values(self) -> Mapping[str, Tensor]:
        """By layer: the values (H, Tk, Dv) whose weighted sums are the contexts; layers with unknown values are
        left out."""
        return read_values(self.subject.model, lambda: self.probe.run(1))

    def own_keys(self, keys: int) -> slice:
        """Return the keys of a layer that are the steps of the input; a class token is an additional key.

        Raises `InputError` for a layer with fewer keys, such as those of a window.
        """
        count = len(self.embedding)
        if keys < count:
            raise InputError(
                f"the layer attends to {keys} keys, not to the {count} steps of the input: choose another method"
            )
        start = keys - count if self.probe.keys_before else 0
        return slice(start, start + count)

    def draws(self, stream: str) -> torch.Generator:
        tokens = self.embedding if self.probe.tokens is None else self.probe.tokens
        number = zlib.crc32(np.ascontiguousarray(tokens.cpu().numpy()).tobytes())
        return make_generator(self.seed, f"attribution/{stream}/{number}")

    @torch.no_grad()
    def run_embeddings(self, embeddings: Tensor) -> Tensor:
        """Return the explained values (N, S) for changed embeddings (N, Tk, D)."""
        parts = []
        for rows in embeddings.split(MOST_ROWS):
            with change_embedding(self.probe.embedding, rows.to):
                parts.append(self.values(self.probe.run(len(rows))))
        return torch.cat(parts)

    @torch.no_grad()
    def run_tokens(self, tokens: Tensor) -> Tensor:
        """Return the explained values (N, S) for other tokens (N, Tk); the inputs must be tokens."""
        assert self.probe.run_tokens is not None
        return torch.cat([self.values(self.probe.run_tokens(rows)) for rows in tokens.split(MOST_ROWS)])

    @torch.no_grad()
    def run_contexts(self, layer: str, contexts: Tensor) -> Tensor:
        """Return the explained values (N, S) for changed contexts (N, T, H, Dv) of one layer."""
        parts = []
        for rows in contexts.split(MOST_ROWS):
            with self.insert_contexts(layer, rows):
                parts.append(self.values(self.probe.run(len(rows))))
        return torch.cat(parts)

    @contextmanager
    def insert_contexts(self, layer: str, contexts: Tensor) -> Iterator[None]:
        """Replace the contexts of a layer by contexts (N, T, H, Dv) in a run of N copies inside the block."""
        flat, start = contexts.flatten(2), 0

        def change(states: Tensor) -> Tensor:
            nonlocal start
            rows = flat[:, start : start + states.shape[1]]
            start += states.shape[1]
            return rows.to(states)

        with self.components.heads[layer].replace(change):
            yield


MethodFunction = Callable[[Trial[Any]], Any]
"""Returns the scores of a trial: (Tq, Tk) for inputs, by layer (H,) for heads, by sender and receiver for
edges."""


def _as_array(scores: Any) -> np.ndarray:
    try:
        return np.asarray(scores.detach().cpu() if isinstance(scores, Tensor) else scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"the method returned {type(scores).__name__}: expected an array of numbers") from None


def input_scores(trial: Trial[Any], scores: Any) -> np.ndarray:
    """Return scores of inputs as an array (S, Tk); raises `InputError` for another shape."""
    array = _as_array(scores)
    expected = len(trial.steps), len(trial.embedding)
    if array.shape != expected:
        raise InputError(f"the method returned {array.shape}: expected {expected}, output steps by inputs")
    return array


def head_scores(trial: Trial[Any], scores: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return scores of heads as arrays (H,) by layer; raises `InputError` for another shape."""
    if not isinstance(scores, Mapping):
        raise InputError(f"the method returned {type(scores).__name__}: expected scores of heads by layer")
    heads = {name: _as_array(values) for name, values in scores.items()}
    counts: Sequence[tuple[str, int]] = [(layer.name, layer.heads) for layer in trial.subject.layers]
    for name, count in counts:
        if name in heads and heads[name].shape != (count,):
            raise InputError(
                f"the method returned {heads[name].shape} for {name}: expected ({count},), its heads"
            )
    return heads
