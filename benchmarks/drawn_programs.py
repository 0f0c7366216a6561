"""Random programs, compiled to models whose circuit is known, for error rates that need more than the library.

A program answers with a random function of two pieces: the token at some step, the number of some tokens, what
followed the same token before, and so on. Every third model of a family has redundant or cancelling heads.

>>> drawn_model(0).name, drawn_model(0).family
('drawn-0', 'decoder-only')
"""

import operator
import random
from collections.abc import Callable

import torch

from regard_lab.bench.known_models import KnownModel, run_compiled
from regard_lab.programs.compiler import Compiled, assemble
from regard_lab.programs.language import (
    Aggregate,
    Attended,
    Average,
    Expression,
    Family,
    Program,
    Selector,
    aggregate,
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
from regard_lab.programs.planner import HeadTruth, Planner, unit_rows
from regard_lab.programs.traps import LOUD, SPARES, SummingPlanner, add_head

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
    if family == "decoder-only":
        names = ["induction"] if number % 2 else [name for name in names if name != "induction"] or ["skip"]
    parts = {name: PIECES[name](chance, letters) for name in names}
    combined = elementwise(_random_function(number, letters), *(part.otherwise("-") for part in parts.values()))
    result = combined
    if family == "encoder":
        result = aggregate(select(indices, steps), combined)
    elif family == "encoder-decoder":
        result = aggregate(select(chance.choice(PLACES), steps), combined)
    program = Program(
        name=f"drawn-{number}",
        summary="a random function of two pieces",
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
        truth = HeadTruth(needed=None, used=True, sufficient=True)
        return assemble(SummingPlanner(program, copies=2, truth=truth), seed=number, spares=SPARES)
    planner = Planner(program)
    if variant == 2:
        _add_cancelling(planner, number)
    for name in random.Random(f"unread/{number}").sample(list(UNREAD), 3):
        add_head(planner, UNREAD[name], unit_rows(range(0)), [])
    return assemble(planner, seed=number)


def _add_cancelling(planner: Planner, number: int) -> None:
    """Add a pair of heads that write large vectors to the answer, which cancel each other."""
    generator = torch.Generator().manual_seed(number)
    columns = planner.result.matrix.any(0).nonzero().flatten().tolist()
    read = planner.read(tokens).matrix
    value = LOUD * torch.randn(len(columns), len(read), generator=generator) @ read
    for sign in (1.0, -1.0):
        node = add_head(planner, Average("input", Selector("input", "input"), None), sign * value, columns)
        planner.truths[node] = HeadTruth(needed=True, used=False, sufficient=False)
