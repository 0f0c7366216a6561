"""Sentences, tables and page of a timeline of known developments."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from regard.interpret.timeline import (
    Development,
    Head,
    Timeline,
    count_in_order,
    formed_at,
    interval_rank,
    median_curves,
    median_interval,
    pair_orders,
    role_head,
)

STEPS = [0, 10, 100, 1000]


def develop(seed: int, previous: int, induction: int) -> Development:
    """Return a run whose head 0 takes the previous-token role at a snapshot, and head 1 the induction role."""
    rises = {"previous-token": (0, previous), "induction": (1, induction)}
    roles = {role: np.zeros((4, 2)) for role in (*rises, "first-token")}
    for role, (head, snapshot) in rises.items():
        roles[role][snapshot:, head] = 0.8
    return Development(
        run=f"seed{seed}",
        seed=seed,
        steps=STEPS,
        heads=[Head("decoder.0.self_attention", 0), Head("decoder.1.self_attention", 0)],
        roles=roles,
        **{name: np.full((4, 2), 0.5) for name in ("uniform", "relevance", "entropy", "importance")},
        loss=np.array([3.0, 2.0, 1.0, 0.1]),
        accuracy=np.array([0.1, 0.2, 0.6, 1.0]),
        in_context=np.array([0.0, -0.1, -0.5, 0.0]),
    )


def make_timeline(*formations: tuple[int, int]) -> Timeline:
    runs = [develop(seed, *snapshots) for seed, snapshots in enumerate(formations)]
    return Timeline(task="induction", kind="decoder", samples=100, threshold=0.3, runs=runs)


def test_sentences_name_steps_intervals_and_order() -> None:
    timeline = make_timeline((1, 2), (1, 2), (2, 3), (1, 1), (2, 1), (1, 3))
    assert timeline.sentences[:2] == [
        "A previous-token head at step 10 (10 to 100), an induction head at step 100 (10 to 1,000), in this order"
        " on 4 of 6 seeds (and on 1 with some in the same snapshot).",
        "On at most half of the seeds: first-token (0 of 6).",
    ]
    assert "Half of the outputs are correct from step 100 on (6 of 6 seeds)" in timeline.sentences[2]
    assert timeline.sentences[-1].endswith("lowest at step 100 with -0.500 nats, 0.000 at the end.")
    assert "96.9% interval" in timeline.notes[0]
    role = timeline.roles[0]
    assert role.layers == {"decoder.0": 6} and role.heads[0] == "decoder.0.self_attention head 0"
    [order] = [order for order in timeline.orders if {order.first, order.second} == {"previous-token", "induction"}]
    assert (order.before, order.same, order.after) == (4, 1, 1)


def test_few_seeds_say_what_their_interval_is_worth() -> None:
    assert "75.0% interval (order statistics), because fewer than 6 seeds" in make_timeline(*[(1, 2)] * 3).notes[0]
    alone = make_timeline((1, 2))
    assert alone.notes[0].startswith("Steps are those of 1 seed")
    assert alone.sentences[0] == (
        "A previous-token head at step 10, an induction head at step 100, in this order on 1 of 1 seeds."
    )


def test_a_role_that_does_not_form_is_named() -> None:
    timeline = make_timeline((1, 4), (1, 4), (1, 2))
    assert "induction (1 of 3)" in timeline.sentences[1]
    assert "first-token" in str(timeline) and "never" in str(timeline)


def test_json_and_page_hold_everything(tmp_path: Path) -> None:
    timeline = make_timeline((1, 2), (1, 3))
    stored = json.loads(json.dumps(timeline.json(), allow_nan=False))
    assert stored["steps"] == STEPS and stored["events"]["induction"] == [100, 1000]
    assert stored["runs"][1]["roles"]["induction"][3] == [0.0, 0.8]
    page = timeline.to_html(tmp_path / "page.html").read_text()
    assert page.count("<picture>") == 2 and "https://" not in page.replace("http://www.w3.org", "")
    assert "A previous-token head at step 10" in page and "never" in page


NEVER = math.inf


def test_a_head_forms_where_its_score_stays() -> None:
    scores = np.array(
        [[0.1, 0.9, 0.1, np.nan], [0.4, 0.9, 0.5, np.nan], [0.2, 0.9, 0.6, np.nan], [0.3, 0.9, 0.2, np.nan]]
    )
    assert formed_at(scores, 0.3).tolist() == [3, 0, 4, 4]


def test_the_head_of_a_role_is_the_first_and_of_several_the_strongest() -> None:
    scores = np.array([[0.0, 0.0, 0.0], [0.4, 0.4, 0.0], [0.4, 0.5, 0.9]])
    head = role_head(scores, 0.3)
    assert (head.head, head.snapshot, head.heads) == (1, 1, 3)
    nearest = role_head(np.array([[0.0, np.nan], [0.2, np.nan]]), 0.3)
    assert (nearest.head, nearest.snapshot, nearest.heads) == (0, None, 0)


def test_intervals_of_the_median_cover_as_they_say() -> None:
    random = np.random.default_rng(0)
    for seeds in (3, 6, 10, 20):
        rank, coverage = interval_rank(seeds)
        drawn = np.sort(random.exponential(size=(20_000, seeds)), axis=1)
        inside = (drawn[:, rank - 1] <= math.log(2)) & (math.log(2) <= drawn[:, -rank])
        assert inside.mean() == pytest.approx(coverage, abs=0.01)
        assert coverage >= 0.95 or rank == 1
    assert interval_rank(6) == (1, 0.96875) and interval_rank(1) == (1, 0.0)


def test_seeds_without_the_event_count_as_late() -> None:
    interval = median_interval([10, 20, NEVER, 30, NEVER, 40])
    assert (interval.median, interval.low, interval.high) == (35, 10, None)
    assert median_interval([10, NEVER, NEVER]).median is None


def test_curves_have_the_same_interval() -> None:
    curves = np.arange(10.0)[::-1, None] * np.ones((1, 3))
    middle, low, high = median_curves(curves)
    assert (middle[0], low[0], high[0]) == (4.5, 1, 8)


def test_orders_count_ties_and_missing_events_apart() -> None:
    events = {"a": [1, 2, NEVER, NEVER, 5], "b": [2, 2, 3, NEVER, NEVER]}
    [order] = pair_orders(events)
    assert (order.before, order.same, order.after, order.missing) == (2, 1, 1, 1)
    assert count_in_order([[1, 2, 1, 3], [2, 2, NEVER, 2], [3, 3, 4, 4]]) == (1, 1)
