"""Found models: a teacher hides a program in weights, and learners say which head does what. `hide_program` writes a
folder for learners and a key. `score_claims` compares the selected steps of the claims with the key."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import torch

from regard.attention.layer import attention_layers
from regard.attention.names import short_name
from regard.errors import InputError, check_range
from regard.io import DamageError, damaged_file, read_json, write_new
from regard.models.base import TaskModel
from regard.result import Result, to_plain
from regard.runs.run_types import AnyRun
from regard.streams import make_generator
from regard.training.config import find_model
from regard.training.run_folder import digest_tensors, pack_tensors, read_tensors
from regard_course.program_tables import WrittenProgram
from regard_course.puzzles.models import Place, compile_puzzle, show_place
from regard_course.puzzles.puzzle import NO_VALUE, TEXTS, Puzzle
from regard_course.puzzles.verdict import answers_of, load_program
from regard_course.sandbox import ForkServer
from regard_lab.bench.known_models import RUNS, run_compiled
from regard_lab.programs.compiler import Circuit, Compiled
from regard_lab.programs.language import (
    Expression,
    Family,
    Program,
    Selector,
    aggregate,
    indices,
    select,
    steps,
    tokens,
)
from regard_lab.programs.planner import Reading
from regard_lab.programs.task import START, make_task

MOST_INPUTS = 20_000
"""Largest number of inputs of a found model."""
HEAD = re.compile(r"(layer\d+|answer|reader)_head\d+")
"""Names of claims."""
REMEDY = "ask your teacher for the file again"


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerTable(Program):
    """A program of which only the answers are known."""

    table: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def answer(self, text: str, answer: str = "") -> list[Any]:
        del answer
        shown = [None if value == NO_VALUE else value for value in self.table[text]]
        return shown + [None] * (self.outputs - len(shown) if self.family == "encoder" else 0)


def claim_name(place: Place) -> str:
    """Return the name of a head in a file of claims.

    >>> claim_name(("encoder.1.self_attention", 0)), claim_name(("cross", 2))
    ('layer1_head0', 'answer_head2')
    """
    return show_place(place).replace(" head ", "_head").replace(" ", "")


def hide_program(path: Path, puzzle: Puzzle, folder: Path, server: ForkServer, *, seed: int = 0) -> list[Path]:
    """Write the model of a program to a folder for learners, and the key beside the folder. Return the paths. `seed`:
    of the heads. Raises `InputError` if the program cannot be compiled, or a file exists."""
    if len(puzzle.alphabet) ** puzzle.longest > MOST_INPUTS:
        raise InputError(
            f"{len(puzzle.alphabet)} letters and {puzzle.longest} steps give more than {MOST_INPUTS:,} inputs: "
            f"choose fewer"
        )
    program = load_program(path, puzzle.alphabet, puzzle.longest, server)
    answers = {text: answers_of(program, program.answer, puzzle, text) for text in puzzle.inputs}
    whole = compile_puzzle(puzzle, program, seed=seed)
    compiled, task = whole.compiled, cast(Any, whole.compiled.task)
    values = task.vocabulary[1:] if puzzle.causal else [value for value in task.values if value is not None]
    sizes = {"alphabet": puzzle.alphabet, "longest": puzzle.longest, "causal": puzzle.causal}
    model = {**sizes, "values": values, "answers": answers, "model": to_plain(compiled.config)}
    selectors = {place: program.selectors[name] for place, name in whole.heads.items()}
    if not puzzle.causal:
        selectors["cross", 0] = select(indices, indices)  # each answer reads its own step
    key: dict[str, Any] = {
        claim_name(new): None if old not in selectors else _rows(puzzle, selectors[old])
        for new, old in _shuffle_heads(compiled.model, seed).items()
    }
    lines = "\n".join(f"{name} = ..." for name in key)
    digest = digest_tensors(compiled.model.state_dict())[:12]
    claims = TEXTS["claims"].format(folder=folder.name, heads=lines, digest=digest)
    keys = json.dumps({**sizes, "model": digest, "heads": key})
    return write_new(
        {
            folder / "model.safetensors": pack_tensors(compiled.model.state_dict(), 0),
            folder / "model.json": json.dumps(model, ensure_ascii=False).encode(),
            folder / "claims.py": claims.encode(),
            folder.with_name(f"{folder.name}-key.json"): keys.encode(),
        }
    )


def _rows(puzzle: Puzzle, selector: Selector) -> dict[str, list[list[int]]]:
    return {text: puzzle.evaluation(text).selected(selector) for text in puzzle.inputs}


@torch.no_grad()
def _shuffle_heads(model: TaskModel, seed: int) -> dict[Place, Place]:
    """Change the order of the heads in each layer. Return the old place of the head at each new place."""
    generator, old = make_generator(seed, "found model"), dict[Place, Place]()
    for name, attention in attention_layers(model).items():
        layer: Any = attention
        order = torch.randperm(layer.heads, generator=generator)
        for projection in (layer.query, layer.key, layer.value):
            rows = projection.weight.unflatten(0, (layer.heads, -1))
            projection.weight.copy_(rows[order].flatten(0, 1))
        columns = layer.output.weight.unflatten(1, (layer.heads, -1))
        layer.output.weight.copy_(columns[:, order].flatten(1, 2))
        short = short_name(name)
        old |= {(short, new): (short, int(head)) for new, head in enumerate(order)}
    return old


def load_found(folder: Path) -> AnyRun:
    """Return a found model as a run, for `regard.show` and explanations. Raises `InputError` if there is none."""
    content = read_json(folder / "model.json", dict[str, Any], REMEDY)
    try:
        causal, table = bool(content["causal"]), content["answers"]
        family: Family = "decoder-only" if causal else "encoder"
        program = AnswerTable(
            name="found",
            summary="a found model",
            family=family,
            alphabet=content["alphabet"],
            longest=content["longest"],
            outputs=content["longest"],
            result=tokens if causal else aggregate(select(indices, steps), tokens),
            table=table,
        )
        task: Any = make_task(program, Reading(tuple(content["values"]), torch.zeros(0), 0, nullable=True))
        model_class: Any = find_model(RUNS[family][0])
        config = model_class.config_class(**content["model"])
        model = model_class(config, **task.sizes)
        model.load_state_dict(read_tensors(folder / "model.safetensors").tensors)
    except (KeyError, TypeError, ValueError, RuntimeError, DamageError) as error:
        raise damaged_file(folder, error, REMEDY) from error
    nothing = Circuit(task, {}, {}, {}, frozenset(), {}, {})
    return run_compiled(Compiled(program, task, config, model.eval(), nothing))


Verdict = Literal["right", "wrong", "no claim"]


@dataclass(frozen=True, kw_only=True)
class ScoredClaim:
    """A claim about one head."""

    head: str
    needed: bool
    """Whether an answer needs the head."""
    verdict: Verdict
    words: str = ""


@dataclass(frozen=True, kw_only=True, repr=False)
class ClaimReport(Result):
    """Result of the claims about a found model."""

    claims: list[ScoredClaim]

    def summary(self) -> str:
        counts = []
        for needed in (True, False):
            claims = [claim for claim in self.claims if claim.needed == needed]
            right = sum(claim.verdict == "right" for claim in claims)
            counts.append(f"{right} of {len(claims)} heads that {'answers need' if needed else 'no answer needs'}")
        return f"right: {counts[0]}, and {counts[1]}"

    def table(self) -> str:
        lines = [
            f"  {claim.head:14} {claim.verdict}{': ' if claim.words else ''}{claim.words}" for claim in self.claims
        ]
        return "\n".join([self.summary(), *lines])

    __str__ = table


def score_claims(path: Path, key_path: Path, server: ForkServer) -> ClaimReport:
    """Compare the claims in a learner's file with a key. Raises `InputError` if they do not belong together."""
    key = read_json(key_path, dict[str, Any], REMEDY)
    try:
        puzzle = own_puzzle(key["alphabet"], key["longest"], causal=key["causal"])
        heads: dict[str, Any] = dict(key["heads"])
    except (KeyError, TypeError) as error:
        raise damaged_file(key_path, error, "write it again with --hide") from error
    program = load_program(path, puzzle.alphabet, puzzle.longest, server)
    _check_model(path, program, key_path, key)
    claims = []
    for name, rows in heads.items():
        claim, kind = program.named.get(name), program.others.get(name)
        if kind == "NoneType":
            words = "" if rows is None else "answers need this head"
        elif kind or isinstance(claim, Expression):
            words = f"not a selector, but {kind or 'an expression'}: write select(keys, queries), or None"
        elif claim and rows is None:
            words = "no answer needs this head: None is right"
        else:
            words = _difference(puzzle, claim, rows) if claim else ""
        verdict: Verdict = "wrong" if words else "right" if claim or kind else "no claim"
        claims.append(ScoredClaim(head=name, needed=rows is not None, verdict=verdict, words=words))
    return ClaimReport(claims=claims)


