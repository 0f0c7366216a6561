"""Measure wall-clock and processor time of `regard compare` and of two other methods of training many seeds.

    python benchmarks/compare_speed.py [--tasks counting signal2] [--seeds 10] [--steps 300] [--rounds 1]

All three methods train the same seeds of a task, and test each run on 10,000 samples: `regard compare`, which
also draws its report; a loop in one process with PyTorch's default number of threads; and one process with one
thread for each seed, with as many concurrent processes as cores.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from markdown_tables import markdown

TASKS = ("counting", "difference", "signal", "signal2")
SCRIPT = """
import sys, regard
task, steps, folder, *seeds = sys.argv[1:]
for seed in map(int, seeds):
    run = regard.train(task, seed=seed, steps=int(steps), savepath=f"{folder}/{seed}", progress=False)
    run.figures(seed=seed)
"""


def regard_compare(task: str, seeds: int, steps: int, folder: Path) -> None:
    """Train with `regard compare`."""
    arguments = ["compare", task, "--vary", "recipe=regard", "--seeds", str(seeds), "--steps", str(steps)]
    _run([sys.executable, "-m", "regard", *arguments, "--savepath", str(folder)], os.environ.copy())


def in_turn(task: str, seeds: int, steps: int, folder: Path) -> None:
    """Train in one process, one seed after the other."""
    _run([sys.executable, "-c", SCRIPT, task, str(steps), str(folder), *map(str, range(seeds))], os.environ.copy())


def parallel_processes(task: str, seeds: int, steps: int, folder: Path) -> None:
    """Train in concurrent processes, one for each seed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    commands = [[sys.executable, "-c", SCRIPT, task, str(steps), str(folder), str(seed)] for seed in range(seeds)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(lambda command: _run(command, environment), commands))


WAYS: dict[str, Callable[[str, int, int, Path], None]] = {
    "regard compare": regard_compare,
    "one after another": in_turn,
    "processes by hand": parallel_processes,
}


def _run(command: list[str], environment: dict[str, str]) -> None:
    subprocess.run(command, env=environment, check=True, capture_output=True)


def main() -> None:
    """Train each task with all three methods, and print the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    print(f"{args.seeds} seeds, {args.steps} steps, {len(os.sched_getaffinity(0))} cores, {args.rounds} rounds\n")
    head = ["task", *(f"{way}, s" for way in WAYS), *(f"ratio to {way}" for way in [*WAYS][1:])]
    print(markdown([*head, *(f"CPU s of {way}" for way in WAYS)], []), flush=True)
    for task in args.tasks:
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        processor: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(args.rounds):
            for way, train in WAYS.items():
                with tempfile.TemporaryDirectory() as folder:
                    began, used = time.perf_counter(), _children_time()
                    train(task, args.seeds, args.steps, Path(folder))
                    seconds[way].append(time.perf_counter() - began)
                    processor[way].append(_children_time() - used)
        walls = [statistics.median(times) for times in seconds.values()]
        ratios = [f"{wall / walls[0]:.2f}" for wall in walls[1:]]
        cpu_times = [f"{statistics.median(times):.1f}" for times in processor.values()]
        cells = [task, *(f"{wall:.1f}" for wall in walls), *ratios, *cpu_times]
        print(f"| {' | '.join(cells)} |", flush=True)


def _children_time() -> float:
    """Return the processor time of all processes that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
