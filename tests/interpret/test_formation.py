"""Steps of formation, their medians over seeds, and orders."""

import math

import numpy as np
import pytest

from regard.interpret.timeline import (
    count_in_order,
    formed_at,
    interval_rank,
    median_curves,
    median_interval,
    pair_orders,
    role_head,
)

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
