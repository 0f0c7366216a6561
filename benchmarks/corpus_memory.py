"""Measure the memory and time of preparing corpora of several sizes and training on them.

    python benchmarks/corpus_memory.py [--pairs 50000 5000000] [--steps 50]

The program writes corpora of synthetic pairs with the given sizes, prepares the vocabulary and the corpus, and
trains the tiny Transformer on each corpus. Each training run is a separate process. The program prints the
peak memory (resident set) and the time of each part.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from batch_timing import on_batch

WORDS = 20_000
"""Number of distinct words in each language."""


def write_pairs(folder: Path, pairs: int) -> tuple[str, str]:
    """Write `pairs` sentences of 3 to 12 words with Zipfian frequencies; each target is its source in reverse
    order."""
    choose = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(choose.choices(letters, k=choose.randint(2, 9))) for _ in range(WORDS)]
    cumulative = list(range(WORDS))
    for index in range(WORDS):
        cumulative[index] = (cumulative[index - 1] if index else 0) + 10**9 // (index + 10)
    files = (str(folder / f"{pairs}.source"), str(folder / f"{pairs}.target"))
    with Path(files[0]).open("w") as source, Path(files[1]).open("w") as target:
        for _ in range(pairs):
            sentence = choose.choices(words, cum_weights=cumulative, k=choose.randint(3, 12))
            source.write(" ".join(sentence) + "\n")
            target.write(" ".join(word[::-1] for word in sentence) + "\n")
    return files


def measure(train: list[str], steps: int, folder: str) -> None:
    """Train, and print the figures as JSON; runs in a separate process."""
    import regard

    begin, batch_times = time.perf_counter(), list[float]()
    on_batch(lambda tokens: batch_times.append(time.perf_counter()))
    regard.train("translation", train=train, steps=steps, savepath=folder, progress=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"peak": peak, "prepare": batch_times[0] - begin, "train": time.perf_counter() - batch_times[0]}))


def main() -> None:
    """Measure each size of the corpus, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, nargs="+", default=[50_000, 5_000_000], help="numbers of pairs")
    parser.add_argument("--steps", type=int, default=50, help="training steps (default: 50)")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        *train, folder = args.worker
        measure(train, args.steps, folder)
        return
    print("| pairs | files, MB | peak memory, MiB | relative to the first row | preparation, s | training, s |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    first = None
    for pairs in args.pairs:
        with tempfile.TemporaryDirectory() as name:
            files = write_pairs(Path(name), pairs)
            size = sum(Path(file).stat().st_size for file in files) / 1e6
            command = [sys.executable, __file__, "--steps", str(args.steps), "--worker", *files, f"{name}/models"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            figures = json.loads(done.stdout.splitlines()[-1])
        first = first or figures["peak"]
        print(
            f"| {pairs:,} | {size:,.0f} | {figures['peak']:,.0f} | {figures['peak'] / first:.2f} "
            f"| {figures['prepare']:.0f} | {figures['train']:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
