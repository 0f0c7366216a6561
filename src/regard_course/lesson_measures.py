"""What some lessons measure in their runs, besides the usual measurements of a run.

Each measurement is a fraction (0 to 1), and has a label in `regard_course.lessons.lesson.FIGURES`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.external.logit_lens import read_states
from regard.statistics import auroc
from regard.streams import make_generator
from regard.tasks.batch import IGNORE
from regard_lab.cards.probe_training import average_heads, measure_shares
from regard_lab.doubts.calibration import calibrate_doubt
from regard_lab.doubts.doubt import Doubter

if TYPE_CHECKING:
    from regard.runs.run_types import AnyRun

SAMPLES = 100
"""Number of unseen inputs for the logit lens and for sinks, and of pairs that calibrate the doubt."""
JUDGED = 300
"""Number of further pairs whose translations are judged."""
GROKKED = 0.99
"""Share of right answers that counts as learned."""


def measure(lesson: str, run: AnyRun) -> dict[str, float | None]:
    extra = MEASURES.get(lesson)
    return {**vars(run.figures()), **(extra(run) if extra else {})}


def _read_layers(run: Any) -> dict[str, float]:
    """Return the share of answers that the logit lens reads after each block but the last."""
    right: dict[str, int] = {}
    count = 0
    for tokens in run.unseen(SAMPLES, 0):
        answers = run.task.answer(tokens.unsqueeze(0))[0]
        outputs = answers != IGNORE
        count += int(outputs.sum())
        blocks = read_states(run.model, partial(run.model, tokens.unsqueeze(0)))
        for block, states in enumerate(blocks.rows[:-1]):
            read = blocks.apply_head(states).argmax(-1)
            name = f"lens_{block}"
            right[name] = right.get(name, 0) + int((read == answers)[outputs].sum())
    return {name: hits / count for name, hits in right.items()}


def _weigh_sinks(run: Any) -> dict[str, float]:
    """Return the share of weight on the first token, in the second half of the longest inputs, and the weight
    that no token gets."""
    batch = run.task.sample(SAMPLES, make_generator(0, "lesson"))
    _, shares = measure_shares(run.model, run.task, batch)
    return {"first_token": average_heads(shares.first), "to_sink": 1 - average_heads(shares.total)}


def _follow_learning(run: Any) -> dict[str, float]:
    """Return after which share of the steps training answers and held-out answers are right, 1 for never."""
    metrics = run.files.read_metrics()
    steps = metrics[-1]["step"]

    def learned(name: str) -> float:
        step = next((row["step"] for row in metrics if row.get(name, 0) >= GROKKED), steps)
        return float(step / steps)

    return {"fitted": learned("exact_match"), "grokked": learned("valid_exact_match")}


def _judge_translations(run: Any) -> dict[str, float]:
    """Return how well the calibrated doubt, and the log-probability, find real errors: both as AUROC."""
    pairs = [(source, target) for source, target, *_ in run.unseen(SAMPLES + JUDGED, 0)]
    calibrate_doubt(run, pairs[:SAMPLES], show=False)
    sources, references = zip(*pairs[SAMPLES:], strict=True)
    answers = run.search(sources)
    texts = [best.text for best, *_ in answers]
    wrong = np.array([text != reference for text, reference in zip(texts, references, strict=True)])
    judged = Doubter(run).measure(list(zip(sources, texts, strict=True)))
    doubts = np.array([item.log_odds for item in judged if item])
    surprise = np.array([-best.log_probability / (len(best.tokens) + 1) for best, *_ in answers])
    areas = {"doubt_auroc": auroc(doubts, wrong), "probability_auroc": auroc(surprise, wrong)}
    return {name: area for name, area in areas.items() if area is not None}


MEASURES: dict[str, Callable[[Any], dict[str, float]]] = {
    "lens": _read_layers,
    "sinks": _weigh_sinks,
    "grokking": _follow_learning,
    "doubt": _judge_translations,
}
"""The further measurements of a lesson's runs."""
