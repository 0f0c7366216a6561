"""Run long measurements on all cores, and store each result immediately."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.progress import track

from regard.sweep.backends import run_in_processes

Flags = dict[str, Any]
"""Flags of one training."""
Results = dict[str, dict[str, Any]]
"""Measurements by the key of the training run."""


def key_of(flags: Flags) -> str:
    """Return the key of a training run in a file of measurements."""
    return json.dumps(flags, sort_keys=True)


def measure_missing(cache: Path, work: Callable[[Flags], dict[str, Any]], jobs: Sequence[Flags]) -> Results:
    """Run `work` for all jobs without a stored result, with one process per core, and return all results.

    Each result is stored immediately, so an interrupted program can be continued. To repeat the
    measurements, delete the file.
    """
    results: Results = json.loads(cache.read_text()) if cache.exists() else {}
    missing = [flags for flags in jobs if key_of(flags) not in results]
    if missing:
        for flags, figures in track(run_in_processes(work, missing), "measuring", len(missing)):
            results[key_of(flags)] = figures
            cache.write_text(json.dumps(results, indent=0, sort_keys=True) + "\n")
    return results
