"""Run long measurements on all cores, and store each result as soon as it is complete."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.progress import track

from regard.sweep.processes import run_in_processes

Flags = dict[str, Any]
"""Flags of one training."""
Results = dict[str, dict[str, Any]]
"""Measurements of each training, by its key."""


def key_of(flags: Flags) -> str:
    """Return the key of a training in a file of measurements."""
    return json.dumps(flags, sort_keys=True)


def measure_missing(cache: Path, work: Callable[[Flags], dict[str, Any]], jobs: Sequence[Flags]) -> Results:
    """Return the stored results; jobs without a result run `work` first, one per core.

    Each result is written at once, so an interrupted program continues where it stopped. To repeat the
    measurements, delete the file.
    """
    results: Results = json.loads(cache.read_text()) if cache.exists() else {}
    missing = [flags for flags in jobs if key_of(flags) not in results]
    if missing:
        for flags, figures in track(run_in_processes(work, missing), "measuring", len(missing)):
            results[key_of(flags)] = figures
            cache.write_text(json.dumps(results, indent=0, sort_keys=True) + "\n")
    return results
