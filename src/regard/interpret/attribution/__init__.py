"""Explanation methods behind one interface, at the level of inputs, heads and edges."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.interpret.attribution.attribution_result import Attribution
    from regard.interpret.attribution.background import Background
    from regard.interpret.attribution.method_runs import attribute, find_method, run_method
    from regard.interpret.attribution.table import METHODS, Method
    from regard.interpret.attribution.trial import Target, Trial

late(__name__)

__all__ = [
    "METHODS",
    "Attribution",
    "Background",
    "Method",
    "Target",
    "Trial",
    "attribute",
    "find_method",
    "run_method",
]
