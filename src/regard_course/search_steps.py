"""Find the first step at which a learner's search leaves the right one, by the calls of the model, `step`, and by the
sums of log-probabilities among all numbers of the run."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from regard_course.arrays import Outputs, equal_arrays
from regard_course.diagnosis import SmallExample
from regard_course.exercises.exercise import Exercise
from regard_course.inputs import MESSAGES, Array, Case, RandomLanguageModel
from regard_course.mistakes.known import TEXTS
from regard_course.mistakes.solution import Beam
from regard_course.recording import SearchRun
from regard_course.report import Finding
from regard_course.translated import say

WORDS: dict[str, str] = MESSAGES["search"]
PAPERS = {"call": "tokens_so_far", "token": "greedy", "sums": "log_sums", "beam": "beam", "score": "length"}
Difference = tuple[str, int | str, str, str, str]
"""The kind of the quantity, its step or name, a sentence, the learner's value and the right one."""


class RightSearch:
    """The run of the right solution with one input."""

    def __init__(self, exercise: Exercise, case: Case) -> None:
        self.calls: list[list[list[float]]] = []
        """The lists of tokens that the model receives in each step."""
        self.beams: list[Beam] = []
        """The beam after each step; none for greedy search."""
        base = exercise.base

        def step(tokens: list[int]) -> Array:
            if len(tokens) > len(self.calls):
                self.calls.append([])
            self.calls[-1].append([float(token) for token in tokens])
            return np.asarray(case.arguments["step"](tokens))

        def prune(solution: Any, *arguments: Any) -> Beam:
            self.beams.append(base.prune(solution, *arguments))
            return self.beams[-1]

        solution = type("RecordedSearch", (base,), {"prune": prune})
        getattr(solution(), exercise.name)(**{**case.arguments, "step": step})

    def match(self, calls: Sequence[list[float]]) -> tuple[int, list[list[float]], list[float] | None]:
        """Return how many calls are right, the missing calls of the next step, and the first wrong call or None. A step
        may call the model in any order, and again with the same tokens if right calls follow."""
        number, missing = 0, list[list[float]]()
        for step in self.calls:
            missing, place = list(step), number
            while missing and place < len(calls) and (calls[place] in missing or calls[place] in calls[:number]):
                if calls[place] in missing:
                    missing.remove(calls[place])
                    number = place + 1
                place += 1
            if missing:
                break
        following = calls[number:]
        new = [call for call in following if call not in calls[:number]]
        return number, missing, (*new[:1], *(following[:1] if missing else ()), None)[0]


def is_search(case: Case) -> bool:
    return isinstance(case.arguments.get("step"), RandomLanguageModel)


def find_search_step(
    exercise: Exercise, case: Case, runs: Sequence[Sequence[Array]], outputs: Outputs | None
) -> Finding:
    """Return the first difference of the run that stays right longest. runs: an encoded `SearchRun` for each way to
    call the code. outputs: the learner's results, or None after an error."""
    right = RightSearch(exercise, case)
    run = max(map(SearchRun.decode, runs or [[]]), key=lambda run: right.match(run.calls)[0])
    difference = (
        _compare_calls(case, right, run, outputs)
        or _compare_sums(right, run, len(right.beams))
        or _compare_answers(exercise, case, right, run, outputs)
    )
    kind, step, told, yours, should = difference
    shown = say("the input '{0}'", say(case.name))
    return Finding(
        name=kind,
        did=say(MESSAGES["first"], say(WORDS[kind], step)),
        instead=told,
        paper=say(TEXTS["papers"][PAPERS.get(kind, "tokens")]),
        example=SmallExample(exercise=exercise.name, inputs=shown, right=should, wrong=yours),
    )


def _compare_calls(case: Case, right: RightSearch, run: SearchRun, outputs: Outputs | None) -> Difference | None:
    """Return the first difference between the calls of the model, or None."""
    number, missing, call = right.match(run.calls)
    if not missing and call is None:
        return None
    step, before = len(missing[0]) if missing else len(right.calls) + 1, run.calls[:number]
    reason = _fault(case, call, before) if call is not None else ""
    if not reason and missing and (difference := _compare_sums(right, run, step - 1)):
        return difference
    yours, should = (
        _show_call(tokens) if tokens is not None else say(WORDS["end"]) for tokens in (call, (*missing, None)[0])
    )
    told = [say(WORDS["differs"], step, yours, should), *([say(WORDS[reason])] if reason else [])]
    if reason in ("whole_list", "no_start", "again", "shared") or step == 1:
        return "call", step, " ".join(told), yours, should
    chosen = _plain(outputs[0].reshape(-1))[step - 2 :] if outputs is not None and missing else []
    if not right.beams and chosen and chosen[0] != missing[0][-1]:
        return _compare_token(step - 1, chosen[0], int(missing[0][-1]))
    return "beam" if right.beams else "token", step - 1, " ".join(told), yours, should


