"""Compare whole commands with and without each fast path of `regard.fast`.

    python benchmarks/fast_paths.py DATA [--rounds 3] [--only search]

DATA is the folder that `regard data multi30k` creates. Each command runs in its own process: alternately as it is, and
with one fast path off. The table shows medians of the processor time of all threads and of the time by the clock,
relative to the command with all fast paths. A path is kept if a command takes at least 1.2 times as long without it.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from flags import count, multi30k
from markdown_tables import markdown

OFF = {
    "all": "",
    "memory": "import regard.fast.memory as m; m.keep_memory = lambda: None",
    "softmax": "import regard.fast.softmax as m; m.padded_softmax = lambda s, dtype: s.softmax(-1, dtype=dtype)",
    "adam": "import types, regard.training.checkpoint as m; m.fast = types.SimpleNamespace(enabled=lambda: False)",
    "query_gradient": "from regard.models.query import QueryModel as m; m.fast_gradient = lambda self: None",
    "additive": "import regard.attention.scores as m; m.blockwise_scores = m.pairwise_scores",
    "fused_rnn_attention": "from regard.models.recurrent import RecurrentDecoder as m; m._run_fused = lambda *a: None",
    "fast_transformer": "import regard.decoding.search as m; m.supports = lambda model: False",
    "token_screen": "import regard.fast.fast_transformer as m; m.make_screen = lambda *a: None",
    "onednn": "import regard.fast.onednn as m; m.is_faster = lambda: False",
}
"""Fast paths, and the code that turns each off."""
TEXTS = ["--train", "train.de", "train.en"]
TRAIN = ["train", "translation", *TEXTS, "--overwrite", "--seed", "0"]
SEARCH = ["translate", "trained/translation", "--input", "sources.txt", "--engine", "regard"]
WORKS = {
    "train counting": (["train", "counting", "--overwrite"], ["adam", "memory", "query_gradient"]),
    "train signal2": (["train", "signal2", "--overwrite"], ["query_gradient", "adam", "memory", "onednn"]),
    "train dates, 400 steps": (["train", "dates", "--steps", "400", "--overwrite"], ["softmax", "memory"]),
    "train translation, 60 steps": ([*TRAIN, "--steps", "60"], ["memory", "softmax", "adam", "onednn"]),
    "train translation, Bahdanau's decoder, 100 steps": (
        [*TRAIN, "--steps", "100", "--model", "recurrent", "--score", "additive", "--context", "cell"],
        ["fused_rnn_attention", "additive", "memory"],
    ),
    "search, greedy": ([*SEARCH, "--beam", "1"], ["fast_transformer", "token_screen", "softmax", "memory"]),
    "search, beams of 5": ([*SEARCH, "--beam", "5"], ["fast_transformer", "softmax", "memory"]),
    "validation": (["test", "trained/translation", "--data", "val.de", "val.en"], ["fast_transformer", "token_screen"]),
}
"""Commands, and the fast paths that they use."""


def run(argv: list[str], folder: Path, off: str = "all") -> tuple[float, float]:
    """Run a command without one fast path; return its processor time and its time by the clock, in seconds."""
    code = f"import sys; sys.argv[1:] = {argv!r}\n{OFF[off]}\nfrom regard.cli import main; sys.exit(main())"
    began, busy = time.perf_counter(), sum(os.times()[2:4])
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(argv)}: {done.stderr}")
    return sum(os.times()[2:4]) - busy, time.perf_counter() - began


def main() -> None:
    """Measure all commands, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=multi30k, help="folder of Multi30k")
    parser.add_argument("--rounds", type=count, default=3, help="measured rounds (default: 3)")
    parser.add_argument("--only", default="", help="measure only commands with this beginning (default: all)")
    args = parser.parse_args()
    works = {name: work for name, work in WORKS.items() if name.startswith(args.only)}
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in args.data.glob("*.gz"):
            unpacked = subprocess.run(["gzip", "-dc", path.resolve()], capture_output=True, check=True).stdout
            (folder / path.stem).write_bytes(unpacked)
        lines = (folder / "val.de").read_text().splitlines(keepends=True)
        (folder / "sources.txt").write_text("".join(lines[:500]))
        if any("search" in work for work in works):
            run([*TRAIN, "--steps", "300", "--savepath", "trained"], folder)
        for work, (argv, paths) in works.items():
            times: dict[str, list[tuple[float, float]]] = {path: [] for path in ("all", *paths)}
            for number in range(args.rounds):
                for path in list(times)[:: -1 if number % 2 else 1]:
                    times[path].append(run(argv, folder, path))
            columns = {path: zip(*found, strict=True) for path, found in times.items()}
            medians = {path: [*map(statistics.median, column)] for path, column in columns.items()}
            for path in paths:
                ratios = [off / on for off, on in zip(medians[path], medians["all"], strict=True)]
                rows.append([f"`{work}`", path, *(f"{s:.2f}" for s in medians["all"]), *(f"{r:.2f}" for r in ratios)])
                print("\t".join(rows[-1]), file=sys.stderr, flush=True)
    heads = ["command", "fast path", "processor s", "s", "without it: processor time", "without it: time"]
    print(markdown(heads, rows))


if __name__ == "__main__":
    main()
