"""Sweeps: train many variants of one configuration over several seeds, and compare them."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.sweep.backends import Backend
    from regard.sweep.comparison import COMPARISONS, Comparison, compare
    from regard.sweep.grid import Variant, make_variants
    from regard.sweep.job import Measured
    from regard.sweep.local import Local
    from regard.sweep.ray import Ray
    from regard.sweep.slurm import Slurm
    from regard.sweep.statistics import Contrast

late(__name__)

__all__ = [
    "COMPARISONS",
    "Backend",
    "Comparison",
    "Contrast",
    "Local",
    "Measured",
    "Ray",
    "Slurm",
    "Variant",
    "compare",
    "make_variants",
]
