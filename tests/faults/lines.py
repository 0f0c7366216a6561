"""Invalid and unusual command lines, each determined by its seed.

All flags of all commands are read as the commands declare them. Each command is called with each possible subject
until it calls the parser; the dataclass that the parser receives is stored. New commands, flags, tasks and models
are therefore included automatically.
"""

import contextlib
import dataclasses
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args, get_origin, get_type_hints
from unittest import mock

import tyro

from regard.cli import COMMANDS, main
from regard.data.datasets import DATA_SETS
from regard.interpret.figures import FIGURE_KINDS
from regard.tasks.all_tasks import TASKS, find_task
from regard.training.config import models_for
from tests.faults.children import NULL, Streams
from tests.faults.ground import LINES

COMPARED = ("--vary", "lr=0.1,0.2")


class SeenError(BaseException):
    """Raised when the parser is called, to end the command."""


@dataclass(frozen=True)
class Flag:
    """A flag, its type and its default."""

    name: str
    hint: Any
    default: Any


@dataclass(frozen=True)
class Form:
    """A command and its subject, with all flags."""

    command: str
    words: tuple[str, ...]
    """Arguments after the command: nothing, a task or a run, and the flags that other flags depend on."""
    flags: tuple[Flag, ...]

    def flag(self, name: str) -> Flag | None:
        """Return the flag `name`; None if it does not exist."""
        return next((each for each in self.flags if each.name == name), None)


def forms(runs: Sequence[str]) -> list[Form]:
    """Return every command with every subject; runs are in the working directory of this process."""
    return [form for command in COMMANDS for form in _forms_of(command, runs)]


def _forms_of(command: str, runs: Sequence[str]) -> Iterator[Form]:
    alone = _flags_of(command, ())
    if alone is not None:
        yield Form(command, (), alone)
        return
    for words in _subjects(command, runs):
        flags = _flags_of(command, words)
        if flags is not None:
            yield Form(command, words, flags)


