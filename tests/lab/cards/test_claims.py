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
    claims_of,
    evaluate_claims,
    measure_cards,
)
from regard_lab.cards.cells import HeadShares, ProbeMeasures, ProbeResult
from regard_lab.cards.probes import PROBES, card_probes


def claim(expected: str) -> Claim:
    return Claim(
        name="a claim",
        source="a paper",
        mechanisms=("sink",),
        needs=(("sink", "copy"), ("softmax", "copy")),
        measured="a difference",
        value="score",
        expected=expected,  # type: ignore[arg-type]
    )


def outcome(expected: str, scores: list[float], of: int = 1) -> ClaimResult:
    shares = HeadShares(relevant=None, first=[], entropy=[], total=[])
    results = [
        ProbeResult(
            parameters=1,
            seconds=1.0,
            train_loss=1.0,
            normalized=True,
            tests={"": ProbeMeasures(score=score, loss=0.0, shares=shares)},
        )
        for score in [*scores, 0.0]
    ]
    measured = {("sink", "copy"): results[:-1], ("softmax", "copy"): results[-1:] * len(scores)}
    return evaluate_claims(measured, [claim(expected)], of=of)[0]


@pytest.mark.parametrize(
    ("expected", "scores", "verdict"),
    [
        ("above 0", [0.1, 0.2, 0.3], "not seen at this size"),
        ("above 0", [0.2, 0.2, 0.21], "reproduced"),
        ("below 0", [0.2, 0.2, 0.21], "contradicted"),
        ("below 0", [-0.2, -0.2, -0.21], "reproduced"),
        ("above 0", [0.2], "unknown with one seed"),
    ],
)
def test_verdicts(expected: str, scores: list[float], verdict: str) -> None:
    assert outcome(expected, scores).verdict == verdict


def test_smallest_difference_by_hand() -> None:
    # Student's 97.5 % quantile with 2 degrees of freedom is 4.3027; the standard error is 0.1 / sqrt(3).
    assert outcome("above 0", [0.1, 0.2, 0.3]).smallest == pytest.approx(4.3027 * 0.1 / 3**0.5, rel=1e-4)
    wide, narrow = (outcome("above 0", [0.1, 0.2, 0.3], of=20).smallest, outcome("above 0", [0.1, 0.2, 0.3]).smallest)
    assert wide is not None and narrow is not None and wide > narrow


def test_claims_need_what_exists() -> None:
    assert len(CLAIMS) >= 10
    assert len({entry.name for entry in CLAIMS}) == len(CLAIMS)
    for entry in CLAIMS:
        assert set(entry.mechanisms) <= set(MECHANISMS), entry.name
        assert all(mechanism in MECHANISMS and probe in PROBES for mechanism, probe in entry.needs), entry.name
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
    assert "2 attention mechanisms" in page.read_text()
    assert "trained for 1 step only" in page.read_text()
    text = table.read_text()
    assert "| sink |" in text
    assert "a learned sink lowers the share of weight on the first token" in text
    assert (tmp_path / "overview.svg").read_bytes().startswith(b"<?xml")
