"""Regard: train attention models, inspect their attention, and test whether the attention is meaningful.

    run = regard.train("signal2")
    print(run.test())
    print(run.attend("BCCCBAABACCCA"))

Names are imported on first use, so `import regard` takes almost no time.
"""

import importlib
import re
from pathlib import Path
from textwrap import fill
from typing import Any

from regard.errors import InputError as InputError, MachineError as MachineError, RegardError as RegardError
from regard.version import __version__ as __version__

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOMES = {
    name: module
    for module, names in re.findall(r"^from (\S+) import (\([^)]*\)|.*)", _STUB, re.MULTILINE)
    for name in re.findall(r"(\w+) as ", names)
}
"""The module of each public name, from the file that type checkers read."""
NAMES = sorted(_HOMES)  # not as __all__, with which help(regard) would print every class
__doc__ += f"\nhelp(regard.NAME) explains one of these names:\n\n{fill(', '.join(NAMES), 100)}\n"


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES})
