"""Verdicts of claims, and the page and Markdown file of cards."""

from pathlib import Path

import pytest
from lab_pages import write_cards

from regard.cli import main
from regard.sweep.backends import Local
from regard_lab.cards.card import (
    CLAIMS,
    DIFFERENCES,
    MECHANISMS,
    VALUES,
    Claim,
    ClaimResult,
    Precondition,
    claims_of,
    evaluate_claims,
    measure_cards,
)
from regard_lab.cards.cells import HeadShares, ProbeMeasures, ProbeResult
from regard_lab.cards.probes import PROBES, card_probes
from tests.viz.test_report_page import begins_with_picture


def claim(expected: str) -> Claim:
    return Claim(
        name="a claim",
        source="a paper",
        mechanisms=("sink",),
        needs=(("sink", "copy"), ("softmax", "copy")),
        measured="a difference",
        value="score",
        expected=expected,  # type: ignore[arg-type]
        conditions=(
            Precondition(text="softmax makes errors", value="errors", least=0.5, where=(("softmax", "copy"),)),
        ),
    )


def outcome(expected: str, scores: list[float], of: int = 1, baseline: float = 0.0) -> ClaimResult:
    shares = HeadShares(relevant=None, first=[], entropy=[], total=[])
    results = [
        ProbeResult(
            parameters=1,
            seconds=1.0,
            train_loss=1.0,
            normalized=True,
            tests={"": ProbeMeasures(score=score, loss=0.0, shares=shares)},
        )
        for score in [*(score + baseline for score in scores), baseline]
    ]
    measured = {("sink", "copy"): results[:-1], ("softmax", "copy"): results[-1:] * len(scores)}
    return evaluate_claims(measured, [claim(expected)], of=of)[0]


@pytest.mark.parametrize(
    ("expected", "scores", "verdict"),
    [
        ("above 0", [0.1, 0.2, 0.3, 0.2, 0.1, -0.1], "not seen at this size"),
        ("above 0", [0.2, 0.2, 0.21, 0.1, 9.0, 0.01], "reproduced"),
        ("below 0", [0.2, 0.2, 0.21, 0.1, 9.0, 0.01], "contradicted"),
        ("below 0", [-0.2, -0.2, -0.21, -0.1, -9.0, -0.01], "reproduced"),
        ("above 0", [0.2] * 5, "too few seeds"),
    ],
)
def test_verdicts(expected: str, scores: list[float], verdict: str) -> None:
    assert outcome(expected, scores).verdict == verdict


def test_a_claim_whose_condition_does_not_hold_is_not_tested() -> None:
    result = outcome("above 0", [0.2] * 6, baseline=0.75)
    assert result.describe() == (
        "cannot be tested here: softmax makes errors (softmax on copy: 0.25, at least 0.5 needed)"
    )
    assert outcome("above 0", [0.2] * 6, baseline=0.5).describe() == "reproduced"
    assert outcome("above 0", [0.2] * 9, of=25).describe() == "too few seeds: 10 differences are needed, 9 measured"


def test_smallest_difference_by_hand() -> None:
    """Six differences with median 0.25 and least 0.1: a median of 0.15 would have its lower end at 0."""
    scores = [0.1, 0.2, 0.3, 0.4, 0.2, 0.3]
    assert outcome("above 0", scores).smallest == pytest.approx(0.15)
    assert outcome("below 0", scores).smallest == pytest.approx(0.4 - 0.25)
    assert outcome("above 0", scores[:5]).smallest is None


def test_the_share_of_distant_answers_by_hand() -> None:
    """An answer of `induction_far` is 6 to 18 steps after what it repeats, with equal chances: 4 of 13 are beyond 14,
    and the current and the earlier token are one step further."""
    assert VALUES["beyond_14"](None, "induction") == 0  # type: ignore[arg-type]
    assert VALUES["beyond_14"](None, "induction_far") == pytest.approx(5 / 13, abs=0.05)  # type: ignore[arg-type]


def test_claims_need_what_exists() -> None:
    assert len(CLAIMS) >= 10
    assert len({entry.name for entry in CLAIMS}) == len(CLAIMS)
    for entry in CLAIMS:
        assert set(entry.mechanisms) <= set(MECHANISMS), entry.name
        assert all(mechanism in MECHANISMS and probe in PROBES for mechanism, probe in entry.needs), entry.name
        assert entry.conditions and all(condition.value in VALUES for condition in entry.conditions), entry.name
        assert all(mechanism in MECHANISMS and probe in PROBES for mechanism, probe in entry.measurements), entry.name
        assert entry.value in {**VALUES, **DIFFERENCES} and len(entry.needs) % 2 == (entry.value == "best_above_mean")
        if entry.mechanisms == ("dot",):
            assert {probe for _, probe in entry.needs} == set(card_probes())
    assert not claims_of("multi_query")


def test_page_and_markdown(small_probes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard_lab.cli.card.MECHANISMS", ("softmax", "sink"))
    page, table, runs = tmp_path / "cards.html", tmp_path / "cards.md", tmp_path / "runs"
    assert main(["card", "--all", "--seeds=2", "--steps=1", "--savepath", str(runs), "--html", str(page)]) == 0
    cards = measure_cards(("softmax", "sink"), seeds=2, steps=1, savepath=runs, on=Local())
    write_cards(cards, table)
    assert "2 attention mechanisms" in page.read_text() and begins_with_picture(page.read_text())
    assert "trained for 1 step only" in page.read_text()
    text = table.read_text()
    assert "| sink |" in text
    assert "a learned sink lowers the share of weight on the first token" in text
    assert (tmp_path / "overview.svg").read_bytes().startswith(b"<?xml")
