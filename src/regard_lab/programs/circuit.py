"""What is known about a compiled model: its circuit, derived from the plan of its weights.

Three truths about heads differ. A head is *needed* if the answers change when its context alone is resampled,
that is, replaced by its context for another input of the same length. It is *used* if its output takes part in
the computation; of two redundant heads, both are used and neither is needed. It is *sufficient* if it belongs to
a smallest set of heads that gives the answers while all other heads are resampled.

A head whose output depends on positions and the length only cannot be resampled: it is used, and the other two
truths are None."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard_lab.programs.language import Indices
from regard_lab.programs.planner import PlannedHead, Planner
from regard_lab.programs.task import ProgramTask

OFFSETS = {0: "its own step", -1: "the previous step", 1: "the next step"}
SAME_INDEX = "the input at the output's index"
"""Roles of `regard.interpret.roles` that follow from the comparison of a head."""
Truth = Mapping[str, tuple[bool | None, ...]]
"""A value for each head, by short name of the attention layer; None if the truth is not defined."""


class Source(NamedTuple):
    """Nodes that write what a planted head compares. Embeddings and positions are the node `inputs`; constants
    have no node."""

    query: frozenset[str]
    key: frozenset[str]


@dataclass(frozen=True)
class Circuit:
    """The heads, edges and inputs that a model needs. Node names are those of `regard.attribute`."""

    task: ProgramTask
    needed: Truth
    used: Truth
    sufficient: Truth
    edges: frozenset[tuple[str, str]]
    """Pairs of sender and receiver that carry what depends on tokens."""
    roles: Mapping[tuple[str, int], str]
    """By layer and head: the role in the terms of `regard.interpret.roles`, where such a role was planted."""
    sources: Mapping[tuple[str, int], Source]
    """By layer and head: which nodes write what the head compares."""

    def inputs(self, tokens: Tensor) -> np.ndarray:
        """Return whether another symbol at an input changes an output, (Tq, Tk) bool, for tokens (Tk,)."""
        return self.task.dependence(tokens)


def make_circuit(planner: Planner, task: ProgramTask, layers: Mapping[str, int]) -> Circuit:
    """Return the circuit of a plan. `layers`: number of heads of each attention layer of the model."""
    planned = {
        (layer, index): head for layer in layers for index, head in enumerate(planner.heads.get(layer, ()))
    }

    def truth(kind: str) -> Truth:
        known = {node: getattr(truth, kind) for node, truth in planner.truths.items()}
        return {layer: tuple(known.get(f"{layer}.{i}", False) for i in range(n)) for layer, n in layers.items()}

    sources = {
        place: Source(
            frozenset(match.queries.node for match in head.matches if match.queries.node),
            frozenset(match.keys.node for match in head.matches if match.keys.node),
        )
        for place, head in planned.items()
    }
    roles = {place: role for place, head in planned.items() if (role := find_role(planner, head)) is not None}
    edges = frozenset(planner.edges)
    return Circuit(task, truth("needed"), truth("used"), truth("sufficient"), edges, roles, sources)


def find_role(planner: Planner, head: PlannedHead) -> str | None:
    """Return the role of a head in the terms of `regard.interpret.roles`, if it has one.

    Roles are derived for heads that select one step by its index; `Program.roles` names all other roles.
    """
    if head.expression in planner.program.roles:
        return planner.program.roles[head.expression]
    selector = head.expression.selector
    if len(head.matches) != 1 or not isinstance(selector.conditions[0].keys, Indices):
        return None
    [match] = head.matches
    own = planner.find_indices(selector.query_side)
    if own is None or match.queries.node != own.node:
        return None
    chosen = match.truth @ match.queries.matrix @ own.matrix.T  # (indices of keys, indices of queries)
    keys, queries = (torch.arange(size) for size in chosen.shape)
    if selector.key_side != selector.query_side:
        same_index = planner.program.family == "encoder-decoder" and torch.equal(
            chosen.bool(), keys[:, None] == queries
        )
        return SAME_INDEX if same_index else None
    for offset, role in OFFSETS.items():
        if torch.equal(chosen.bool(), keys[:, None] == queries + offset):
            return role
    return None
