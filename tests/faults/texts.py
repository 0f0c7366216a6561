"""A campaign of texts: batches of any size and order, blank lines, other encodings, unequal lengths.

    python -m tests.faults texts --seed 7 --count 1000      number of texts
    python -m tests.faults texts --seed 7 --only 123        repeat one text

The answer to a line does not depend on other lines. A blank line has an empty answer, and output line n is the
answer to input line n. A broken file is refused in one line, with status 2 and without output files; --lenient
reads the whole file.
"""

import contextlib
import gzip
import io
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import regard
from regard.cli import main as command_line
from regard.data.parallel import MAX_BROKEN
from regard.data.vocabulary import is_blank
from tests.faults.report import Report, Trial, campaign
from tests.german import sentences, write

USUAL_COUNT = 400
TINY: dict[str, Any] = {
    "hidden": 8,
    "heads": 2,
    "inner": 8,
    "enc_layers": 1,
    "dec_layers": 1,
    "vocab_size": 60,
    "tokens": 400,
}
BLANKS = " \t\u00a0\u2003\u3000\u200b\u200c\u200d\u2060\ufeff\u00ad\x01\u3164"
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "latin-1", "cp1252"]
SEARCHES: list[dict[str, Any]] = [
    {"beam": 1},
    {"beam": 4},
    {"beam": 3, "n_best": 3, "length_penalty": 0.7},
    {"temperature": 0.8, "seed": 5},
]
LEFT_OUT = (
    *("left out", "has no pair", "without a partner", "is empty", "no pair", "not UTF-8", "zero bytes"),
    "partner",
)
"""Parts of messages about omitted lines of a broken file."""
TIE = 1e-4
"""Largest difference of scores that is a rounding error."""


def call(*words: str | Path, lines: bytes = b"") -> tuple[int, str, str]:
    """Return the status, the output and the errors of a command line that runs in this process."""
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(lines))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = command_line([str(word) for word in words])
    except SystemExit as stop:
        status = int(stop.code or 0)
    finally:
        sys.stdin = before
    return status, out.getvalue(), err.getvalue()


def some_lines(random: Random) -> list[str]:
    """Return lines of known and unknown words with very different lengths, some repeated, some blank."""
    words = [word for source, _ in sentences()[:40] for word in source.split()] + ["☃", "xyz", "ÄÖÜ"]
    lines = [" ".join(random.choices(words, k=random.choice([1, 2, 5, 12, 30]))) for _ in range(random.randint(2, 12))]
    lines += random.choices(lines, k=random.randint(0, 2))
    lines += ["".join(random.choices(BLANKS, k=random.randint(0, 4))) for _ in range(random.randint(0, 3))]
    random.shuffle(lines)
    return lines


def try_batches(run: regard.TranslationRun, folder: Path, random: Random) -> list[str]:
    """Answer lines one by one, and in batches of different sizes and orders."""
    del folder
    lines, options = some_lines(random), random.choice(SEARCHES)
    engine: Any = "regard" if options.get("temperature") else random.choice(["regard", "ctranslate2"])
    alone = [run.search([line], engine=engine, **options)[0] for line in lines]
    order = random.sample(range(len(lines)), len(lines))
    size = random.choice([1, 2, 7, 64])
    found = run.search([lines[place] for place in order], engine=engine, batchsize=size, **options)
    faults = []
    for place, answers in zip(order, found, strict=True):
        for one, other in zip(alone[place], answers, strict=True):
            near = any(abs(one.score - each.score) < TIE for each in alone[place] if each is not one)
            if one.text != other.text and not (near or abs(one.score - other.score) < TIE):
                faults.append(f"an answer differs in a batch of {size} ({engine}, {options})")
    return faults


def try_blank(run: regard.TranslationRun, folder: Path, random: Random) -> list[str]:
    """Pass lines, some of them blank, to a command."""
    del folder
    lines = some_lines(random)
    command = random.choice(["translate", "score", "align"])
    if command == "score":
        lines = [f"{line}\t{random.choice(lines)}" for line in lines]
    more = ["-"] if command == "align" else random.choice([[], ["--batchsize", "1"]])
    status, out, err = call(command, run.folder, *more, lines="".join(f"{each}\n" for each in lines).encode())
    found = out.split("\n")[:-1]
    if status or len(found) != len(lines):
        return [f"{command}: status {status}, {len(found)} lines for {len(lines)}: {err}"]
    empty = {"score": "nan\tnan"}.get(command, "")
    blank = [is_blank(line.partition("\t")[0]) for line in lines]
    return [
        f"{command}: a blank line is answered"
        for is_one, line in zip(blank, found, strict=True)
        if is_one and line != empty
    ]


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def readers(run: regard.TranslationRun, folder: Path, source: Path, target: Path) -> list[list[str | Path]]:
    """Return commands that read a pair of files and write into the folder."""
    whole = [folder.parent / "text" / f"train.{side}" for side in ("de", "en")]
    sizes = {name: value for name, value in TINY.items() if name != "validate_every"}  # not all validate
    flags = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    train: list[str | Path] = ["train", "translation", *flags, "--steps", "1", "--savepath", folder / "new"]
    return [
        [*train, "--train", source, target],
        [*train, "--train", *whole, "--valid", source, target],
        [*train, "--train", *whole, "--test", source, target],
        ["test", run.folder, "--beam", "1", "--data", source, target, "--output", folder / "new"],
        ["align", run.folder, source, target],
        ["clean", source, target, "--savepath", folder / "new"],
    ]


