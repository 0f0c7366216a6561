"""Compare the speed of a long training run with and without kept memory (regard.fast.memory).

    python benchmarks/kept_memory.py DATA [--steps 1500]

DATA is the folder that `regard data multi30k` creates. The program trains the same model, German to English
with R-Drop, in two concurrent processes with one thread and one core each. One process keeps its memory; the
other uses the defaults of glibc. The program prints the steps per second and the memory (resident set) of both
processes for every hundred steps.
"""

import argparse
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from batch_timing import on_batch
from markdown_tables import markdown
from multi30k import files

from regard.sweep.backends import run_in_processes

EVERY = 100
"""Steps between two measurements."""


def measure(data: Path, steps: int, kept: bool) -> list[tuple[float, float]]:
    """Train; return steps per second and memory in MiB for every hundred steps."""
    import importlib

    import regard

    training: Any = importlib.import_module("regard.runs.training")

    if not kept:
        training.keep_memory = lambda: None
    marks: list[tuple[float, float]] = []
    on_batch(lambda tokens: marks.append((time.perf_counter(), resident())))
    text: dict[str, Any] = dict(files(data))
    del text["valid"]
    flags: dict[str, Any] = {"lowercase": True, "dropout": 0.2, "r_drop": 3.0, "steps": steps}
    with tempfile.TemporaryDirectory() as folder:
        regard.train("translation", **text, **flags, savepath=folder, progress=False)
    marks.append((time.perf_counter(), resident()))
    return [(EVERY / (end - begin), memory) for (begin, _), (end, memory) in pairwise(marks[::EVERY])]


def resident() -> float:
    """Return the resident memory of this process in MiB."""
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def main() -> None:
    """Train in both processes, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of Multi30k's files")
    parser.add_argument("--steps", type=int, default=1500, help="training steps (default: 1500, half an hour)")
    args = parser.parse_args()
    if args.steps < EVERY:
        parser.error(f"--steps: at least {EVERY}")
    results = dict(run_in_processes(partial(measure, args.data, args.steps), [False, True]))
    rows = [
        [f"{EVERY * (index + 1):,}", f"{default:.2f}", f"{kept:.2f}", f"{kept / default:.2f}", f"{a:,.0f}", f"{b:,.0f}"]
        for index, ((default, a), (kept, b)) in enumerate(zip(results[False], results[True], strict=True))
    ]
    speeds = ["steps/s: default of glibc", "kept memory", "ratio"]
    print(markdown(["steps", *speeds, "memory, MiB: default of glibc", "kept memory"], rows))


if __name__ == "__main__":
    main()
