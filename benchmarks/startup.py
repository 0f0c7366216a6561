"""Measure the startup time that each command adds to that of `import torch`.

    python benchmarks/startup.py [--rounds 5] [--only train]

The program runs each command to completion, and runs `import torch` alone after every third command, all with
`-X importtime`. The program sums the import times of the modules that `import torch` alone does not load:
modules of Regard and of other libraries. The program first trains the runs that the commands read for one step
each, in a temporary folder.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from markdown_tables import markdown

LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")
SUBJECTS, VERBS = ("a man", "a dog", "two boys", "a girl"), ("runs", "sits", "plays")
WORDS = [f"{subject} {verb}" for subject in SUBJECTS for verb in VERBS]
TEXT = [
    "--train",
    "source.txt",
    "target.txt",
    "--valid",
    "source.txt",
    "target.txt",
    "--vocab_size",
    "60",
    "--preset",
    "marian",
]
SOLVED = "def attend(query, keys, values):\n    return None\n"
Imports = dict[str, int]
"""Self time of each imported module, in microseconds."""
FIRST = [
    ["train", "counting", "--steps", "1"],
    ["train", "dates", "--steps", "1"],
    ["train", "translation", *TEXT, "--steps", "1"],
    ["export", "translation", "--to", "huggingface", "--output", "exported", "--license", "mit"],
]
"""Commands that create the runs of the other commands."""
EVERY = 3
"""Number of commands between two executions of `import torch`."""
COMMANDS = {
    "--help": ["--help"],
    "tasks": ["tasks"],
    "train counting": ["train", "counting", "--steps", "1", "--overwrite"],
    "train signal2": ["train", "signal2", "--steps", "1", "--overwrite"],
    "train recall": ["train", "recall", "--steps", "1", "--overwrite"],
    "train dates": ["train", "dates", "--steps", "1", "--overwrite"],
    "train phrases": ["train", "phrases", "--steps", "1", "--overwrite"],
    "train translation": ["train", "translation", *TEXT, "--steps", "1", "--overwrite"],
    "train counting --help": ["train", "counting", "--help"],
    "test counting": ["test", "counting", "--samples", "10"],
    "test dates": ["test", "dates", "--samples", "10"],
    "test translation": ["test", "translation", "--data", "source.txt", "target.txt"],
    "translate dates": ["translate", "dates", "3. Mai 1979"],
    "translate translation": ["translate", "translation", "a man runs"],
    "score translation": ["score", "translation", "--input", "pairs.tsv"],
    "align dates": ["align", "dates", "source.txt", "target.txt"],
    "export translation": ["export", "translation", "--to", "ctranslate2", "--output", "exported-{round}"],
    "import": [
        "import",
        "exported",
        "--from",
        "huggingface",
        "--savepath",
        "imported-{round}",
        "--examples",
        "source.txt",
    ],
    "compare counting": [
        "compare",
        "counting",
        "--steps",
        "1",
        "--seeds",
        "1",
        "--savepath",
        "compared-{round}",
        "--vary",
        "hidden=8,16",
    ],
    "show --help": ["show", "counting", "--help"],
    "look --help": ["look", "exported", "--help"],
    "examine counting": ["examine", "counting", "--samples", "2"],
    "explain counting": ["explain", "counting"],
    "prune signal2": ["prune", "signal2", "--heads", "1", "--output", "pruned-{round}"],
    "draw counting": ["draw", "counting", "--plot", "drawn.svg"],
    "learn --help": ["learn", "--help"],
    "check": ["check", "check.py"],
    "clean": ["clean", "source.txt", "target.txt", "--savepath", "clean-{round}"],
    "data --help": ["data", "--help"],
    "positions": ["positions", "--width", "8", "--length", "8", "--plot", "drawn.svg"],
}


def imports_of(argv: list[str], folder: Path) -> tuple[Imports, int]:
    """Run Python with `argv`; return the self time of each import in microseconds, and the exit status."""
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", *argv],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    imports: dict[str, int] = {}
    for line in process.stderr:
        if match := LINE.match(line):
            imports[match[2]] = imports.get(match[2], 0) + int(match[1])
    return imports, process.wait()


def main() -> None:
    """Measure each command, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="repetitions of each command (default: 5)")
    parser.add_argument("--only", default="", help="measure only commands with this prefix (default: all)")
    args = parser.parse_args()
    chosen = {name: argv for name, argv in COMMANDS.items() if name.startswith(args.only)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "source.txt").write_text("\n".join(WORDS * 20) + "\n")
        (folder / "target.txt").write_text("\n".join(word[::-1] for word in WORDS * 20) + "\n")
        pairs = [f"{word}\t{word[::-1]}" for word in WORDS]
        (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n")
        (folder / "check.py").write_text(SOLVED)
        for argv in FIRST:
            subprocess.run([sys.executable, "-m", "regard", *argv], cwd=folder, check=True, capture_output=True)
        torch: list[dict[str, int]] = []
        rounds: dict[str, list[Imports]] = {command: [] for command in chosen}
        for number in range(args.rounds):
            for index, (command, argv) in enumerate(chosen.items()):
                if index % EVERY == 0:
                    torch.append(imports_of(["-c", "import torch"], folder)[0])
                words = [word.format(round=number) for word in argv]
                imports, status = imports_of(["-m", "regard", *words], folder)
                if status:
                    print(f"{command}: exit status {status}", file=sys.stderr)
                rounds[command].append(imports)
    baseline = statistics.median(sum(imports.values()) for imports in torch) / 1e6
    print(f"import torch: {baseline:.2f} s\n")
    head = [
        "`regard ...`",
        "s added to `import torch`",
        "share",
        "s of other modules",
        "Regard's own",
        "slowest other packages",
    ]
    print(markdown(head, [row(command, imports, baseline, set(torch[0])) for command, imports in rounds.items()]))


def row(name: str, rounds: list[Imports], baseline: float, torch: set[str]) -> list[str]:
    """Return the medians of a command: its imports minus those of `import torch`, and the slowest libraries."""
    more = statistics.median(sum(imports.values()) for imports in rounds) / 1e6 - baseline
    packages: list[Counter[str]] = []
    for imports in rounds:
        packages.append(Counter())
        for module, time in imports.items():
            if module not in torch:
                packages[-1][module.partition(".")[0]] += time
    others = statistics.median(times.total() for times in packages) / 1e6
    own = statistics.median(times["regard"] for times in packages) / 1e6
    rest = Counter({package: time for package, time in packages[-1].items() if package != "regard"})
    most = ", ".join(f"{package} {time / 1e6:.3f}" for package, time in rest.most_common(3))
    return [f"`{name}`", f"{more:.3f}", f"{more / baseline:.2f}", f"{others:.3f}", f"{own:.3f}", most]


if __name__ == "__main__":
    main()
