"""Explanation methods behind one interface, at the level of inputs, heads and edges."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.interpret.attribution.attribution_result import Attribution as Attribution
    from regard.interpret.attribution.background import Background as Background
    from regard.interpret.attribution.method_runs import (
        attribute as attribute,
        find_method as find_method,
        run_method as run_method,
    )
    from regard.interpret.attribution.table import METHODS as METHODS, Method as Method
    from regard.interpret.attribution.trial import Target as Target, Trial as Trial

late(__name__)
