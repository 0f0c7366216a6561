"""Other inputs of a subject: the embeddings and contexts that replace those of the explained input.

Ablation to the mean replaces a vector by its mean over other inputs at the same position; resampling replaces it
by the vector of one other input. An input that is shorter than the explained input has no vector at later
positions. The mean over all positions, or a vector of another position, stands in for it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Generic

import torch
from torch import Tensor, nn

from regard.activations.components import Components
from regard.errors import InputError
from regard.viz.subject import Input, ProbeInput, Subject

SAMPLES = 50
"""Other inputs for means. With 100, the AUROC of ablation to the mean on Signal is the same to 0.01."""


class Background(Generic[Input]):
    """Unseen inputs of a subject, and what its model computes for them. Everything is computed once, on demand.

    `inputs`: other inputs in the form of `Subject.prepare` (None: `samples` unseen inputs, drawn with `seed`).
    """

    def __init__(
        self,
        subject: Subject[Input],
        inputs: Sequence[Input] | None = None,
        *,
        samples: int = SAMPLES,
        seed: int = 0,
    ) -> None:
        self.subject, self._inputs, self.samples, self.seed = subject, inputs, samples, seed
        self.cache: dict[str, Any] = {}
        """What methods compute once for all trials."""

    @cached_property
    def components(self) -> Components:
        return self.subject.components

    @cached_property
    def inputs(self) -> Sequence[Input]:
        if self._inputs is not None:
            return self._inputs
        return self.subject.unseen(self.samples, self.seed, purpose="attribution")

    @cached_property
    def prepared(self) -> list[ProbeInput]:
        return [probe for probe in map(self.subject.trial, self.inputs) if probe is not None]

    @property
    def probes(self) -> list[ProbeInput]:
        """Two or more other inputs; raises `InputError` for fewer."""
        if len(self.prepared) < 2:
            raise InputError(
                f"{self.subject.name} has {len(self.prepared)} inputs for a mean over other inputs: give two or "
                "more"
            )
        return self.prepared

    @cached_property
    def embeddings(self) -> list[Tensor]:
        """The embedding (Tk, D) of each input."""
        return [read_embedding(probe) for probe in self.probes]

    @cached_property
    def contexts(self) -> list[Mapping[str, Tensor]]:
        """By layer, the contexts (T, H, Dv) of each input; T is the number of queries of all calls."""
        return [read_contexts(self.components, probe) for probe in self.probes]

    def mean_embedding(self, length: int) -> Tensor:
        return position_means(self.embeddings, length)

    def mean_contexts(self, layer: str, length: int) -> Tensor:
        return position_means([contexts[layer] for contexts in self.contexts], length)

    def draw_contexts(self, layer: str, length: int, count: int, generator: torch.Generator) -> Tensor:
        order = torch.randperm(len(self.contexts), generator=generator)
        chosen = order.repeat(-(-count // len(order)))[:count].tolist()
        return torch.stack([resize(self.contexts[index][layer], length, generator) for index in chosen])


def position_means(sequences: Sequence[Tensor], length: int) -> Tensor:
    """Return the mean (length, ...) of sequences (T, ...) at each position; the mean over all positions where no
    sequence has the position.

    >>> position_means([torch.tensor([1.0, 5.0]), torch.tensor([3.0])], 3).tolist()
    [2.0, 5.0, 3.0]
    """
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
    """Change the first output of `embedding` in the block, as (N, Tk, D); later calls, by a decoder that shares
    the embedding, are not changed.

    The steps of (N, D, height, width), as of an image, are its places, and those of (N, Tk) are its numbers.
    """
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


def read_embedding(probe: ProbeInput) -> Tensor:
    """Return the embedding (Tk, D) of an input, before positions are added."""
    return read_pass(probe)[1][0]


@torch.no_grad()
def read_contexts(components: Components, probe: ProbeInput) -> dict[str, Tensor]:
    """Return the contexts (T, H, Dv) of each layer for an input.

    T is the number of queries of all calls: a recurrent decoder calls its layer once for each step.
    """
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
