"""Agreement of word links with reference links, computed by hand."""

import numpy as np
import pytest

from regard.data.word_alignment import WordAlignment
from regard.interpret.head_selection import agreement, alignment_error_rate, count_links


def test_rates_match_a_worked_example() -> None:
    """Och and Ney 2003, equations 11 to 13."""
    known = [WordAlignment.of([(0, 0), (1, 1)], [(2, 2)]), WordAlignment.of([(0, 0)])]
    predicted = [frozenset({(0, 0), (2, 2), (3, 3)}), frozenset({(0, 0)})]
    assert count_links(predicted[0], known[0]) == (3, 2, 1, 2)
    rates = agreement(predicted, known)
    # The sums are 4 predicted, 3 sure, 2 predicted sure and 3 predicted possible links.
    assert rates.error_rate is not None and rates.error_rate.mean == pytest.approx(1 - (2 + 3) / (4 + 3))
    assert rates.precision is not None and rates.precision.mean == pytest.approx(3 / 4)
    assert rates.recall is not None and rates.recall.mean == pytest.approx(2 / 3)
    for rate in (rates.error_rate, rates.precision, rates.recall):
        assert rate.low <= rate.mean <= rate.high


def test_error_rate_is_0_for_equal_links_and_1_for_disjoint_links() -> None:
    known = [WordAlignment.of([(0, 0), (1, 1)])] * 3
    same = agreement([links.sure for links in known], known)
    apart = agreement([frozenset({(0, 1)})] * 3, known)
    assert same.error_rate is not None and (same.error_rate.mean, same.error_rate.low) == (0, 0)
    assert apart.error_rate is not None and (apart.error_rate.mean, apart.error_rate.high) == (1, 1)
    # Three pairs without an error do not show that the rate is 0: exact for three trials.
    assert same.error_rate.high == pytest.approx(1 - 0.025 ** (1 / 3))


def test_without_any_links() -> None:
    nothing = agreement([frozenset()] * 3, [WordAlignment.of([])] * 3)
    assert (nothing.error_rate, nothing.precision, nothing.recall) == (None, None, None)
    assert alignment_error_rate(np.zeros((2, 4), dtype=int)).tolist() == [1, 1]
