"""Comparison: many variants of one training, over several seeds."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.comparison.comparison import COMPARISONS, Comparison, compare
    from regard.comparison.grid import Variant, make_variants
    from regard.comparison.here import Here
    from regard.comparison.job import Measured
    from regard.comparison.machines import Machines
    from regard.comparison.ray import Ray
    from regard.comparison.slurm import Slurm
    from regard.comparison.statistics import Contrast, Interval

late(__name__)

__all__ = [
    "COMPARISONS",
    "Comparison",
    "Contrast",
    "Here",
    "Interval",
    "Machines",
    "Measured",
    "Ray",
    "Slurm",
    "Variant",
    "compare",
    "make_variants",
]
