"""Invalid and unusual command lines, each determined by its seed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.faults.children import NULL, Streams
from tests.faults.flags import Flag, Form
from tests.faults.ground import LINES
from tests.faults.values import PATHS, TEXTS, hostile

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
    "hidden=4,8",
    "lr=0.1,0.2",
    "score=dot,additive",
    "hidden",
    "=",
    "hidden=",
    "seed=1,2",
    "nothing=1",
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
    words = _subject(form, odd, random)
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
    argv = [_misspelt(command, odd, random), *words, *(word for group in groups for word in group)]
    return Line(tuple(argv), (*odd, *argv), _streams(random))


def _subject(form: Form, odd: list[str], random: Random) -> list[str]:
    words = list(form.words)
    if words and random.random() < 0.06:
        words[0] = random.choice(
            [*TEXTS, *PATHS, "models/copy", "./models/dates", words[0][:-1], words[0].upper()]
        )
        odd.append(words[0])
    return words


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
        found = [
            random.choice(["--nothing", "--", "-x", "---steps", "--s\udcff", "--" + "n" * 5000, "--\x00", "-"])
        ]
    elif chance < 0.89:  # a flag of another command or task
        flag = random.choice(random.choice(forms).flags or (Flag("nothing", int, 1),))
        found = [f"--{flag.name}", *hostile(flag, random)]
    elif chance < 0.93 and form.flags:  # a repeated flag, or one without its value
        flag = random.choice(form.flags)
        found = random.choice(
            [[f"--{flag.name}"], [f"--{flag.name}="], [f"--{flag.name}", "1", f"--{flag.name}=2"]]
        )
    elif chance < 0.96 and form.flags:  # a misspelt flag
        name = random.choice(form.flags).name
        found = [
            random.choice([f"--{name[:-1]}", f"--{name.upper()}", f"-{name}", f"--{name}s=1", f"--no-{name}"])
        ]
    else:  # an extra word
        found = [random.choice([*TEXTS, *PATHS])]
    odd += [word.lstrip("-").partition("=")[0] for word in found] + found
    return [found]


def _misspelt(command: str, odd: list[str], random: Random) -> str:
    if random.random() > 0.02:
        return command
    odd.append(command)
    return random.choice([command[:-1], command.upper(), command + "s", *TEXTS])


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
