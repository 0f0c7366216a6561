"""Sweeps: train many variants of one configuration over several seeds, and compare them."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.sweep.backends import Backend as Backend
    from regard.sweep.comparison import COMPARISONS as COMPARISONS, Comparison as Comparison, compare as compare
    from regard.sweep.grid import Variant as Variant, make_variants as make_variants
    from regard.sweep.job import Measured as Measured
    from regard.sweep.local import Local as Local
    from regard.sweep.ray import Ray as Ray
    from regard.sweep.slurm import Slurm as Slurm
    from regard.sweep.statistics import Contrast as Contrast

late(__name__)
