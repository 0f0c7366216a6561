"""Pairs for the calibration of the doubt: sources and references that the model has not learned."""

from collections.abc import Sequence

from regard.data.prepare import MOST_COMPARED, describe_learned
from regard.errors import InputError
from regard.runs import SequenceRun

SMALLEST = 50
"""Smallest number of pairs for a calibration."""
REFERENCES = 1000
"""Number of training pairs that the feature `from_data` compares."""
Pairs = Sequence[tuple[str, str]]


def check_pairs(run: SequenceRun, pairs: Pairs) -> Pairs:
    """Return the first training pairs of a run, which are none if its text is absent.

    Raises `InputError` for too few `pairs`, and for pairs that do not show how the model translates other text:
    copies of the source, and the text of training, which the model translates better.
    """
    if (different := len(set(pairs))) < SMALLEST:
        raise InputError(
            f"too few different pairs to calibrate the doubt ({different}): give at least {SMALLEST}, "
            "preferably 500"
        )
    equal = sum(source == target for source, target in pairs)
    if 2 * equal > len(pairs):
        raise InputError(f"in {equal} of {len(pairs)} pairs, the reference equals the source: give translations")
    try:
        training = run.trained_on(REFERENCES if run.task.draws else MOST_COMPARED)
    except InputError:  # the file was moved
        training = []
    if not run.task.draws and (learned := describe_learned(pairs, training)):
        raise InputError(
            f"{learned} of the run, which it translates better than other text: give pairs that were not used "
            "for training"
        )
    return [pair for pair in training[:REFERENCES] if run.too_long(pair[0]) is None]
