"""Reproducible random damage to files."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

DEEP: Any = json.loads("[" * 400 + "]" * 400)
VALUES: list[Any] = [
    *(None, True, -1, 0, 10**30, 1.5, float("inf"), float("nan"), "", "x", "\ud800", "../../x.py"),
    *("nowhere:Class", "a" * 5000, [], [None], {}, {"a": 1}, DEEP),
]
"""Values of wrong types."""
STRAYS = (
    *("step-", "step-x", "step-1e3", "step--1", "step-007", f"step-{'9' * 40}", "step-5 (copy)", ".step-5"),
    "\udcff",
)
Way = Callable[[Path, Random, list[Path]], None]


def cut(path: Path, random: Random, _: list[Path]) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: random.randrange(len(content) + 1)])


def flip(path: Path, random: Random, _: list[Path]) -> None:
    content = bytearray(path.read_bytes())
    if content:
        # Headers and small files are the most sensitive.
        most = random.choice([64, 1024, len(content)])
        place = random.randrange(min(most, len(content)))
        content[place] ^= 1 << random.randrange(8)
    path.write_bytes(content)


def empty(path: Path, random: Random, _: list[Path]) -> None:
    del random
    path.write_bytes(b"")


def noise(path: Path, random: Random, _: list[Path]) -> None:
    path.write_bytes(random.randbytes(random.randrange(1, 300)))


def lengthen(path: Path, random: Random, _: list[Path]) -> None:
    path.write_bytes(path.read_bytes() + random.choice([b"\0", b"\n", b"}", b"{}\n", b"\xff" * 8]))


def remove(path: Path, random: Random, _: list[Path]) -> None:
    del random
    path.unlink()


def swap(path: Path, random: Random, others: list[Path]) -> None:
    other = random.choice(others)
    ours, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(ours)


def folder(path: Path, random: Random, _: list[Path]) -> None:
    path.unlink()
    path.mkdir()
    if random.random() < 0.5:
        (path / "something").write_text("x")


def pipe(path: Path, random: Random, _: list[Path]) -> None:
    del random
    path.unlink()
    os.mkfifo(path)


def link(path: Path, random: Random, _: list[Path]) -> None:
    path.unlink()
    path.symlink_to(random.choice([path.name, "nowhere", "/dev/zero", "/dev/null", "."]))


def json_value(path: Path, random: Random, others: list[Path]) -> None:
    """Change one value in a JSON file, or in a JSON line or header; remove a byte from other files."""
    if path.suffix == ".safetensors":
        return tensor_header(path, random, others)
    lines = path.read_bytes().splitlines(keepends=True)
    row = random.randrange(len(lines)) if path.suffix == ".jsonl" and lines else None
    try:
        value = json.loads(path.read_bytes() if row is None else lines[row])
    except ValueError:
        return cut(path, random, others)
    content = json.dumps(replaced(value, random)).encode()
    if row is None:
        path.write_bytes(content)
    else:
        lines[row] = content + b"\n"
        path.write_bytes(b"".join(lines))
    return None


def replaced(value: Any, random: Random) -> Any:
    """Return JSON with one change: a changed value, or an added or removed name."""
    holder: list[Any] = [value]
    places: list[tuple[Any, Any]] = [(holder, 0)]
    for container, key in places:
        inside = container[key]
        if isinstance(inside, dict):
            places += [(inside, name) for name in inside]
        elif isinstance(inside, list):
            places += [(inside, index) for index in range(min(len(inside), 50))]
    container, key = random.choice(places)
    what = random.random()
    if what < 0.1 and isinstance(container, dict):
        del container[key]
    elif what < 0.2 and isinstance(container, dict):
        container[random.choice(["", "unknown", "\ud800"])] = random.choice(VALUES)
    else:
        container[key] = random.choice(VALUES)
    return holder[0]


def tensor_header(path: Path, random: Random, _: list[Path]) -> None:
    """Change one value in the header of a tensor file."""
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    name = random.choice([each for each in header if each != "__metadata__"])
    what = random.randrange(6)
    if what == 0:
        header[name]["shape"] = [10**15]
    elif what == 1:
        header[name]["data_offsets"] = [0, 10**15]
    elif what == 2:
        header["__metadata__"] = random.choice([{}, {"step": "-1"}, {"step": "x"}, {"step": "9" * 50}, None, []])
    elif what == 3:
        header[f"{name}x"] = header.pop(name)
    else:
        header = replaced(header, random)
    text = json.dumps(header).encode()
    size = random.choice([len(text), len(text), len(text), 2**62, 0])
    path.write_bytes(size.to_bytes(8, "little") + text + content[begin:])


def edit_value(path: Path, random: Random, others: list[Path]) -> None:
    """Change one number or boolean in a JSON file, line or header to another valid value."""
    content = path.read_bytes()
    begin, end = 0, len(content)
    if path.suffix == ".safetensors":
        begin, end = 8, 8 + int.from_bytes(content[:8], "little")
    elif path.suffix == ".jsonl" and (lines := content.splitlines(keepends=True)):
        row = random.randrange(len(lines))
        begin = sum(map(len, lines[:row]))
        end = begin + len(lines[row])
    try:
        holder = [json.loads(content[begin:end])]
    except ValueError:
        return cut(path, random, others)
    places = [(each, key) for each, key in _leaves(holder) if isinstance(each[key], bool | int | float)]
    texts = [(each, key) for each, key in _leaves(holder) if isinstance(each[key], str) and each[key].isdigit()]
    if not (places or texts):
        return cut(path, random, others)
    container, key = random.choice(places or texts)
    value = container[key]
    if isinstance(value, bool):
        container[key] = not value
    elif isinstance(value, str):
        container[key] = str(int(value) + 1)
    else:
        container[key] = random.choice([value + 1, value * 2, max(value - 1, 0)])
    text = json.dumps(holder[0]).encode() + (b"\n" if path.suffix == ".jsonl" else b"")
    size = len(text).to_bytes(8, "little") if begin == 8 else content[:begin]
    path.write_bytes(size + text + content[end:])
    return None


def edit_words(path: Path, random: Random, others: list[Path]) -> None:
    """Exchange two words of a text file or two symbols of a vocabulary, without a change of length."""
    content = path.read_bytes()
    if path.suffix == ".safetensors":
        return exchange_names(path, random, others)
    words = sorted({word for word in content.split() if word.isalnum()})
    if len(words) < 2:
        return flip(path, random, others)
    one, other = random.sample(words, 2)
    parts = content.split(one)
    path.write_bytes(b"\0".join(parts).replace(other, one).replace(b"\0", other))
    return None


def exchange_names(path: Path, random: Random, others: list[Path]) -> None:
    """Exchange the names of two tensors with the same shape, or the values of two names in a JSON file."""
    if path.suffix != ".safetensors":
        return edit_value(path, random, others)
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    names = [name for name in header if name != "__metadata__"]
    kinds = {name: (header[name]["dtype"], header[name]["shape"]) for name in names}
    alike = [(one, other) for one in names for other in names if one < other and kinds[one] == kinds[other]]
    if not alike:
        return flip(path, random, others)
    one, other = random.choice(alike)
    header[one], header[other] = header[other], header[one]
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[begin:])
    return None


def _leaves(holder: Any) -> list[tuple[Any, Any]]:
    """Return the paths of all values inside lists and objects."""
    found, inside = [], [holder]
    for each in inside:
        for key in each if isinstance(each, dict) else range(len(each)):
            if isinstance(each[key], dict | list):
                inside.append(each[key])
            else:
                found.append((each, key))
    return found


def stray(path: Path, random: Random, _: list[Path]) -> None:
    """Create a file with an odd name in the same folder."""
    beside = path.with_name(f"{random.choice(STRAYS)}{random.choice(['', path.suffix])}")
    if beside.exists():
        return
    what = random.randrange(3)
    if what == 0:
        beside.mkdir()
    elif what == 1:
        shutil.copy(path, beside)
    else:
        os.mkfifo(beside)


WAYS: list[Way] = [cut, flip, flip, empty, noise, lengthen, remove, swap, folder, pipe, link, stray]
WAYS += [json_value] * 5
QUIET: list[Way] = [edit_value, edit_words, exchange_names]
"""Kinds of damage that leave the file valid."""
WAYS += QUIET * 3
