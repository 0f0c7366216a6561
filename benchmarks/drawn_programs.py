"""Random programs and planted heads in models whose circuit is known, for error rates that need more than the library.

A program answers with a random function of two pieces: the token at some step, the number of some tokens, what
followed the same token before, and so on. Every third model of a family has redundant or cancelling heads.

>>> drawn_model(0).name, drawn_model(0).family
('drawn-0', 'decoder-only')
"""

import operator
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.attention.layer import attention_layers
from regard_lab.bench.known_models import Kind, KnownModel, KnownModelChoice, run_compiled
from regard_lab.programs.compiler import Compiled, Spares, assemble
from regard_lab.programs.language import (
    Aggregate,
    Attended,
    Average,
    Expression,
    Family,
    Program,
    Selector,
    aggregate,
    average,
    constant,
    elementwise,
    indices,
    select,
    select_all,
    steps,
    tokens,
    width,
)
from regard_lab.programs.library import INDUCTION, earlier, follower, mirrored, number_of, rank, token_at
from regard_lab.programs.planner import HeadTruth, PlannedSet, Planner, unit_rows
from regard_lab.programs.traps import LOUD, SPARES, BackupPlanner, SummingPlanner, add_head

FAMILIES: tuple[Family, ...] = ("decoder-only", "decoder-only", "decoder-only", "encoder", "encoder-decoder")
"""Families in turn. Most models are decoder-only, because only these can have induction heads."""
Piece = Callable[[random.Random, str], Expression]
"""Returns an expression for a choice of its constants and for the alphabet."""
same_elsewhere = select(tokens, tokens) & select(indices, indices, operator.ne)
PIECES: dict[str, Piece] = {
    "previous": lambda chance, letters: token_at(earlier(1)),
    "skip": lambda chance, letters: token_at(earlier(2)),
    "next": lambda chance, letters: token_at(earlier(-1)),
    "mirrored": lambda chance, letters: token_at(mirrored),
    "fixed": lambda chance, letters: token_at(constant(chance.choice([0, 1, 2]))),
    "count": lambda chance, letters: number_of(chance.choice(letters)),
    "length": lambda chance, letters: width(select_all()),
    "repeats": lambda chance, letters: width(select(tokens, tokens)),
    "occurred": lambda chance, letters: aggregate(same_elsewhere, tokens),
    "contains": lambda chance, letters: aggregate(select(tokens, constant(chance.choice(letters))), tokens),
    "induction": lambda chance, letters: follower(tokens),
    "own": lambda chance, letters: tokens,
}
"""What a random function answers from."""
UNREAD: dict[str, Attended] = {
    "previous": Aggregate("input", select(indices, indices.map(lambda index: index - 1)), tokens),
    "next": Aggregate("input", select(indices, indices.map(lambda index: index + 1)), tokens),
    "own": Aggregate("input", select(indices, indices), tokens),
    "second": Aggregate("input", select(indices, constant(1)), tokens),
    "same": Aggregate("input", same_elsewhere, tokens),
    "symbol": Aggregate("input", select(tokens, constant("b")), tokens),
    "everything": Average("input", select_all(), None),
}
"""What heads attend to that write nothing."""
AVAILABLE: dict[Family, tuple[str, ...]] = {
    "decoder-only": tuple(name for name in PIECES if name not in ("next", "mirrored")),
    "encoder": tuple(name for name in PIECES if name not in ("induction", "own")),
    "encoder-decoder": tuple(name for name in PIECES if name not in ("induction", "own", "repeats")),
}
ALONE = 0.3
"""Probability of a program with one piece."""
PLACES: tuple[Expression, ...] = (indices, mirrored, rank)
"""Places among which a written answer reads its symbols."""


def drawn_model(number: int, family: Family | None = None) -> KnownModel:
    """Return the random program `number`, compiled; the same number gives the same model. `family`: by default
    all families in turn."""
    chance = random.Random(f"program/{number}")
    family = family or FAMILIES[number % len(FAMILIES)]
    letters = "abcd"[: chance.choice([3, 4])]
    longest = chance.choice([4, 5] if family == "encoder-decoder" else [5, 6, 7])
    names = chance.sample(AVAILABLE[family], 1 if chance.random() < ALONE else 2)
    if family == "decoder-only" and number % 2 and "induction" not in names:
        names[0] = "induction"
    parts = {name: PIECES[name](chance, letters) for name in names}
    combined = elementwise(_random_function(number, letters), *(part.otherwise("-") for part in parts.values()))
    result = combined
    if family == "encoder":
        result = aggregate(select(indices, steps), combined)
    elif family == "encoder-decoder":
        result = aggregate(select(chance.choice(PLACES), steps), combined)
    program = Program(
        name=f"drawn-{number}",
        summary=" and ".join(sorted(names)),
        family=family,
        alphabet=letters,
        result=result,
        longest=longest,
        outputs=1 if family == "decoder-only" else longest,
        roles={part: INDUCTION for name, part in parts.items() if name == "induction"},
    )
    compiled = _compile(program, number)
    return KnownModel(program.name, "compiled", family, number, run_compiled(compiled, number), compiled.circuit)


def _random_function(number: int, letters: str) -> Callable[..., str]:
    """Return a function of one or two values whose result is a random letter for each of them."""
    return lambda *values: random.Random(f"{number}/{values!r}").choice(letters)


