"""What an explanation method receives: a subject, one input, the explained outputs, and other inputs.

A method is a function of a `Trial`. At the level of inputs it returns an array (Tq, Tk); at the level of heads a
dictionary of arrays (H,) by layer; at the level of edges a dictionary of numbers by (sender, receiver).

    def mine(trial: Trial) -> np.ndarray:
        without = trial.run_embeddings(trial.embedding * (1 - torch.eye(len(trial.embedding))[:, :, None]))
        return (trial.clean - without).T.numpy()

The explained value of an output step is the log-probability of its target class: the class that the model
predicts, unless the user names another one. A model with one real output is explained by this output.

Ablation to the mean replaces a vector by its mean over other inputs at the same position; resampling replaces it
by the vector of one other input. An input that is shorter than the explained input has no vector at later
positions. The mean over all positions, or a vector of another position, stands in for it.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from regard.activations.components import Components
from regard.activations.interface import read_values
from regard.activations.weights import record_weights
from regard.attention.records import Record
from regard.errors import InputError, check_range
from regard.streams import make_generator
from regard.viz.subject import Input, ProbeInput, Subject

Level = Literal["inputs", "heads", "edges"]
"""What a method scores: inputs for each output step, heads, or edges between components."""
LEVELS: tuple[Level, ...] = get_args(Level)
MOST_ROWS = 256  # Largest number of changed inputs in one forward pass
RESAMPLES = 5
"""Other inputs whose tokens or contexts replace those of the explained input, over which changes are averaged."""
SAMPLES = 50  # Other inputs for means. With 100, the AUROC of ablation to the mean on Signal is the same to 0.01.


class Background(Generic[Input]):
    """Unseen inputs of a subject, and what its model computes for them. Everything is computed once, on demand.

    `inputs`: other inputs in the form of `Subject.prepare` (None: `samples` unseen inputs, drawn with `seed`).
    """

    def __init__(
        self, subject: Subject[Input], inputs: Sequence[Input] | None = None, *, samples: int = SAMPLES, seed: int = 0
    ) -> None:
        self.subject, self._inputs, self.samples, self.seed = subject, inputs, samples, seed
        self.cache: dict[str, Any] = {}  # What methods compute once for all trials

    @cached_property
    def components(self) -> Components:
        return self.subject.components

    @cached_property
    def prepared(self) -> list[ProbeInput]:
        inputs = self._inputs
        if inputs is None:
            inputs = self.subject.unseen(self.samples, self.seed, purpose="attribution")
        return [self.subject.trial(input) for input in inputs]

    @property
    def probes(self) -> list[ProbeInput]:
        """Two or more other inputs; raises `InputError` for fewer."""
        if len(self.prepared) < 2:
            raise InputError(
                f"{self.subject.name} has {len(self.prepared)} inputs for a mean over other inputs: give two or more"
            )
        return self.prepared

    @cached_property
    def embeddings(self) -> list[Tensor]:
        """The embedding (Tk, D) of each input."""
        return [read_pass(probe)[1][0] for probe in self.probes]

    @cached_property
    def contexts(self) -> list[Mapping[str, Tensor]]:
        """By layer, the contexts (T, H, Dv) of each input; T is the number of queries of all calls."""
        return [read_contexts(self.components, probe) for probe in self.probes]

    def mean_contexts(self, layer: str, length: int) -> Tensor:
        return position_means([contexts[layer] for contexts in self.contexts], length)

    def draw_contexts(self, layer: str, length: int, count: int, generator: torch.Generator) -> Tensor:
        order = torch.randperm(len(self.contexts), generator=generator)
        chosen = order.repeat(-(-count // len(order)))[:count].tolist()
        return torch.stack([resize(self.contexts[index][layer], length, generator) for index in chosen])


def position_means(sequences: Sequence[Tensor], length: int) -> Tensor:
    """Return the mean (length, ...) of sequences (T, ...) at each position, or at all if none is as long."""
    means = torch.cat(list(sequences)).mean(0).expand(length, *sequences[0].shape[1:]).clone()
    for position in range(min(length, max(map(len, sequences)))):
        means[position] = torch.stack([rows[position] for rows in sequences if len(rows) > position]).mean(0)
    return means


def resize(rows: Tensor, length: int, generator: torch.Generator) -> Tensor:
    """Return the first `length` rows of (T, ...), followed by randomly drawn rows if there are too few."""
    if len(rows) >= length:
        return rows[:length]
    drawn = torch.randint(len(rows), (length - len(rows),), generator=generator)
    return torch.cat([rows, rows[drawn.to(rows.device)]])


@contextmanager
def change_embedding(embedding: nn.Module, change: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
    """Change the first output of `embedding` in the block, as (N, Tk, D); later calls, by a decoder that shares the
    embedding, are not changed. The steps of (N, D, height, width), as of an image, are its places, and those of (N, Tk)
    are its numbers."""
    calls = 0

    def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        nonlocal calls
        calls += 1
        if calls > 1:
            return None
        is_grid = output.dim() > 3 or isinstance(module, nn.Conv1d)
        steps = output.flatten(2).transpose(1, 2) if is_grid else output
        changed = change(steps.unsqueeze(-1) if output.dim() == 2 else steps)
        if changed is None:
            return None
        return (changed.transpose(1, 2) if is_grid else changed).reshape(-1, *output.shape[1:])

    handle = embedding.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@torch.no_grad()
def read_pass(probe: ProbeInput) -> tuple[Tensor, list[Tensor]]:
    """Return the logits (Tq, C) of an input, and a list with its embedding (Tk, D) before positions are added;
    the list is empty if the model does not call the embedding."""
    embeddings: list[Tensor] = []
    with change_embedding(probe.embedding, lambda output: embeddings.append(output[0].clone())):
        logits = probe.run(1)
    return logits[0], embeddings


@torch.no_grad()
def read_contexts(components: Components, probe: ProbeInput) -> dict[str, Tensor]:
    """Return the contexts (T, H, Dv) of each layer for an input. T is the number of queries of all calls: a recurrent
    decoder calls its layer once for each step."""
    calls: dict[str, list[Tensor]] = {}

    def keep(name: str, contexts: Tensor) -> Tensor:
        if len(contexts) != 1:
            raise InputError(
                f"{name} runs on {len(contexts)} windows of one input, so its heads have no single context: "
                "choose scores of inputs"
            )
        calls.setdefault(name, []).append(contexts[0].clone())
        return contexts

    with components.replace_contexts(keep):
        probe.run(1)
    return {name: components.split(name, torch.cat(parts)) for name, parts in calls.items()}


@dataclass
class Trial(Generic[Input]):
    """One input of a subject, on which explanation methods run.

    >>> trial = Trial(run, run.prepare("BCCCBAABACCCA"))    # doctest: +SKIP
    >>> trial.clean.shape    # doctest: +SKIP
    torch.Size([3])
    """

    subject: Subject[Input]
    input: Input  # In the form of `Subject.prepare`
    level: Level = "inputs"
    step: int | None = None  # The explained output step; None: every step of the answer
    label: int | None = None  # The explained class; None: the class that the model predicts
    seed: int = 0
    truth: Any = None  # The known answer, for the oracle: an array, or a dictionary, in the form that methods return
    background: Background[Input] = None  # type: ignore[assignment]
    """Other inputs, shared by all trials of a subject; by default unseen inputs of the subject."""
    remarks: list[str] = field(default_factory=list)
    """Sentences that a method adds on what its scores leave out or approximate."""
    left_out: dict[str, str] = field(default_factory=dict)  # Layers that a method leaves out, with the reason
    clean_pass: tuple[Tensor, list[Tensor]] | None = None
    """What `read_pass` returns for the input, if it was computed before, in a batch."""

    def __post_init__(self) -> None:
        """Raise `InputError` for a subject without probing."""
        if self.background is None:
            self.background = Background(self.subject, seed=self.seed)
        probe = self.subject.trial(self.input)
        # A class and a batch can be explained only in logits; otherwise, the user's loss is the output.
        by_loss = self.step is None and self.label is None and self.clean_pass is None
        self.probe: ProbeInput = probe.loss if by_loss and probe.loss is not None else probe
        # Computed at once, so that no method computes them while the model is changed.
        logits, self._embeddings = read_pass(self.probe) if self.clean_pass is None else self.clean_pass
        self.logits: Tensor = logits.float()  # (Tq, C), of the unchanged model

    @property
    def components(self) -> Components:
        return self.background.components

    @cached_property
    def classes(self) -> Tensor:
        """The target class (Tq,) of each output step."""
        predicted = self.logits.argmax(-1)
        if self.label is None:
            return predicted
        check_range("class", self.label, 0, self.logits.shape[-1] - 1)
        return torch.full_like(predicted, self.label)

    @cached_property
    def steps(self) -> list[int]:
        """The explained output steps: that of the target, or all steps of the answer."""
        count = len(self.logits)
        if self.step is not None:
            check_range("step", self.step, -count, count - 1)
            return [self.step % count]
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

    @property
    def mean_embedding(self) -> Tensor:
        """The mean (Tk, D) of the embeddings of the background at each position."""
        return position_means(self.background.embeddings, len(self.embedding))

    @cached_property
    def records(self) -> Mapping[str, Record]:
        with torch.no_grad(), record_weights(self.subject) as records:
            self.probe.run(1)
        return records

    @cached_property
    def attention_values(self) -> Mapping[str, Tensor]:
        """By layer: the values (H, Tk, Dv) whose weighted sums are the contexts, where they are known."""
        return read_values(self.subject.model, lambda: self.probe.run(1))

    def own_keys(self, keys: int) -> slice:
        """Return the keys of a layer that are the steps of the input; a class token is an additional key. Raises
        `InputError` for a layer with fewer keys, such as those of a window."""
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

        def change(name: str, states: Tensor) -> Tensor:
            nonlocal start
            rows = flat[:, start : start + states.shape[1]]
            start += states.shape[1]
            return rows.to(states)

        with self.components.replace_contexts(change, [layer]):
            yield


MethodFunction = Callable[[Trial[Any]], Any]
"""Returns the scores of a trial: (Tq, Tk) for inputs, by layer (H,) for heads, by sender and receiver for edges."""


def as_array(scores: Any) -> np.ndarray:
    try:
        return np.asarray(scores.detach().cpu() if isinstance(scores, Tensor) else scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"the method returned {type(scores).__name__}: expected an array of numbers") from None


def input_scores(trial: Trial[Any], scores: Any) -> np.ndarray:
    """Return scores of inputs as an array (S, Tk); raises `InputError` for another shape."""
    array = as_array(scores)
    expected = len(trial.steps), len(trial.embedding)
    if array.shape != expected:
        raise InputError(f"the method returned {array.shape}: expected {expected}, output steps by inputs")
    return array
