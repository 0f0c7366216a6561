"""Small runs of each family, a few training steps old."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard

SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "query": ("signal2", {"hidden": 8, "heads": 2, "multihead": True, "pos_enc": True, "enc_layers": 1}),
    "single head": ("signal", {"hidden": 8, "pos_enc": True}),
    "decoder-only": ("induction", {"hidden": 16, "layers": 2, "heads": 2, "inner": 16, "bias": True}),
    "transformer": ("dates", {"model": "transformer", "hidden": 16, "heads": 2, "inner": 16}),
    "recurrent": ("dates", {"hidden": 16, "embedding": 8}),
    "stepwise": ("dates", {"hidden": 16, "embedding": 8, "context": "cell", "query": "previous"}),
    "pooling": ("counting", {"hidden": 8, "model": "pooling"}),
}


@pytest.fixture(scope="session")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Return a function from the name of a family to its run; tests must not change a run."""
    runs: dict[str, Any] = {}

    def make(family: str) -> Any:
        if family not in runs:
            task, options = SMALL[family]
            folder: Path = tmp_path_factory.mktemp("methods")
            runs[family] = regard.train(task, **options, steps=10, batchsize=8, savepath=folder, progress=False)
        return runs[family]

    return make