def judge(words: list[str | Path], folder: Path, *, refused: bool) -> list[str]:
    status, out, err = call(*words)
    if not refused:
        return [] if status == 0 else [f"{words[0]}: refused, status {status}: {err}"]
    faults = [] if status == 2 and err.count("\n") == 1 and not out else [f"{words[0]}: status {status}: {err}"]
    if (folder / "new").exists():
        faults.append(f"{words[0]}: something was written")
    status, out, err = call(*words, "--lenient")
    if status == 0 and "--test" in words:  # which is read by the test
        status, *more = call("test", folder / "new" / "translation", "--beam", "1")
        out, err = out + more[0], err + more[1]
    told = status in (0, 2) and any(sign in out + err for sign in LEFT_OUT)
    return faults if told else [*faults, f"lenient: {err}"]


def try_encoding(run: regard.TranslationRun, folder: Path, random: Random) -> list[str]:
    """Write a text in some encoding, and run commands that read it."""
    sources, targets = zip(*sentences()[: random.randint(30, 200)], strict=True)
    encoding, ending = random.choice(ENCODINGS), random.choice(["", ".gz"])
    content = "".join(f"{each}\n" for each in sources).encode(encoding)
    source = put(folder / f"a.de{ending}", content)
    target = put(folder / "a.en", "".join(f"{each}\n" for each in targets).encode())
    bad = 0
    for line in content.split(b"\n"):
        try:
            line.decode()
        except UnicodeDecodeError:
            bad += 1
    refused = b"\0" in content or bad > MAX_BROKEN * len(sources)
    choices: list[list[str | Path]] = [
        *readers(run, folder, source, target),
        ["translate", run.folder, "--beam", "1", "--input", source],
    ]
    return judge(random.choice(choices), folder, refused=refused)


def try_lengths(run: regard.TranslationRun, folder: Path, random: Random) -> list[str]:
    """Write two files of different lengths, and run commands that read them."""
    pairs = sentences()[: random.randint(20, 60)]
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    longer = random.choice(sides)
    for _ in range(random.choice([1, 1, 3])):
        longer.insert(random.randint(0, len(longer)), random.choice(["", "Mehr."]))
    files = [
        put(folder / name, "".join(f"{each}\n" for each in side).encode())
        for name, side in zip("ab", sides, strict=True)
    ]
    return judge(random.choice(readers(run, folder, *files)), folder, refused=True)


KINDS: dict[str, Callable[[regard.TranslationRun, Path, Random], list[str]]] = {
    "batches": try_batches,
    "blank lines": try_blank,
    "encodings": try_encoding,
    "unequal lengths": try_lengths,
}


def make_run(folder: Path) -> regard.TranslationRun:
    """Train a run for a few steps, which rarely ends an answer before the limit."""
    (folder / "text").mkdir()
    text: Any = write(folder / "text")
    run = regard.train("translation", **text, **TINY, steps=20, savepath=folder, progress=False)
    assert isinstance(run, regard.TranslationRun)
    return run


def attempt(run: regard.TranslationRun, folder: Path, seed: int, index: int) -> tuple[Trial, str]:
    """Run the trial of a seed and a number."""
    random = Random(f"{seed}/{index}")
    kind = random.choice(list(KINDS))
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        try:
            faults = KINDS[kind](run, Path(scratch), random)
        except Exception as error:
            faults = [f"{kind}: {type(error).__name__}: {error}"]
    return Trial(index, kind, kind, tuple(dict.fromkeys(faults)), (kind,)), ""


def main(count: int | None, seed: int, only: int | None = None) -> Report:
    """Run `count` trials of a seed; `only` runs a single trial."""
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("XDG_STATE_HOME", scratch)
        run = make_run(Path(scratch))
        tried = partial(attempt, run, Path(scratch), seed)
        return campaign("texts", "texts", seed, count or USUAL_COUNT, only, tried)