def _fault(case: Case, call: list[float], before: Sequence[list[float]]) -> str:
    """Return the name of the sentence on the tokens of a wrong call, or an empty text."""
    start, end = float(case.arguments["start"]), float(case.arguments["end"])
    faults = {
        "whole_list": np.isnan(call[:1]).any(),
        "not_whole": any(not token.is_integer() for token in call),
        "no_start": call[:1] != [start],
        "again": call in before,
        "shared": len(call) > 1 and call[:-1] not in before,
        "ended": end in call[1:],
        "too_long": len(call) > case.arguments["longest"],
    }
    return next((name for name, is_fault in faults.items() if is_fault), "")


def _compare_sums(right: RightSearch, run: SearchRun, steps: int) -> Difference | None:
    """Return the first sum of a beam that does not occur in the learner's run, as a logarithm or a probability."""
    for step, beam in enumerate(right.beams[:steps], 1):
        for total, tokens in beam:
            if not any(run.has(number, tokens) for number in (total, -total, math.exp(total))):
                return "sums", step, *_missing_number(run, tokens, total)
    return None


def _missing_number(run: SearchRun, tokens: list[int], number: float) -> tuple[str, str, str]:
    own = run.numbers_of(tokens)
    yours = f"{own[-1]:.4g}" if own else say(WORDS["no_number"])
    return say(WORDS["lacks"], tokens[1:], f"{number:.4g}"), yours, f"{number:.4g}"


def _compare_answers(
    exercise: Exercise, case: Case, right: RightSearch, run: SearchRun, outputs: Outputs | None
) -> Difference:
    """Return the first difference after the last call of the model."""
    expected = exercise.expected(case)
    answer, wanted = (_plain(part[0].reshape(-1)) if part is not None else [] for part in (outputs, expected))
    if right.beams:
        step, beam = len(right.beams), [tokens[1:] for _, tokens in right.beams[-1]]
        if outputs is not None and answer not in beam and len(answer) == len(beam[0]):
            shown = str(beam)[1:-1]
            return "beam", step, say(WORDS["not_in_beam"], answer, step, shown), str(answer), shown
        alpha = case.arguments["alpha"]
        score, best = max((total / (len(tokens) - 1) ** alpha, tokens) for total, tokens in right.beams[-1])
        if not run.has(score) and not run.has(-score):
            return "score", step, *_missing_number(run, best, score)
    last = len(right.calls) - 1  # the calls contain the tokens before
    if not right.beams and len(answer) == len(wanted) == last + 1 and answer[:last] == wanted[:last]:
        return _compare_token(last + 1, answer[last], wanted[last])
    pairs = list(zip(exercise.outputs, outputs or expected, expected, strict=False))
    name, *values = next((pair for pair in pairs if not equal_arrays(*pair[1:])), pairs[0])
    yours, should = (str(_plain(value)) for value in values)
    kind, yours = ("fails", say("an error")) if outputs is None else ("returns", yours)
    return "returned", say(name), say(MESSAGES[kind], say(WORDS["returned"], say(name))), yours, should


def _compare_token(step: int, mine: float, right: int) -> Difference:
    told = [say(WORDS["differs"], step, mine, right), *([] if isinstance(mine, int) else [say(WORDS["not_whole"])])]
    return "token", step, " ".join(told), str(mine), str(right)


def _plain(value: Array) -> Any:
    """Return numbers to show: whole numbers as integers."""
    numbers = [int(number) if float(number).is_integer() else round(float(number), 4) for number in value.reshape(-1)]
    return numbers if value.ndim else numbers[0]


def _show_call(tokens: Sequence[float]) -> str:
    """Return a call of the model. A call with a single token is encoded with NaN before it."""
    numbers = _plain(np.array([token for token in tokens if not math.isnan(token)]))
    return f"step({numbers[0] if len(numbers) < len(tokens) else numbers})"
