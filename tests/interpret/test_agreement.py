"""How well links agree with known ones, by hand."""

import numpy as np
import pytest

from regard.data.links import KnownLinks
from regard.interpret.agreement import agreement, alignment_error_rate, count_links


def test_rates_by_hand() -> None:
    """Och and Ney 2003, equations 11 to 13."""
    known = [KnownLinks.of([(0, 0), (1, 1)], [(2, 2)]), KnownLinks.of([(0, 0)])]
    found = [frozenset({(0, 0), (2, 2), (3, 3)}), frozenset({(0, 0)})]
    assert count_links(found[0], known[0]) == (3, 2, 1, 2)
    rates = agreement(found, known)
    # In all: 4 found, 3 sure, 2 sure ones found, 3 possible ones.
    assert rates.error_rate is not None and rates.error_rate.mean == pytest.approx(1 - (2 + 3) / (4 + 3))
    assert rates.precision is not None and rates.precision.mean == pytest.approx(3 / 4)
    assert rates.recall is not None and rates.recall.mean == pytest.approx(2 / 3)
    for each in (rates.error_rate, rates.precision, rates.recall):
        assert each.low <= each.mean <= each.high


def test_what_is_alike_has_no_error_and_what_is_apart_has_all() -> None:
    known = [KnownLinks.of([(0, 0), (1, 1)])] * 3
    same = agreement([each.sure for each in known], known)
    apart = agreement([frozenset({(0, 1)})] * 3, known)
    assert same.error_rate is not None and (same.error_rate.mean, same.error_rate.high) == (0, 0)
    assert apart.error_rate is not None and (apart.error_rate.mean, apart.error_rate.low) == (1, 1)


def test_nothing_found_and_nothing_known() -> None:
    nothing = agreement([frozenset()] * 3, [KnownLinks.of([])] * 3)
    assert (nothing.error_rate, nothing.precision, nothing.recall) == (None, None, None)
    assert alignment_error_rate(np.zeros((2, 4), dtype=int)).tolist() == [1, 1]
