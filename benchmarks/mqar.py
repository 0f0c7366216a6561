"""Accuracy on `mqar` by number of pairs, width and number of layers (Arora et al. 2023, "Zoology", Figure 2, with
short sequences).

    python benchmarks/mqar.py [--seeds 5] [--results docs/dev/results/mqar.json]

The models have attention layers with one head, and no feed-forward layers. A sequence has four tokens per pair:
a key and a value, then a query and noise in random order. Each result is stored in the file immediately, so an
interrupted program can be continued. Prints a Markdown table of means with 95 % intervals over the seeds. Half
an hour on one core.
"""

import argparse
import itertools
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from markdown_tables import RESULTS, markdown
from stored_measurements import Results, key_of

import regard
from regard.statistics import seed_range

PAIRS, WIDTHS, LAYERS = (4, 8, 16), (16, 32, 64), (1, 2)
VOCABULARY = 64
"""Number of keys and values together."""
TRAINING = {"feed_forward": False, "heads": 1, "lr": 0.005, "steps": 3000, "snapshots": 0}
TESTED = 1000
"""Number of unseen sequences."""


def flags_of(pairs: int, width: int, layers: int, seed: int) -> dict[str, Any]:
    """Return the flags of a training run."""
    size = {"pairs": pairs, "max_len": 4 * pairs, "vocab_size": VOCABULARY, "hidden": width, "layers": layers}
    return {**size, **TRAINING, "seed": seed}


def measure(flags: dict[str, Any]) -> dict[str, float]:
    """Train a model. Return the fraction of correct outputs on unseen sequences, and the CPU seconds."""
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = regard.train("mqar", **flags, savepath=folder, progress=False)
        seconds = time.process_time() - start
        assert isinstance(run, regard.LanguageRun)
        return {"exact_match": run.test(samples=TESTED).exact_match, "seconds": seconds}


def table(results: Results, seeds: int) -> str:
    """Return the table: one row for each number of layers and width, one column for each number of pairs."""
    rows = []
    for layers, width in itertools.product(LAYERS, WIDTHS):
        row = [str(layers), str(width)]
        for pairs in PAIRS:
            keys = [key_of(flags_of(pairs, width, layers, seed)) for seed in range(seeds)]
            interval = seed_range([results[key]["exact_match"] for key in keys])
            ends = [f"{100 * end:.1f}" for end in (interval.low, interval.high) if end is not None]
            row.append(f"{100 * interval.value:.1f}" + f" ({' to '.join(ends)})" * bool(ends))
        rows.append(row)
    return markdown(["layers", "width", *(f"{pairs} pairs" for pairs in PAIRS)], rows)


def main() -> None:
    """Train the missing models, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default 5)")
    parser.add_argument(
        "--results", type=Path, default=RESULTS / "mqar.json", help="file of results (default %(default)s)"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results: Results = json.loads(arguments.results.read_text()) if arguments.results.exists() else {}
    for seed in range(arguments.seeds):
        for layers, width, pairs in itertools.product(LAYERS, WIDTHS, PAIRS):
            flags = flags_of(pairs, width, layers, seed)
            if key_of(flags) not in results:
                results[key_of(flags)] = figures = measure(flags)
                arguments.results.write_text(json.dumps(results, indent=0, sort_keys=True) + "\n")
                print(f"{layers=} {width=} {pairs=} {seed=} {figures['exact_match']:.1%}", flush=True)
    print(table(results, arguments.seeds))


if __name__ == "__main__":
    main()
