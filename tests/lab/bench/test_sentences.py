"""Error rates of sentences about heads."""

import json
from dataclasses import replace
from importlib import resources
from typing import Any

import numpy as np
import pytest
from drawn_programs import drawn_model
from sentence_claims import Fact, HeadClaim, MeasuredSentences, judge, measure, true_verdicts, untrained_claims
from sentences import (
    DRAWN,
    GRID,
    KINDS,
    LOSSES,
    count_wrong,
    error_interval,
    is_tested,
    leave_out,
    report,
    set_thresholds,
    tally,
    thresholds_of,
    write_text,
)

from regard.interpret.estimates import ERROR_FILE, MOST_WRONG, NAMING, error_rates, is_reliable
from regard.interpret.needs import HeadSet, Needs
from regard_lab.bench.known_models import compiled_model


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    return dict(json.loads(resources.files("regard.interpret").joinpath(ERROR_FILE).read_text()))


def test_the_file_has_enough_known_heads_and_kinds(stored: dict[str, Any]) -> None:
    assert stored["heads"]["known"] >= 1000
    assert stored["heads"]["untrained without a claim"] >= 0.95 * stored["heads"]["untrained"]
    rates = error_rates()
    assert set(rates) <= {*KINDS, *(f"external: {kind}" for kind in KINDS)} and set(GRID) <= set(rates)
    assert sum(is_reliable(kind) for kind in rates) >= 6
    for kind, rate in rates.items():
        assert rate.wrong <= rate.tested and rate.told <= rate.true and rate.low <= rate.high
        if is_reliable(kind) and kind not in NAMING:  # these share a rate
            assert rate.tested and rate.wrong <= 0.05 * rate.tested and rate.high <= MOST_WRONG


@pytest.mark.parametrize("drawn", [False, True])
def test_a_rerun_gives_the_stored_counts(stored: dict[str, Any], drawn: bool) -> None:
    if drawn:
        number = next(number for number in range(DRAWN) if f"drawn-{number}" in stored["programs"])
        name, known = f"drawn-{number}", drawn_model(number)
    else:
        name = next(name for name in ("previous", "skip", "first", "count") if name in stored["programs"])
        number, known = 0, compiled_model(name, 0)
    measured = measure(known, attention_only=number >= LOSSES)
    counts = count_wrong([measured], thresholds_of(stored["kinds"]))
    assert {kind: rows.sum(0).tolist() for kind, rows in counts.items()} == stored["programs"][name]
    assert any(kind in counts for kind in GRID)


def _planted(program: str, values: list[tuple[float, bool]], kind: str = "relevant inputs") -> MeasuredSentences:
    claims = [HeadClaim(kind, value, right) for value, right in values]
    facts = [Fact(kind, value) for value, right in values if right]
    return MeasuredSentences(program=program, family=program, heads=len(values), claims=claims, facts=facts)


def test_wrong_sentences_raise_the_threshold_or_the_rate() -> None:
    names = [f"program-{number:03}" for number in range(40)]
    right = [_planted(name, [(0.3, True), (0.04, True)]) for name in names]
    assert set_thresholds(right)["relevant inputs"] == 0.0
    # Wrong sentences with small values: the threshold excludes them, and heads with small values are not told.
    small = [_planted(name, [(0.3, True), (0.04, number % 4 < 2)]) for number, name in enumerate(names)]
    assert set_thresholds(small)["relevant inputs"] == 0.05
    row = tally(small)["relevant inputs"]
    assert (row["wrong"], row["told"], row["tested"], row["true"]) == (0, 20, 20, 28)
    # Wrong sentences in the tested half only: the rate shows them.
    hidden = [_planted(name, [(0.3, not is_tested(name))] * 2) for name in names]
    assert tally(hidden)["relevant inputs"]["wrong"] == 40 == tally(hidden)["relevant inputs"]["tested"]
    # Wrong sentences with large values: no threshold is enough, and nothing is said.
    wrong = [_planted(name, [(0.9, False)]) for name in names]
    assert tally(wrong)["relevant inputs"]["threshold"] is None and tally(wrong)["relevant inputs"]["tested"] == 0
    content = report(hidden, [(10, 0), (10, 1)], {})
    assert content["heads"]["untrained without a claim"] == 19
    assert json.loads(write_text(content)) == content and "[2, 2]" in write_text(content)


def test_a_family_that_is_left_out_does_not_set_its_threshold() -> None:
    usual = [_planted(f"usual-{number}", [(0.04, True)]) for number in range(20)]
    odd = [replace(_planted(f"odd-{number}", [(0.04, False)]), family="trap") for number in range(20)]
    families = leave_out([*usual, *odd])["relevant inputs"]
    assert families["trap"] == [20, 20]


def test_wrong_sentences_of_one_program_widen_the_interval() -> None:
    spread = np.array([[10, 1]] * 20)
    together = np.array([[10, 10]] * 2 + [[10, 0]] * 18)
    assert error_interval(together)[1] > error_interval(spread)[1]
    assert error_interval(np.array([[10, 0]] * 20)) == (0.0, 0.0183)


def test_planted_wrong_verdicts_are_wrong() -> None:
    circuit = compiled_model("previous", 0).circuit
    assert circuit is not None
    layer = "decoder.0.self_attention"
    truths = true_verdicts(circuit)
    claims = [*judge(Needs(inputs=500, verdicts={(layer, 0): "not needed", (layer, 1): "needed"}), truths)]
    assert [claim.right for claim in claims] == [False, False]
    pair = frozenset({(layer, 0), (layer, 1)})
    found: Any = HeadSet("replace each other", ((layer, 0), (layer, 2)), "mean", None)  # type: ignore[arg-type]
    needs = Needs(inputs=500, verdicts={(layer, 0): "needed only together"}, sets=[found])
    claims = [*judge(needs, {(layer, 0): ("needed only together", pair)})]
    assert [claim.right for claim in claims] == [False, False] and claims[1].kind == "names other heads"


def test_nothing_is_said_of_untrained_models(stored: dict[str, Any]) -> None:
    assert untrained_claims(compiled_model("previous", 0), thresholds_of(stored["kinds"])) == (4, 0)


def test_random_programs_are_computed_exactly() -> None:
    for number in (0, 1, 3, 4):
        known = drawn_model(number)
        subject: Any = known.subject
        inputs = subject.unseen(50, 0)
        assert subject.loss(inputs) < 0.02, number
        assert drawn_model(number).subject.loss(inputs) == subject.loss(inputs)
