"""Invalid and unusual values of flags, with some valid ones."""

import os
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args, get_origin

from tests.faults.flags import Flag

INTEGERS = ["0", "1", "2", "3", "5", "-1", "-0", "+2", "007", "1_0", " 2 ", "2.0", "1e3", "0x10", "\uff12", "½"]
LARGE = [str(number) for number in (255, 4096, 2**31 - 1, 2**31, 2**32, 2**63, 2**64, 10**30)] + ["9" * 5000]
FLOATS = [
    "0",
    "1",
    "0.5",
    "-1",
    "-0.0",
    "1e-320",
    "1e308",
    "1e309",
    "nan",
    "NaN",
    "-nan",
    "inf",
    "-inf",
    "1e",
    "1,5",
]
BOOLEANS = ["True", "False", "true", "0", "1", "yes", "maybe", "None", ""]
TEXTS = [
    "",
    " ",
    "A",
    "BCCCBAABACCCA",
    "None",
    "null",
    "3. Mai 1979",
    "é" * 40,
    "日本語",
    "\u202egnp.exe",
    "a\u0301",
    "😀",
    "\udcff",
    "x\ud800y",
    "\x00",
    "a\x00b",
    "a\nb",
    "\x1b[31mred",
    "\x07",
    "x" * 300,
    "y" * 5000,
    "--",
    "-",
    "-1",
    "--help",
    "=",
    "a=b",
    "$(id)",
    "%s%n",
    "{0}",
    "module:Class",
    "os:getcwd",
    "math:",
    ":",
    "no.such.module:Thing",
]
PATHS = [
    "new",
    "deep/er/new",
    "missing/../new",
    "things/folder",
    "things/closed",
    "things/closed/inside",
    "things/secret",
    "things/null",
    "things/pipe",
    "things/link",
    "things/dangling",
    "things/loop",
    "things/file",
    "things/file/inside",
    "things/bytes",
    "things/" + "n" * 300,
    "d/" * 3000,
    "n" * 5000,
    "",
    ".",
    "..",
    "/",
    "/dev/null",
    "/dev/full",
    "/proc/nothing",
    "/etc/nothing",
    "models",
    "models/counting",
    "models/counting/config.json",
    "models/counting/model.safetensors",
    "~",
    "a\nb.png",
    "a\x00b.png",
    "\udcff.png",
    "x\ud800.json",
    "-",
    "new.png",
    "new.svg",
    "new.pdf",
    "new.html",
    "new.json",
    "new.PNG",
    "new.gif",
    "new.",
    "things/folder.png",
    "things/link.png",
    "things/null.png",
]


def hostile(flag: Flag, random: Random) -> list[str]:
    """Return values of a flag, usually of its type and sometimes of another type: valid values, limits and
    invalid values.
    """
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


def lay_out(folder: Path) -> None:
    """Create the files of `PATHS`."""
    things = folder / "things"
    for name in ("folder", "closed", "folder.png"):
        (things / name).mkdir(parents=True)
    (things / "file").write_text("ABC\n")
    (things / "secret").write_text("ABC\n")
    (things / "bytes").write_bytes(bytes(range(256)) * 4)
    (things / "closed" / "inside").write_text("ABC\n")
    os.mkfifo(things / "pipe")
    for name, target in {
        "link": "file",
        "link.png": "picture.png",
        "dangling": "nowhere",
        "loop": "loop",
        "null": os.devnull,
        "null.png": os.devnull,
    }.items():
        (things / name).symlink_to(target)
    (things / "picture.png").write_bytes(b"not yet")


def close(folder: Path) -> None:
    """Remove the permissions that `PATHS` names."""
    (folder / "things" / "secret").chmod(0o000)
    (folder / "things" / "closed").chmod(0o000)
