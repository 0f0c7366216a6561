"""Comparison: many variants of one training, over several seeds."""

from regard.comparison.grid import Comparison, Measured, Variant, compare, make_variants
from regard.comparison.report import summary, write_report

__all__ = ["Comparison", "Measured", "Variant", "compare", "make_variants", "summary", "write_report"]
