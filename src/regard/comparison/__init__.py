"""Comparison: many variants of one training, over several seeds."""

from regard.comparison.comparison import COMPARISONS, Comparison, compare
from regard.comparison.grid import Measured, Variant, make_variants
from regard.comparison.statistics import Contrast, Interval

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
