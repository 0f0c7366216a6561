"""Measurements that take long: on all cores at once, and each kept in a file as soon as it is there."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.progress import track

from regard.sweep.processes import run_in_processes

Flags = dict[str, Any]
"""Of one training."""
Results = dict[str, dict[str, Any]]
"""What was measured of each training, by its key."""


def key_of(flags: Flags) -> str:
    """Name a training in a file of measurements."""
    return json.dumps(flags, sort_keys=True)


def measure_missing(cache: Path, work: Callable[[Flags], dict[str, Any]], jobs: Sequence[Flags]) -> Results:
    """Return what the file holds, with what `work` makes of the jobs that are not in it, a core for each.

    Every measurement is written at once, so that an interrupted program goes on where it stopped; delete the file
    to measure anew.
    """
    results: Results = json.loads(cache.read_text()) if cache.exists() else {}
    missing = [flags for flags in jobs if key_of(flags) not in results]
    if missing:
        for flags, figures in track(run_in_processes(work, missing), "measuring", len(missing)):
            results[key_of(flags)] = figures
            cache.write_text(json.dumps(results, indent=0, sort_keys=True) + "\n")
    return results
