"""Compare the speed of training many seeds as one stacked model with the speed of separate training runs.

    python benchmarks/stacked_seeds.py [--seeds 10] [--steps 300]

The program uses one thread. The stacked model trains on a GPU if PyTorch finds a GPU. Separate training runs
use the CPU, as in `regard train`.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from flags import count
from markdown_tables import markdown

import regard
from regard.runs.training import train_seeds

TASKS = ("counting", "difference", "signal", "signal2")


def main() -> None:
    """Train each task with both methods, and print the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=count, default=10, help="number of seeds (default: 10)")
    parser.add_argument("--steps", type=count, default=300, help="training steps of each seed (default: 300)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for task in TASKS:
        with tempfile.TemporaryDirectory() as name:
            folders = [Path(name) / str(seed) for seed in range(args.seeds)]
            began = time.perf_counter()
            train_seeds(task, folders, seeds=range(args.seeds), steps=args.steps)
            stacked = time.perf_counter() - began
            began = time.perf_counter()
            for seed, folder in enumerate(folders):
                regard.train(task, seed=seed, steps=args.steps, savepath=folder, overwrite=True, progress=False)
            single = time.perf_counter() - began
        rows.append([task, f"{stacked:.1f}", f"{single:.1f}", f"{single / stacked:.2f}"])
    print(f"{args.seeds} seeds, {args.steps} steps, {torch.cuda.device_count()} GPUs\n")
    print(markdown(["task", "stacked, s", "one after the other, s", "ratio"], rows))


if __name__ == "__main__":
    main()
