"""Regard: train a model whose heart is attention, see what it attends to, test whether that means anything.

    run = regard.train("signal2")
    print(run.test())
    print(run.attend("BCCCBAABACCCA"))

Names are imported when first used, so that `import regard` is instant.
"""

import importlib
from typing import TYPE_CHECKING, Any

from regard.errors import InputError, MachineError, RegardError
from regard.version import __version__

if TYPE_CHECKING:
    from regard.api import (
        AnswerRun,
        PairReport,
        PairRun,
        Run,
        TestReport,
        TranslationReport,
        TranslationRun,
        load,
        plot_positions,
        train,
    )
    from regard.attention import intervene
    from regard.comparison import compare
    from regard.inspection import record

_HOMES = {
    "AnswerRun": "regard.api",
    "PairReport": "regard.api",
    "PairRun": "regard.api",
    "Run": "regard.api",
    "TestReport": "regard.api",
    "TranslationReport": "regard.api",
    "TranslationRun": "regard.api",
    "compare": "regard.comparison",
    "intervene": "regard.attention",
    "load": "regard.api",
    "plot_positions": "regard.api",
    "record": "regard.inspection",
    "train": "regard.api",
}

__all__ = [
    "AnswerRun",
    "InputError",
    "MachineError",
    "PairReport",
    "PairRun",
    "RegardError",
    "Run",
    "TestReport",
    "TranslationReport",
    "TranslationRun",
    "__version__",
    "compare",
    "intervene",
    "load",
    "plot_positions",
    "record",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
