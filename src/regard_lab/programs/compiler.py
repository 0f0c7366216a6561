"""Compile a program to the weights of a model: `DecoderOnly`, `Transformer`, or `QueryModel` for encoders.

The models have no normalization, so each layer adds exactly what its heads and units write. A head's score is the
number of true comparisons times `SCORE`; an aggregate gives all other steps weights below 1e-6, and gradients
through the softmax stay above zero in float32. `planner` decides which head computes what.

Heads and units that no expression needs are filled at random, so that "not needed" heads exist in numbers. They
read the whole stream and write to `SCRATCH` dimensions that nothing else reads: in turn a loud head (8 times the
norm of a planted head), a quiet head (0.3 times), and a silent head, whose values are zero.

What is known about a model is its circuit. Three truths about heads differ. A head is *needed* if the answers
change when its context alone is resampled, that is, replaced by its context for another input of the same length.
It is *used* if its output takes part in the computation; of two redundant heads, both are used and neither is
needed. It is *sufficient* if it belongs to a smallest set of heads that gives the answers while all other heads
are resampled. A head whose output depends on positions and the length only cannot be resampled: it is used, and
the other two truths are None.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.blocks import FeedForward
from regard.attention.layer import attention_layers
from regard.attention.names import short_name
from regard.data.vocabulary import BOS, EOS
from regard.models.base import ModelConfig, TaskModel
from regard.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from regard.models.query import QueryModel, QueryModelConfig
from regard.models.transformer import Transformer, TransformerConfig
from regard.streams import make_generator
from regard_lab.programs.language import Indices, Program
from regard_lab.programs.planner import MARK, ONE, PlannedHead, PlannedSet, Planner, unit_rows
from regard_lab.programs.task import EncoderProgramTask, PairProgramTask, ProgramTask, make_task

OFFSETS = {0: "its own step", -1: "the previous step", 1: "the next step"}
SAME_INDEX = "the input at the output's index"
"""Roles of `regard.interpret.roles` that follow from the comparison of a head."""
Truth = Mapping[str, tuple[bool | None, ...]]
"""A value for each head, by short name of the attention layer; None if the truth is not defined."""


class Source(NamedTuple):
    """Nodes that write what a planted head compares: `inputs` for embeddings and positions, none for constants."""

    query: frozenset[str]
    key: frozenset[str]


@dataclass(frozen=True)
class Circuit:
    """The heads, edges and inputs that a model needs. Node names are those of `regard.attribute`."""

    task: ProgramTask
    needed: Truth
    used: Truth
    sufficient: Truth
    edges: frozenset[tuple[str, str]]  # Pairs of sender and receiver that carry what depends on tokens
    roles: Mapping[tuple[str, int], str]
    """By layer and head: the role in the terms of `regard.interpret.roles`, where such a role was planted."""
    sources: Mapping[tuple[str, int], Source]  # By layer and head: which nodes write what the head compares
    sets: Sequence[PlannedSet] = ()  # Heads whose effect shows together only, with their nodes

    def inputs(self, tokens: Tensor) -> np.ndarray:
        """Return whether another symbol at an input changes an output, (Tq, Tk) bool, for tokens (Tk,)."""
        return self.task.dependence(tokens)


def make_circuit(planner: Planner, task: ProgramTask, layers: Mapping[str, int]) -> Circuit:
    planned = {(layer, index): head for layer in layers for index, head in enumerate(planner.heads.get(layer, ()))}

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
    truths = truth("needed"), truth("used"), truth("sufficient")
    return Circuit(task, *truths, edges, roles, sources, tuple(planner.sets))


def find_role(planner: Planner, head: PlannedHead) -> str | None:
    """Return the role of a head in the terms of `regard.interpret.roles`, if it has one. Roles are derived for heads
    that select one step by its index; `Program.roles` names all other roles."""
    if head.expression in planner.program.roles:
        return planner.program.roles[head.expression]
    selector = head.expression.selector
    if len(head.matches) != 1 or not isinstance(selector.conditions[0].keys, Indices):
        return None
    [match] = head.matches
    side, readings = selector.query_side, planner.readings.items()
    own = next((reading for e, reading in readings if isinstance(e, Indices) and e.side == side), None)
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


SCORE = 30.0  # Score of one comparison. The additional step is half a comparison below a selected step: exp(-15) = 3e-7
LOGIT = 12.0  # Logit of the answer; all other logits are 0, or half of it for the answer None
SCRATCH = 4  # Dimensions to which unneeded heads and units write
SPARE_UNITS = 4  # Number of unneeded units in each feed-forward layer
LEAST_HEADS = 4  # Smallest number of heads in each attention layer


@dataclass(frozen=True, kw_only=True)
class Spares:
    """The unneeded heads of each attention layer."""

    heads: int = 2  # Smallest number of them in each layer
    gains: tuple[float, ...] = (8.0, 0.3, 0.0)
    """Norms of what they write, in turn: loud, quiet and silent heads. A planted head writes vectors of norm 1."""
    leak: float = 0.0
    """Norm of what they add to the logits of a decoder-only model, which is too little to change an answer."""


PLAIN = Spares()


@dataclass(frozen=True)
class Compiled:
    """A compiled program."""

    program: Program
    task: ProgramTask
    config: ModelConfig  # Options of the model
    model: TaskModel
    circuit: Circuit  # What is known about the model


def compile_program(program: Program, *, seed: int = 0, spares: Spares = PLAIN) -> Compiled:
    """Return the model that computes a program. Its answers are those of the program for every input.

    `seed`: of the unneeded heads and units, which `spares` describes.

    >>> from regard_lab.programs.library import PROGRAMS
    >>> compiled = compile_program(PROGRAMS["reverse"])
    >>> compiled.program.write("abc"), compiled.circuit.needed["decoder.0.cross"]
    ('cba', (True, False, False, False))
    """
    return assemble(Planner(program), seed=seed, spares=spares)


@torch.inference_mode(mode=False)  # parameters that are created in inference mode never have gradients
@torch.no_grad()
def assemble(planner: Planner, *, seed: int = 0, spares: Spares = PLAIN) -> Compiled:
    """Return the model with the heads and units of a plan; arguments as in `compile_program`."""
    task = make_task(planner.program, planner.result)
    config, model = make_model(planner, task, spares)
    write_weights(planner, task, model, spares, make_generator(seed, planner.program.name))
    layers = {short_name(name): layer.heads for name, layer in attention_layers(model).items()}
    return Compiled(planner.program, task, config, model.eval(), make_circuit(planner, task, layers))


def make_model(planner: Planner, task: ProgramTask, spares: Spares) -> tuple[ModelConfig, TaskModel]:
    """Return an untrained model without normalization, of the smallest sizes for a plan, and its options."""
    planned = [head for heads in planner.heads.values() for head in heads]
    heads = max([LEAST_HEADS, *(len(heads) + spares.heads for heads in planner.heads.values())])
    inner = max(map(len, planner.units.values()), default=0) + SPARE_UNITS
    width = max(*planner.width.values(), inner / 2) + SCRATCH  # encoder layers have two units per dimension
    parts = [len(part) for head in planned for part in (score_rows(head)[0], head.value)]
    head_width = max([SCRATCH, math.ceil(width / heads), *parts])
    layers, sizes = planner.depth, dict[str, Any](task.sizes)
    shared: dict[str, Any] = {"hidden": heads * head_width, "heads": heads, "norm": "none"}
    learned: dict[str, Any] = {"inner": inner, "positions": "learned", "tied": False}
    if planner.program.family == "decoder-only":
        decoder = DecoderOnlyConfig(layers=max(layers["input"], 1), activation="relu", **shared, **learned)
        return decoder, DecoderOnly(decoder, **sizes)
    if planner.program.family == "encoder-decoder":
        depth: dict[str, Any] = {"enc_layers": max(layers["input"], 1), "dec_layers": max(layers["output"], 1)}
        pair = TransformerConfig(dropout=0.0, **depth, **shared, **learned)
        return pair, Transformer(pair, **sizes)
    query = QueryModelConfig(enc_layers=layers["input"], multihead=True, pos_enc=True, **shared)
    return query, QueryModel(query, **sizes)


def score_rows(head: PlannedHead) -> tuple[Tensor, Tensor]:
    """Return what the queries and the keys of a head read, (dimensions, WIDTH) each. Their product is the number of
    true comparisons, and the default at the additional step."""
    queries, keys = [], []
    for match in head.matches:
        if len(match.keys.values) <= len(match.queries.values):
            query, key = match.truth @ match.queries.matrix, match.keys.matrix
        else:
            query, key = match.queries.matrix, match.truth.T @ match.keys.matrix
        read = query.any(1) & key.any(1)
        queries.append(query[read])
        keys.append(key[read])
    queries.append(head.default * unit_rows(range(ONE, ONE + 1)))
    keys.append(unit_rows(range(MARK, MARK + 1)))
    return torch.cat(queries), torch.cat(keys)


def write_weights(planner: Planner, task: ProgramTask, model: Any, spares: Spares, generator: torch.Generator) -> None:
    for parameter in model.parameters():
        parameter.zero_()
    write_embeddings(planner, task, model)
    layers: Mapping[str, Any] = attention_layers(model)
    for name, layer in layers.items():
        planned, layer_output = planner.heads.get(short_name(name), []), layer.output.weight
        for index, head in enumerate(planned):
            query, key = score_rows(head)
            # The layer divides scores by the root of the head width.
            _write_projections(layer, index, query * SCORE * math.sqrt(layer.head_width), key, head.value)
            begin = index * layer.head_width
            layer_output[list(head.columns), begin : begin + len(head.value)] = torch.eye(len(head.value))
        for index in range(len(planned), layer.heads):
            width, begin = layer.output.out_features, index * layer.head_width
            query, key = (torch.randn(SCRATCH, width, generator=generator) for _ in range(2))
            _write_projections(layer, index, query, key, _random_rows(width, generator))
            gain, columns = spares.gains[(index - len(planned)) % len(spares.gains)], slice(begin, begin + SCRATCH)
            layer_output[-SCRATCH:, columns] = gain * torch.eye(SCRATCH)
            # A leak lets an unneeded head add to the logits what it reads from the embedding. What planned heads write
            # does not pass through it.
            if spares.leak:
                for projection in (layer.query, layer.key, layer.value):
                    projection.weight[columns, planner.positions["input"].stop :] = 0.0
                mixed = spares.leak * torch.randn(len(planner.result.values), SCRATCH, generator=generator)
                layer_output[:, columns] += planner.result.matrix.T[:width] @ mixed
    for name, layer in model.named_modules():
        if isinstance(layer, FeedForward):
            write_units(planner.units.get(short_name(name), []), layer, generator)
    write_answers(planner, task, model.output)


def _random_rows(width: int, generator: torch.Generator) -> Tensor:
    """Return rows (SCRATCH, width) that read about 1 of a state, and nothing of what unneeded heads write."""
    rows = torch.randn(SCRATCH, width, generator=generator) / SCRATCH
    rows[:, -SCRATCH:] = 0.0
    return rows


def _write_projections(layer: Any, index: int, *rows: Tensor) -> None:
    begin = index * layer.head_width
    for projection, written in zip((layer.query, layer.key, layer.value), rows, strict=True):
        projection.weight[begin : begin + len(written)] = written[:, : projection.in_features]


def write_units(planned: Sequence[tuple[Tensor, Tensor]], layer: FeedForward, generator: torch.Generator) -> None:
    width = layer.inner.in_features
    for index, (inner, outer) in enumerate(planned):
        layer.inner.weight[index], layer.outer.weight[:, index] = inner[:width], outer[:width]
    for index in range(len(planned), len(planned) + SPARE_UNITS):
        layer.inner.weight[index] = _random_rows(width, generator)[0]
        layer.outer.weight[-SCRATCH:, index] = torch.randn(SCRATCH, generator=generator)


def write_embeddings(planner: Planner, task: ProgramTask, model: Any) -> None:
    program, places = planner.program, planner.positions
    if isinstance(task, PairProgramTask):
        source, target = (v.encode for v in (task.source_vocabulary, task.target_vocabulary))
        write_tokens(model.source_embedding.weight, planner.tokens["input"], EOS, source(program.alphabet), model.scale)
        symbols = target(program.alphabet_of("output"))
        write_tokens(model.target_embedding.weight, planner.tokens["output"], BOS, symbols, model.scale)
        for positions, columns in (
            (model.source_positions, places["input"]),
            (model.target_positions, places["output"]),
        ):
            positions.weight[range(len(columns)), list(columns)] = 1.0
        return
    table = model.embedding.weight if program.family == "decoder-only" else model.embedding.weight.T
    write_tokens(table, planner.tokens["input"], 0, range(1, 1 + len(program.alphabet)))
    # The additional step has no index.
    model.positions.weight[range(1, 1 + len(places["input"])), list(places["input"])] = 1.0
    if program.family == "encoder":
        model.queries[:, ONE] = 1.0
        model.queries[range(program.outputs), list(places["output"])] = 1.0


def write_tokens(table: Tensor, columns: range, mark: int, symbols: Sequence[int], scale: float = 1.0) -> None:
    """Set an embedding (V, D) that the model multiplies by `scale`. `mark`: token of the additional step."""
    table[:, ONE] = 1 / scale
    table[mark, MARK] = 1 / scale
    table[list(symbols), list(columns)] = 1 / scale


def write_answers(planner: Planner, task: ProgramTask, layer: nn.Linear) -> None:
    result, width = planner.result, layer.in_features
    if isinstance(task, EncoderProgramTask):
        rows, missing = list(range(len(task.values) - len(result.values), len(task.values))), 0
    elif isinstance(task, PairProgramTask):
        rows, missing = task.target_vocabulary.encode("".join(map(str, result.values))), EOS
    else:
        rows, missing = [task.vocabulary.index(str(value)) for value in result.values], None
    layer.weight[rows] = LOGIT * result.matrix[:, :width]
    if result.nullable and missing is not None:
        layer.weight[missing, ONE] = LOGIT / 2
