"""The criterion of a validation, and the patience that counts from its first change."""

import pytest

from regard.errors import InputError
from regard.training.checkpoint import Progress
from regard.training.settings import find_criterion

LINE = {"bleu": 20.0, "chrf/news": 40.0, "valid_loss": 2.0, "valid_perplexity/news": 8.0}


@pytest.mark.parametrize(
    ("name", "metric", "value", "text"),
    [
        ("bleu", "bleu", 20.0, "BLEU 20.00"),
        ("chrf/news", "chrf/news", 40.0, "chrF 40.00 on news"),
        ("loss", "valid_loss", -2.0, "loss 2.0000 nats per token"),
        ("perplexity/news", "valid_perplexity/news", -8.0, "perplexity 8.00 on news"),
    ],
)
def test_larger_values_are_better(name: str, metric: str, value: float, text: str) -> None:
    criterion = find_criterion(name)
    assert (criterion.metric, criterion.value(LINE), criterion.describe(LINE)) == (metric, value, text)


def test_unknown_criterion_is_refused() -> None:
    with pytest.raises(InputError, match=r"criterion 'ble' is unknown: choose bleu, .*; did you mean bleu\?"):
        find_criterion("ble/news")


def counts(*values: float) -> list[int]:
    progress, numbers = Progress(), []
    for value in values:
        progress.note(value)
        numbers.append(max(progress.since_best, 0))
    return numbers


def test_patience_counts_from_the_first_change() -> None:
    assert counts(0, 0, 0, 0) == [0, 0, 0, 0]
    assert counts(0, 0, 1, 1, 1) == [0, 0, 0, 1, 2]
    assert counts(0, 0, 1, 0.5, 2, 2) == [0, 0, 0, 1, 0, 1]
    assert counts(-3, -3.5, -4, -2) == [0, 1, 2, 0]


def test_equal_models_are_better_and_unknown_ones_are_not() -> None:
    progress = Progress()
    assert [progress.note(value) for value in (1.0, 1.0, float("nan"), 0.5, 1.0)] == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert progress.best == 1.0
