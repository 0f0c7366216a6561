"""Comparison: many variants of one training, over several seeds."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.comparison.comparison import COMPARISONS, Comparison, compare
    from regard.comparison.grid import Measured, Variant, make_variants
    from regard.comparison.statistics import Contrast, Interval

late(__name__)

__all__ = [
    "COMPARISONS",
    "Comparison",
    "Contrast",
    "Interval",
    "Measured",
    "Variant",
    "compare",
    "make_variants",
]
