"""What examinations of several seeds have in common: sets of heads, not heads with the same number."""

import json
from pathlib import Path

import pytest

from regard.interpret.estimates import Estimate
from regard.interpret.examination import Examination, HeadFindings
from regard.interpret.importance import HeadImportance
from regard.interpret.needs import Need
from regard.interpret.roles import HeadRole, HeadRoles
from regard.runs.seeds import ExaminedRuns


def _near(value: float) -> Estimate:
    return Estimate(mean=value, low=value - 0.01, high=value + 0.01)


def _examined(added: list[float], needs: list[Need], relevance: list[float], role: str | None) -> Examination:
    """Return the examination of a run with three heads."""
    heads = [
        HeadFindings(
            layer="cross",
            head=head,
            relevance=_near(share),
            beyond_uniform=_near(share - 0.5),
            beyond_permuted=_near(share - 0.5),
            importance=added[head],
            interval=_near(added[head]),
        )
        for head, share in enumerate(relevance)
    ]
    roles = [
        HeadRole(layer="cross", head=head, role=role if head == 0 else None, strength=None, untrained=0.0)
        for head in range(3)
    ]
    return Examination(
        task="signal2",
        samples=60,
        seed=0,
        uniform=_near(0.3),
        heads=heads,
        importance=HeadImportance(
            samples=1000, loss=0.1, added={"cross": added}, intervals={"cross": [_near(value) for value in added]}
        ),
        roles=HeadRoles(task="signal2", samples=10, heads=roles),
        verdicts={"cross": needs},
        groups={"replace each other": int(role is None)},
    )


@pytest.fixture
def result() -> ExaminedRuns:
    """Three seeds of which the needed head has another number each time."""
    return ExaminedRuns(
        task="signal2",
        runs=["a/signal2", "b/signal2", "c/signal2"],
        seeds=[0, 1, 2],
        examinations=[
            _examined([1.0, 0.0, 0.0], ["needed", "not needed", "cannot be told"], [0.9, 0.5, 0.5], "the signal"),
            _examined([0.0, 2.0, 0.0], ["not needed", "needed", "needed"], [0.5, 0.8, 0.5], "the signal"),
            _examined([0.0, 0.0, 3.0], ["not needed", "not needed", "needed"], [0.5, 0.5, 0.7], None),
        ],
    )


def test_numbers_of_heads_are_compared(result: ExaminedRuns) -> None:
    counts = {(count.question, count.kind): count for count in result.counts}
    needed = counts["need", "needed"]
    assert (needed.layer, needed.heads, needed.of, needed.runs) == ("cross", [1, 2, 1], 3, 3)
    assert counts["need", "cannot be told"].heads == [1, 0, 0] and counts["need", "cannot be told"].runs == 1
    assert counts["loss", "switching it off raises the loss"].heads == [1, 1, 1]
    assert [1, 1, 0] in [count.heads for count in result.counts if count.kind.endswith("the signal")]
    more = counts[
        "relevant inputs", "more than with uniform attention; whether more than for another sample cannot be told"
    ]
    assert more.heads == [1, 1, 1] and counts["role", "no role found"].heads == [2, 2, 3]
    assert counts["groups", "replace each other"].heads == [0, 0, 1]
    for question in ("need", "loss", "role", "relevant inputs"):  # every head of every run has one sentence
        parts = [count.heads for count in result.counts if count.question == question]
        assert [sum(run) for run in zip(*parts, strict=True)] == [3, 3, 3]


def test_values_are_means_over_samples_then_over_seeds(result: ExaminedRuns) -> None:
    values = {value.name: value for value in result.values}
    largest = values["loss added when a head is off, largest of the heads"]
    assert largest.values == [1.0, 2.0, 3.0]
    assert (largest.interval.value, largest.interval.low, largest.interval.high) == (2.0, 1.0, 3.0)
    # Head 0 of the three seeds has the mean 1/3; the layer's mean over heads has 2/3.
    mean = values["loss added when a head is off, mean of the heads"]
    assert mean.interval.value == pytest.approx(2 / 3)
    best = values["attention on relevant inputs, largest of the heads"]
    assert best.values == [0.9, 0.8, 0.7]
    assert not any("rank correlation" in name for name in values)  # not measured, so not shown


def test_the_report_says_what_it_compares(result: ExaminedRuns, tmp_path: Path) -> None:
    text = str(result)
    assert "signal2, 3 runs (seeds 0, 1, 2), 60 unseen samples each" in text
    assert "1.3 (1 to 2) of 3" in text and "2 of 3" in text and "80.0% (70.0% to 90.0%)" in text
    assert "cross head 1: 2.000 (1.990 to 2.010)" in text  # each run, with its interval over samples
    words = " ".join(result.sentences)
    assert "cross: 1.3 (1 to 2) of 3 heads are needed." in words
    assert "Heads of different runs do not correspond by number" in words
    assert "contains the median of all seeds with 75.0 % confidence" in words
    assert "Sentence “needed”: of 100 such sentences" in words
    stored = json.loads(json.dumps(result.json(), allow_nan=False))
    assert stored["seeds"] == [0, 1, 2] and len(stored["examinations"]) == 3 and stored["words"] == result.sentences
    [largest] = [value for value in stored["values"] if "loss" in value["name"] and "largest" in value["name"]]
    assert (largest["value"], largest["low"], largest["high"]) == (2.0, 1.0, 3.0)
    page = result.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "What the attention of signal2 means, over 3 runs" in page and "1.3 (1 to 2) of 3" in page


def test_one_run_has_no_range(result: ExaminedRuns) -> None:
    single = ExaminedRuns(task="signal2", runs=["a"], seeds=[0], examinations=result.examinations[:1])
    assert "One seed has no range: train more seeds." in " ".join(single.sentences)
    assert "cross: 1 of 3 heads are needed." in single.sentences