def _compile(program: Program, number: int) -> Compiled:
    """Return the compiled program, of which some have redundant heads and some cancelling heads."""
    variant = number % 3 if program.family == "decoder-only" else 0
    if variant == 1:
        return assemble(SummingPlanner(program, copies=2, truth=REDUNDANT), seed=number, spares=SPARES)
    planner = Planner(program)
    if variant == 2:
        _add_opposing(planner, number)
    for name in random.Random(f"unread/{number}").sample(list(UNREAD), 3):
        add_head(planner, UNREAD[name], unit_rows(range(0)), [])
    return assemble(planner, seed=number)


def _add_opposing(planner: Planner, number: int, gains: Sequence[float] = (1.0, -1.0)) -> None:
    """Add heads that write large vectors to the answer, which cancel each other."""
    generator = torch.Generator().manual_seed(number)
    columns = planner.result.matrix.any(0).nonzero().flatten().tolist()
    read = planner.read(tokens).matrix
    value = LOUD * torch.randn(len(columns), len(read), generator=generator) @ read
    everywhere = Average("input", Selector("input", "input"), None)
    nodes = [add_head(planner, everywhere, gain * value, columns) for gain in gains]
    planner.truths |= dict.fromkeys(nodes, HeadTruth(needed=True, used=False, sufficient=False))
    planner.sets.append(PlannedSet("oppose", tuple(nodes)))


# Planted heads: small models of each kind.

REDUNDANT = HeadTruth(needed=None, used=True, sufficient=True)
EACH = 5
"""Number of models of each kind."""
MORE = {"redundant": 7, "backup": 9}
"""Kinds with more models, whose verdicts are rare."""
NAMED: dict[str, tuple[tuple[Kind, str], ...]] = {
    "compiled": tuple(("compiled", name) for name in ("count", "first", "repeated", "copy", "distinct")),
    "trained in": (("trained-in", "previous"),) * EACH,
    "learned": tuple(("learned", name) for name in ("counting", "counting", "difference", "difference", "signal")),
    "trap": tuple(("trap", name) for name in ("loud", "sink", "decoy", "saturation", "constant-heads")),
}
"""Kinds whose models have a name in `regard bench`."""
PLANTED = (*NAMED, "redundant", "backup", "cancelling", "empty", "tiny", "moved", "diffuse", "previous", "induction")
OPPOSING = ((1.0, -1.0), (1.0, -0.998), (0.5, 0.5, -1.0), (1.0, -0.4, -0.6), (-0.7, 0.702))
"""Gains of the heads of each cancelling set."""
READ: tuple[Expression, ...] = tuple(
    token_at(part) for part in (earlier(1), earlier(2), constant(0), constant(1), indices.map(lambda i: i - i % 2))
)
"""What a planted head reads."""


def planted_model(kind: str, number: int, folder: Path) -> KnownModel:
    """Return model `number` of a kind in `PLANTED`. `folder`: of trained models."""
    if kind in NAMED:
        source, name = NAMED[kind][number]
        return KnownModelChoice(name, source).build(number, folder)
    chance, name = random.Random(f"planted/{kind}/{number}"), f"{kind}-{number}"
    first, second = chance.sample(READ, 2)
    expression = elementwise(_random_function(number, "abcd"), first.otherwise("-"), tokens)
    roles: dict[Expression, str] = {}
    if kind == "moved":
        expression = aggregate(select(indices, indices.map(lambda index: index - 1)), first.otherwise("-"))
    elif kind in ("previous", "induction"):
        first = follower(tokens) if kind == "induction" else READ[0]
        roles = {first: INDUCTION} if kind == "induction" else {}
        parts = (first, tokens) if number % 2 else (first,)
        expression = elementwise(_random_function(number, "abcd"), *(part.otherwise("-") for part in parts))
    elif kind in ("empty", "tiny"):
        expression = elementwise(_random_function(number, "abcd"), first.otherwise("-"), second.otherwise("-"))
    elif kind == "diffuse" and number >= 3:
        letters = "ab" if number == 3 else "bc"
        score = average(select_all(), tokens.map(lambda token: (token == letters[0]) - (token == letters[1])))
        expression = score.map(lambda mean: "a" if mean > 0 else "b" if mean < 0 else "c")
    program = Program(name, kind, "abcd", expression, family="decoder-only", longest=6, roles=roles)
    planner, spares = Planner(program), Spares(heads=2)
    if kind == "redundant":
        # Any head of two or three is enough; of the last, two of three are.
        truth = REDUNDANT._replace(needed=False) if number == EACH - 1 else REDUNDANT
        threshold, copies = 1.6 if number == EACH - 1 else 0.6, 2 if number < 2 else 3
        planner = SummingPlanner(program, copies=copies, threshold=threshold, truth=truth)
    elif kind == "backup":
        planner = BackupPlanner(program)
    elif kind == "cancelling":
        _add_opposing(planner, number, OPPOSING[number])
    elif kind == "diffuse" and number < 3:
        planner = SummingPlanner(program, copies=4, gain=0.25, truth=REDUNDANT._replace(needed=False))
    elif kind == "empty":
        spares = Spares(heads=3, gains=(0.0,))
    elif kind == "tiny":
        spares = Spares(heads=3, gains=(1e-5, 0.1))
    compiled = assemble(planner, seed=number, spares=spares)
    if kind == "tiny":
        _make_tiny(compiled.model, 10.0 ** -(number + 2))
    return KnownModel(name, "compiled", program.family, number, run_compiled(compiled, number), compiled.circuit)


@torch.no_grad()
def _make_tiny(model: nn.Module, factor: float) -> None:
    """Multiply the values of all heads by a small factor, and divide what is read from them by it."""
    for layer in attention_layers(model).values():
        part: Any = layer
        part.value.weight.mul_(factor)
        part.output.weight.div_(factor)