def _check_model(path: Path, program: WrittenProgram, key_path: Path, key: Mapping[str, Any]) -> None:
    """Raise `InputError` if the claims are about another model than that of the key."""
    model = re.search(r"^Model: (\w+)$", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    if model is not None and model[1] != key.get("model", model[1]):
        raise InputError(
            f"{path.name} has claims about the model {model[1]}, but {key_path.name} is the key of "
            f"{key['model']}: give the key beside the model's folder"
        )
    names = [name for name in (*program.named, *program.others) if HEAD.fullmatch(name)]
    if wrong := [name for name in names if name not in key["heads"]]:
        raise InputError(
            f"{path.name} has a claim about {wrong[0]}, which the model of {key_path.name} does not have: its "
            f"heads are {', '.join(key['heads'])}"
        )


def _difference(puzzle: Puzzle, claim: Selector, rows: Mapping[str, list[list[int]]]) -> str:
    """Return how the claimed selection differs, with the first such input, or an empty text."""
    claimed = _rows(puzzle, claim)
    pairs = [(text, step) for text in rows for step in range(len(text))]
    wrong = [(text, step) for text, step in pairs if claimed[text][step] != rows[text][step]]
    if not wrong:
        return ""
    share, (text, step) = 1 - len(wrong) / len(pairs), wrong[0]
    return f"{share:.0%} of the steps agree; in {text!r}, step {step} selects {claimed[text][step]} by your claim"


def own_puzzle(alphabet: str, longest: int, *, causal: bool) -> Puzzle:
    """Return a task without right answers, for a teacher's own program. Raises `InputError` for other letters."""
    if not alphabet or len(set(alphabet)) < len(alphabet) or START in alphabet or not alphabet.isprintable():
        raise InputError(f"alphabet {alphabet!r} must have different letters, and no {START}, as in abcd")
    check_range("longest", longest, 1, 16)
    return Puzzle(
        name="found", title="", task="", solve=list, example="", alphabet=alphabet, longest=longest, causal=causal
    )