def _subjects(command: str, runs: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the subjects of a command; the subjects of commands that are not listed here are runs."""
    if command in ("train", "compare"):
        for task in TASKS:
            for model in models_for(find_task(task)):
                yield task, "--model", model
    elif command == "plot":
        yield from ((kind, name) for kind in FIGURE_KINDS for name in runs)
    else:
        yield from ((name,) for name in (DATA_SETS if command == "data" else runs))


def _flags_of(command: str, words: tuple[str, ...]) -> tuple[Flag, ...] | None:
    """Return the flags of a command; None if the command does not accept this subject."""
    # Training and comparisons have separate flags, followed by the flags of the model and the task.
    parsers, extra = 1 + (command in ("train", "compare")), COMPARED if command == "compare" else ()
    seen: list[Any] = []
    real = tyro.cli

    def note(kind: Any, **others: Any) -> Any:
        seen.append(others["default"])
        if len(seen) == parsers:
            raise SeenError
        return real(kind, **others)

    with (
        mock.patch.object(tyro, "cli", note),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(SeenError, SystemExit),
    ):
        main([command, *words, *extra])
    if len(seen) < parsers:
        return None
    flags = {flag.name: flag for default in seen for flag in _flat(default)}
    for flag in _flat(seen[0]):
        flags[flag.name] = flag
    return tuple(flags.values())


def _flat(default: Any) -> Iterator[Flag]:
    """Yield the flags of a dataclass, including nested dataclasses."""
    hints = get_type_hints(type(default))
    for each in dataclasses.fields(default):
        value = getattr(default, each.name)
        if dataclasses.is_dataclass(value):
            yield from _flat(value)
        else:
            yield Flag(each.name, hints[each.name], value)


INTEGERS = ["0", "1", "2", "3", "5", "-1", "-0", "+2", "007", "1_0", " 2 ", "2.0", "1e3", "0x10", "\uff12", "½"]
LARGE = [str(number) for number in (255, 4096, 2**31 - 1, 2**31, 2**32, 2**63, 2**64, 10**30)] + ["9" * 5000]
FLOATS = [
    *("0", "1", "0.5", "-1", "-0.0", "1e-320", "1e308", "1e309", "nan", "NaN", "-nan", "inf", "-inf", "1e"),
    "1,5",
]
BOOLEANS = ["True", "False", "true", "0", "1", "yes", "maybe", "None", ""]
TEXTS = [
    *("", " ", "A", "BCCCBAABACCCA", "None", "null", "3. Mai 1979", "é" * 40, "日本語", "\u202egnp.exe"),
    *("a\u0301", "😀", "\udcff", "x\ud800y", "\x00", "a\x00b", "a\nb", "\x1b[31mred", "\x07", "x" * 300),
    *("y" * 5000, "--", "-", "-1", "--help", "=", "a=b", "$(id)", "%s%n", "{0}", "module:Class", "os:getcwd"),
    *("math:", ":", "no.such.module:Thing"),
]
PATHS = [
    *("new", "deep/er/new", "missing/../new", "things/folder", "things/closed", "things/closed/inside"),
    *("things/secret", "things/null", "things/pipe", "things/link", "things/dangling", "things/loop"),
    *("things/file", "things/file/inside", "things/bytes", "things/" + "n" * 300, "d/" * 3000, "n" * 5000, ""),
    *(".", "..", "/", "/dev/null", "/dev/full", "/proc/nothing", "/etc/nothing", "models", "models/counting"),
    *("models/counting/config.json", "models/counting/model.safetensors", "~", "a\nb.png", "a\x00b.png"),
    *("\udcff.png", "x\ud800.json", "-", "new.png", "new.svg", "new.pdf", "new.html", "new.json", "new.PNG"),
    *("new.gif", "new.", "things/folder.png", "things/link.png", "things/null.png"),
]


def hostile(flag: Flag, random: Random) -> list[str]:
    """Return values of a flag, usually of its type: valid values, limits and invalid values."""
    if random.random() < 0.12:  # of another type
        return [random.choice(random.choice([INTEGERS, LARGE, FLOATS, BOOLEANS, TEXTS, PATHS]))]
    return _of_type(flag.hint, flag.name, flag.default, random)


def _of_type(hint: Any, name: str, default: Any, random: Random) -> list[str]:
    given = [part for part in get_args(hint) if part not in (type(None), Ellipsis)]
    if hint is bool:
        return [random.choice(BOOLEANS)]
    if hint is int:
        near = [str(default + step) for step in (-1, 0, 1)] if isinstance(default, int) else []
        return [random.choice(random.choice([INTEGERS, INTEGERS, LARGE, near or INTEGERS]))]
    if hint is float:
        return [random.choice(random.choice([FLOATS, FLOATS, INTEGERS, LARGE]))]
    if hint is Path:
        return [random.choice(PATHS)]
    if get_origin(hint) is Literal:
        return [random.choice([*map(str, given), str(given[0]).upper(), str(given[0])[:-1], *TEXTS[:3]])]
    if get_origin(hint) is tuple:
        return [word for _ in range(random.randint(0, 3)) for word in _of_type(given[0], name, None, random)]
    if given:  # one of several types, including None
        return _of_type(random.choice(given), name, default, random)
    return [random.choice(random.choice([TEXTS, PATHS]) if name in ("plot", "data", "run") else TEXTS)]


SMALL = {
    "steps": "2",
    "hidden": "4",
    "embedding": "4",
    "inner": "4",
    "heads": "2",
    "batchsize": "2",
    "tokens": "100",
    "samples": "4",
    "seeds": "1",
    "validate_every": "2",
    "enc_layers": "1",
    "dec_layers": "1",
}
"""Flags that shorten a command, used if the command accepts these flags and they are not under test."""
WEIGHTS = {"train": 28, "test": 18, "translate": 14, "score": 9, "prune": 7, "export": 6, "compare": 5, "show": 1}
USUAL = 4
"""Weight of frequent commands."""
TRANSLATION_TEXT = ["--train", "text/train.de", "text/train.en", "--valid", "text/valid.de", "text/valid.en"]
VARIED = [
    *("hidden=4,8", "lr=0.1,0.2", "score=dot,additive", "hidden", "=", "hidden=", "seed=1,2", "nothing=1"),
    "hidden=x",
]


@dataclass(frozen=True)
class Line:
    """A command line, its unusual parts, and the paths that it reads and writes."""

    argv: tuple[str, ...]
    odd: tuple[str, ...]
    """Flags and values, of which an error message must name at least one."""
    streams: Streams


def line_of(seed: int, index: int, forms: Sequence[Form]) -> Line:
    """Return the command line of a seed and a number."""
    random = Random(f"{seed}/{index}")
    commands = list(dict.fromkeys(form.command for form in forms))
    command = random.choices(commands, [WEIGHTS.get(each, USUAL) for each in commands])[0]
    form = random.choice([each for each in forms if each.command == command])
    odd: list[str] = []
    words = list(form.words)
    if words and random.random() < 0.06:
        words[0] = random.choice([*TEXTS, *PATHS, "models/copy", "./models/dates", words[0][:-1], words[0].upper()])
        odd.append(words[0])
    tried = random.sample(form.flags, min(len(form.flags), random.choice([0, 1, 1, 1, 1, 2])))
    groups = [_given(flag, hostile(flag, random), odd, random) for flag in tried]
    groups += _usual(form, {flag.name for flag in tried}, random)
    groups += _strange(form, forms, odd, random)
    random.shuffle(groups)
    if command in ("translate",) and random.random() < 0.5:
        text = random.choice(TEXTS)
        odd.append(text)
        # Positional arguments can precede or follow the flags.
        words, groups = (words, [*groups, [text]]) if random.random() < 0.3 else ([*words, text], groups)
    if random.random() <= 0.02:
        odd.append(command)
        command = random.choice([command[:-1], command.upper(), command + "s", *TEXTS])
    argv = [command, *words, *(word for group in groups for word in group)]
    return Line(tuple(argv), (*odd, *argv), _streams(random))


def _given(flag: Flag, values: list[str], odd: list[str], random: Random) -> list[str]:
    """Return a flag and its values in one of the possible spellings."""
    odd += [flag.name, *values]
    name = "--" + (flag.name.replace("_", "-") if random.random() < 0.3 else flag.name)
    if flag.hint is bool:
        spelt = [name], [f"--no-{flag.name}"], [f"{name}={values[0]}"], [name, values[0]]
        return random.choice(spelt)
    return [f"{name}={values[0]}"] if len(values) == 1 and random.random() < 0.5 else [name, *values]


def _usual(form: Form, tried: set[str], random: Random) -> list[list[str]]:
    """Return flags that shorten the command and usually make it valid."""
    found = [[f"--{name}", value] for name, value in SMALL.items() if form.flag(name) and name not in tried]
    if form.words[:1] == ("translation",) and form.flag("train") and not {"train", "valid"} & tried:
        found = [each for each in found if each[0] != "--batchsize"]
        found += [TRANSLATION_TEXT[:3], TRANSLATION_TEXT[3:], ["--vocab_size", "60"]][
            : None if random.random() < 0.9 else 1
        ]
    if form.command == "train" and "savepath" not in tried:
        found += random.choice([[["--savepath", "new"]]] * 4 + [[["--overwrite"]], [["--resume"]], []])
    if form.command == "compare":
        found += [["--vary", random.choice(VARIED) if random.random() < 0.5 else VARIED[0]]]
    if form.command == "show":
        found += [["--no-browser"], ["--port", str(random.randint(20_000, 60_000))]]
    return found


def _strange(form: Form, forms: Sequence[Form], odd: list[str], random: Random) -> list[list[str]]:
    """Return unexpected words, usually an empty list."""
    chance = random.random()
    if chance < 0.82:
        return []
    if chance < 0.85:  # an unknown flag
        found = [random.choice(["--nothing", "--", "-x", "---steps", "--s\udcff", "--" + "n" * 5000, "--\x00", "-"])]
    elif chance < 0.89:  # a flag of another command or task
        flag = random.choice(random.choice(forms).flags or (Flag("nothing", int, 1),))
        found = [f"--{flag.name}", *hostile(flag, random)]
    elif chance < 0.93 and form.flags:  # a repeated flag, or one without its value
        flag = random.choice(form.flags)
        found = random.choice([[f"--{flag.name}"], [f"--{flag.name}="], [f"--{flag.name}", "1", f"--{flag.name}=2"]])
    elif chance < 0.96 and form.flags:  # a misspelt flag
        name = random.choice(form.flags).name
        found = [random.choice([f"--{name[:-1]}", f"--{name.upper()}", f"-{name}", f"--{name}s=1", f"--no-{name}"])]
    else:  # an extra word
        found = [random.choice([*TEXTS, *PATHS])]
    odd += [word.lstrip("-").partition("=")[0] for word in found] + found
    return [found]


def _streams(random: Random) -> Streams:
    stdin = random.choice([NULL, *(NULL.__class__(f"text/lines{index}") for index in range(len(LINES)))])
    chance = random.random()
    stdout = Path("/dev/full") if chance < 0.01 else None
    closed = tuple(number for number in range(3) if random.random() < 0.6) if random.random() < 0.05 else ()
    return Streams(stdin, stdout, "ascii" if 0.01 < chance < 0.03 else "utf-8", closed)


def near(words: Sequence[str], message: str) -> bool:
    """Return whether a message contains one of `words`: literally, as Python's repr, or shortened."""
    said = message.lower()
    for word in words:
        if not word.rpartition("=")[2] and "'.'" in said:  # an empty path is the working directory
            return True
        plain = word.strip().lstrip("-").partition("=")[0]
        spellings = (word, word.removeprefix("./"), repr(word)[1:-1], plain)
        for form in (*spellings, plain.replace("-", "_"), plain.replace("_", "-")):
            if form and form[:20].lower() in said:
                return True
    if "characters, at most" in said and any(len(word) > 1000 for word in words):
        return True
    quoted = re.findall(r"'([^']*)'", message)
    spelt = [form for word in words for form in (word, repr(word))]
    return any(each in form for each in quoted for form in spelt if len(each) < 8 or each == form)
