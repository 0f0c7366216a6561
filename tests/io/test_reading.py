"""Reading arbitrary files."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from regard.errors import InputError
from regard.io import (
    DamageError,
    check_file,
    convert_json,
    is_file,
    is_folder,
    list_files,
    list_steps,
    parse_json,
    read_bytes,
    read_json,
    read_text,
)


class Shape(msgspec.Struct, forbid_unknown_fields=True):
    """The expected content of the test file."""

    name: str
    sizes: list[int]
    rate: float | None = None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is not valid JSON at line 1, column 1"),
        (b'{"name": "x",\n "sizes" [1]}', "it is not valid JSON at line 2, column 10"),
        (b"\xff", "it is not UTF-8 at byte 0"),
        (b"[" * 100_000 + b"]" * 100_000, "its JSON is nested too deeply"),
        (b"[" * 30 + b"]" * 30, "its JSON is nested too deeply"),
        (b'{"name": "x", "name": "y", "sizes": []}', "'name' occurs twice"),
        (b'{"name": "x", "sizes": [], "rate": NaN}', "it contains NaN, which is not a finite number"),
        (b'{"name": "x", "sizes": [], "rate": 1e999}', "it contains 1e999, which is not a finite number"),
        (b'{"name": "x", "sizes": [' + b"9" * 5000 + b"]}", "it contains a number with 5000 digits"),
        (b'{"name": "x", "sizes": [1, "2"]}', r"'sizes\[1\]' is a text, not a whole number"),
        (b'{"name": null, "sizes": []}', "'name' is null, not a text"),
        (b'{"name": "x", "sizes": [], "rate": true}', "'rate' is true or false, not a number or null"),
        (b'{"name": "x"}', "'sizes' is missing"),
        (b'{"name": "x", "sizes": [], "colour": 1}', "'colour' is unknown"),
        (b"3", "it is a whole number, not an object"),
    ],
)
def test_errors_of_json_are_translated(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=f"^'{file}' is damaged: {message}; restore a copy$"):
        read_json(file, Shape, "restore a copy")


# Messages of the library contain backticks. Regard's messages contain backticks only in names from the file.
NAMES = st.text(st.characters(exclude_characters="`"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=[])),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(NAMES, inside, max_size=4),
)


@given(value=JSON)
def test_any_json_has_the_shape_or_gives_one_error(value: Any) -> None:
    sound = {"name": "x", "sizes": [1, 2], "rate": 0.5}
    for place in (None, "name", "sizes", "rate", "other"):
        content = value if place is None else {**sound, place: value}
        try:
            found = convert_json(parse_json(json.dumps(content)), Shape)
        except DamageError as error:
            assert "\n" not in str(error) and "`" not in str(error)
        else:
            assert isinstance(found, Shape) and all(type(each) is int for each in found.sizes)


@given(content=st.binary(max_size=60))
def test_any_bytes_are_json_or_give_one_error(content: bytes) -> None:
    try:
        parse_json(content)
    except DamageError as error:
        assert "\n" not in str(error)


def test_paths_that_are_no_files_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    cases = {
        "nowhere": "file .*nowhere' does not exist",
        "pipe": "pipe' is a pipe, not a file: remove it",
        "loop": "cannot read .*loop'",
        "a" * 300: "its name of .* characters is too long",
        "a\0b": "no file can have that name",
        ".": "is a folder, not a file",
        "nowhere\udcff": "does not exist",
    }
    for name, message in cases.items():
        for read in (read_bytes, check_file):
            with pytest.raises(InputError, match=message):
                read(tmp_path / name)
    with pytest.raises(InputError, match="'/dev/zero' is a device, not a file"):
        read_bytes(Path("/dev/zero"))
    assert not is_file(tmp_path / "nowhere" / "x") and not is_file(tmp_path / "pipe") and is_folder(tmp_path)
    with pytest.raises(InputError, match="too long"):
        is_file(tmp_path / ("a" * 300))


def test_size_and_text(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes("grün".encode())
    assert read_text(file, "x") == "grün" and read_bytes(file, most=5) == file.read_bytes()
    with pytest.raises(InputError, match="has 5 bytes, but at most 4 bytes are read"):
        read_bytes(file, most=4)
    file.write_bytes(b"gr\xfcn")
    with pytest.raises(InputError, match="it is not UTF-8 at byte 2; write it anew"):
        read_text(file, "write it anew")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_missing_permissions_are_reported(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    for path in [*tmp_path.parents][:-2]:
        path.chmod(path.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    tmp_path.chmod(0o755)
    (tmp_path / "folder").chmod(0o700)
    os.seteuid(65534)
    try:
        for look in (is_file, is_folder, check_file, read_bytes):
            with pytest.raises(InputError, match="permission denied; change its permissions, or use a copy"):
                look(tmp_path / "folder" / "file")
        with pytest.raises(InputError, match="permission denied"):
            list_files(tmp_path / "folder")
    finally:
        os.seteuid(0)


def test_step_files_are_sorted_by_number(tmp_path: Path) -> None:
    names = ["step-10", "step-9", "step-0", "step-x", "step-", "step-1e3", "step-007", "step-" + "9" * 40, "step--1"]
    for name in names:
        (tmp_path / f"{name}.safetensors").touch()
    (tmp_path / "step-5.safetensors").mkdir()
    assert [path.stem for path in list_steps(tmp_path)] == ["step-0", "step-9", "step-10"]
    assert list_steps(tmp_path / "nowhere") == []
