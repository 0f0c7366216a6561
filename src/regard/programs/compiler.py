"""Compile a program to the weights of a model: `DecoderOnly`, `Transformer`, or `QueryModel` for encoders.

The models have no normalization, so each layer adds exactly what its heads and units write. A head's score is the
number of true comparisons times `SCORE`; an aggregate gives all other steps weights below 1e-6, and gradients
through the softmax stay above zero in float32. `planner` decides which head computes what.

Heads and units that no expression needs are filled at random, so that "not needed" heads exist in numbers. They
read the whole stream and write to `SCRATCH` dimensions that nothing else reads: in turn a loud head (8 times the
norm of a planted head), a quiet head (0.3 times), and a silent head, whose values are zero."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from regard.attention import FeedForward, attention_layers, short_name
from regard.data import BOS, EOS
from regard.models import (
    DecoderOnly,
    DecoderOnlyConfig,
    ModelConfig,
    QueryModel,
    QueryModelConfig,
    TaskModel,
    Transformer,
    TransformerConfig,
)
from regard.programs.circuit import Circuit, make_circuit
from regard.programs.planner import PlannedHead, Planner
from regard.programs.program import Program
from regard.programs.readings import MARK, ONE, WIDTH, unit_rows
from regard.programs.task import EncoderProgramTask, PairProgramTask, ProgramTask, make_task
from regard.streams import make_generator

SCORE = 30.0
"""Score of one comparison. The additional step is half a comparison below a selected step: exp(-15) = 3e-7."""
LOGIT = 12.0
"""Logit of the answer; all other logits are 0, or half of it for the answer None."""
SCRATCH = 4
"""Dimensions to which unneeded heads and units write."""
SPARE_HEADS = 2
"""Smallest number of unneeded heads in each attention layer."""
SPARE_UNITS = 4
"""Number of unneeded units in each feed-forward layer."""
LEAST_HEADS = 4
GAINS = (8.0, 0.3, 0.0)
"""Norms of what spare heads write: loud, quiet and silent heads."""


@dataclass(frozen=True)
class Compiled:
    """A compiled program."""

    program: Program
    task: ProgramTask
    config: ModelConfig
    """Options of the model."""
    model: TaskModel
    circuit: Circuit
    """What is known about the model."""


@torch.no_grad()
def compile_program(program: Program, *, seed: int = 0, spare_heads: int = SPARE_HEADS) -> Compiled:
    """Return the model that computes a program. Its answers are those of the program for every input.

    `seed`: of the unneeded heads and units. `spare_heads`: smallest number of unneeded heads in each layer.
    Raises `InputError` for an expression that the family of models cannot compute.

    >>> from regard.programs import PROGRAMS
    >>> compiled = compile_program(PROGRAMS["reverse"])
    >>> compiled.program.write("abc"), compiled.circuit.needed["decoder.0.cross"]
    ('cba', (True, False, False, False))
    """
    return assemble(Planner(program), seed=seed, spare_heads=spare_heads)


@torch.no_grad()
def assemble(planner: Planner, *, seed: int = 0, spare_heads: int = SPARE_HEADS) -> Compiled:
    """Return the model with the heads and units of a plan; arguments as in `compile_program`."""
    task = make_task(planner.program, planner.result)
    sizes = ModelSizes.of(planner, spare_heads)
    config, model = make_model(planner, task, sizes)
    write_weights(planner, task, model, sizes, make_generator(seed, planner.program.name))
    layers = {short_name(name): layer.heads for name, layer in attention_layers(model).items()}
    return Compiled(planner.program, task, config, model.eval(), make_circuit(planner, task, layers))


class ModelSizes(NamedTuple):
    """Sizes of a compiled model."""

    heads: int
    head_width: int
    width: int
    inner: int

    @classmethod
    def of(cls, planner: Planner, spare_heads: int) -> Self:
        """Return the smallest sizes for all heads, units and dimensions of a plan."""
        heads = max([len(heads) + spare_heads for heads in planner.heads.values()], default=0)
        heads = max(heads, LEAST_HEADS)
        planned = [head for heads in planner.heads.values() for head in heads]
        head_width = max([len(part) for head in planned for part in (score_rows(head)[0], head.value)] or [1])
        inner = max([len(units) for units in planner.units.values()], default=0) + SPARE_UNITS
        needed = max(*planner.width.values(), inner / 2) + SCRATCH  # encoder layers have two units per dimension
        head_width = max(head_width, math.ceil(needed / heads))
        return cls(heads, head_width, heads * head_width, inner)


def make_model(planner: Planner, task: ProgramTask, sizes: ModelSizes) -> tuple[ModelConfig, TaskModel]:
    """Return an untrained model without normalization, and its options."""
    layers, own = planner.depth, dict[str, Any](task.sizes)
    if planner.program.family == "decoder-only":
        decoder = DecoderOnlyConfig(
            hidden=sizes.width,
            layers=max(layers["input"], 1),
            heads=sizes.heads,
            inner=sizes.inner,
            positions="learned",
            activation="relu",
            tied=False,
            norm="none",
        )
        return decoder, DecoderOnly(decoder, **own)
    if planner.program.family == "encoder-decoder":
        pair = TransformerConfig(
            hidden=sizes.width,
            enc_layers=max(layers["input"], 1),
            dec_layers=max(layers["output"], 1),
            heads=sizes.heads,
            inner=sizes.inner,
            positions="learned",
            tied=False,
            dropout=0.0,
            norm="none",
        )
        return pair, Transformer(pair, **own)
    query = QueryModelConfig(
        hidden=sizes.width,
        enc_layers=layers["input"],
        multihead=True,
        heads=sizes.heads,
        pos_enc=True,
        norm="none",
    )
    return query, QueryModel(query, **own)


def score_rows(head: PlannedHead) -> tuple[Tensor, Tensor]:
    """Return what the queries and the keys of a head read, (dimensions, WIDTH) each.

    Their product is the number of true comparisons, and the default at the additional step.
    """
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


def write_weights(
    planner: Planner, task: ProgramTask, model: Any, sizes: ModelSizes, generator: torch.Generator
) -> None:
    """Set all weights of a model."""
    for parameter in model.parameters():
        parameter.zero_()
    write_embeddings(planner, task, model)
    for name, layer in attention_layers(model).items():
        write_heads(planner.heads.get(short_name(name), []), layer, sizes, generator)
    for name, layer in model.named_modules():
        if isinstance(layer, FeedForward):
            write_units(planner.units.get(short_name(name), []), layer, generator)
    write_answers(planner, task, model.output)


def write_heads(
    planned: Sequence[PlannedHead], layer: Any, sizes: ModelSizes, generator: torch.Generator
) -> None:
    """Set the weights of an attention layer."""
    size, width = sizes.head_width, sizes.width
    for index in range(sizes.heads):
        begin = index * size
        if index < len(planned):
            query, key = score_rows(planned[index])
            query = query * SCORE * math.sqrt(size)  # scores are divided by the root of the head width
            value, columns = planned[index].value, list(planned[index].columns)
            output = torch.eye(len(columns))
        else:
            columns = list(range(width - SCRATCH, width))
            query, key, value = (torch.randn(SCRATCH, WIDTH, generator=generator) for _ in range(3))
            output = torch.eye(SCRATCH) * GAINS[(index - len(planned)) % len(GAINS)]
        for projection, rows in ((layer.query, query), (layer.key, key), (layer.value, value)):
            projection.weight[begin : begin + len(rows)] = rows[:, :width]
        layer.output.weight[columns, begin : begin + len(value)] = output


def write_units(planned: Sequence[tuple[Tensor, Tensor]], layer: FeedForward, generator: torch.Generator) -> None:
    """Set the weights of a feed-forward layer."""
    width = layer.inner.in_features
    for index, (inner, outer) in enumerate(planned):
        layer.inner.weight[index], layer.outer.weight[:, index] = inner[:width], outer[:width]
    for index in range(len(planned), len(planned) + SPARE_UNITS):
        layer.inner.weight[index] = torch.randn(width, generator=generator)
        layer.outer.weight[-SCRATCH:, index] = torch.randn(SCRATCH, generator=generator)


def write_embeddings(planner: Planner, task: ProgramTask, model: Any) -> None:
    """Set embeddings and positions."""
    program, places = planner.program, planner.positions
    if isinstance(task, PairProgramTask):
        source, target = (v.encode for v in (task.source_vocabulary, task.target_vocabulary))
        write_tokens(
            model.source_embedding.weight, planner.tokens["input"], EOS, source(program.alphabet), model.scale
        )
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
    """Set the output layer."""
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
