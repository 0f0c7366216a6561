"""Reading, writing and locking of files."""

import errno
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from regard.errors import InputError, MachineError
from regard.io import (
    DamageError,
    build_once,
    check_file,
    check_writable,
    convert_json,
    hold_lock,
    is_file,
    is_folder,
    list_files,
    list_steps,
    make_folder,
    new_folder,
    open_regular,
    parse_json,
    read_bytes,
    read_json,
    read_text,
    tidy,
    write_file,
    write_json,
    write_new,
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


# Atomic writing.


def test_writes_and_replaces(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_file(file, b"one")
    write_file(file, b"two")
    assert file.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_leaves_only_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    write_file(file, b"one")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MachineError, match="cannot write '.*file': No space left on device"):
        write_file(file, b"two")
    assert file.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [file]


def test_nan_can_be_refused(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    write_json(file, {"bleu": 1.0}, allow_nan=False)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(file, {"bleu": float("nan")}, allow_nan=False)
    assert file.read_text() == '{\n  "bleu": 1.0\n}\n'


def test_an_impossible_path_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write '.*': No such file or directory; choose another path"):
        write_file(tmp_path / "none" / "file", b"one")


def test_unwritable_paths_are_detected_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for wrong in ("none/file", "", "file/inside", "n" * 300, "\0"):
        with pytest.raises(InputError, match="cannot write"):
            check_writable(tmp_path / wrong)
    for right in ("file", "new", "../new"):
        check_writable(tmp_path / right)
    check_writable(Path(os.devnull))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("target", ["real", "nowhere", "pipe", "folder", "link"])
def test_a_link_is_replaced_and_its_target_is_unchanged(tmp_path: Path, target: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "real").write_bytes(b"one")
    os.mkfifo(tmp_path / "pipe")
    link = tmp_path / "link"
    link.symlink_to(target)
    write_file(link, b"two")
    assert not link.is_symlink() and link.read_bytes() == b"two"
    assert (tmp_path / "real").read_bytes() == b"one" and not any((tmp_path / "folder").iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link", "pipe", "real"]


def test_a_file_keeps_its_mode(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_bytes(b"one")
    real.chmod(0o640)
    write_file(real, b"two")
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_only_regular_files_are_changed_in_place(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"one")
    for name, target in {"link": "real", "dangling": "nowhere", "null": os.devnull}.items():
        (tmp_path / name).symlink_to(target)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "dangling", "null", "pipe", os.devnull):
        for mode in ("ab", "a+b", "r+b"):
            with pytest.raises(OSError):
                open_regular(tmp_path / name, mode)
    with open_regular(tmp_path / "real", "ab") as file:
        file.write(b", two")
    assert (tmp_path / "real").read_bytes() == b"one, two" and not (tmp_path / "nowhere").exists()


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(InputError, match="'.*top/link' is a link, and Regard does not follow links here"):
        make_folder(tmp_path / "top" / "link")
    with pytest.raises(InputError, match="'.*top/link' is a link"):
        make_folder(tmp_path / "top" / "link" / "deep" / "er", below=tmp_path / "top")
    make_folder(tmp_path / "top" / "deep" / "er", below=tmp_path / "top")
    assert not any((tmp_path / "outside").iterdir())


def test_pipes_are_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="no process reads from it"):
        write_file(pipe, b"three")
    found: list[bytes] = []
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    large = b"x" * 1_000_000  # more than the capacity of a pipe

    def read() -> None:
        while sum(map(len, found)) < len(large):  # without a writer, no data are available
            found.append(os.read(reader, 1 << 16))

    thread = threading.Thread(target=read)
    thread.start()
    write_file(pipe, large)
    thread.join()
    os.close(reader)
    assert b"".join(found) == large and stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_device_is_not_replaced() -> None:
    write_file(Path("/dev/null"), b"gone")
    assert Path("/dev/null").is_char_device()


def test_names_may_use_the_full_length_of_the_file_system(tmp_path: Path) -> None:
    for name in ("x" * 255, "é" * 127):
        write_file(tmp_path / name, b"one")
        assert (tmp_path / name).read_bytes() == b"one"
    with pytest.raises(InputError, match="File name too long; choose another path"):
        write_file(tmp_path / ("x" * 256), b"one")
    with pytest.raises(InputError, match="must not contain NUL; choose another path"):
        write_file(tmp_path / "a\0b", b"one")


def test_either_all_new_files_are_written_or_none(tmp_path: Path) -> None:
    wanted = {tmp_path / "deep" / "a": b"one", tmp_path / "other" / "b": b"two"}
    assert write_new(wanted) == list(wanted)
    assert {path: path.read_bytes() for path in wanted} == wanted
    (tmp_path / "other" / "b").write_text("mine")
    more = {tmp_path / "third" / "c": b"three", tmp_path / "other" / "b": b"two"}
    with pytest.raises(InputError, match="exists already: rename it"):
        write_new(more)
    assert not (tmp_path / "third").exists()
    assert (tmp_path / "other" / "b").read_text() == "mine"


# One process at a time changes a folder.


HOLD = "import pathlib, sys, time; from regard.io import hold_lock; held = hold_lock(pathlib.Path(sys.argv[1]))"


def test_a_second_process_is_refused_with_the_holder(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run"
    with hold_lock(path):
        with pytest.raises(InputError, match=f"by process {os.getpid()} on {socket.gethostname()} since 20"):
            with hold_lock(path):
                pass
        with hold_lock(tmp_path / "deep" / "other"):
            pass
    with hold_lock(path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_dead_process_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "run"
    words = [sys.executable, "-c", f"{HOLD}; held.__enter__(); print(flush=True); time.sleep(60)", str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(InputError, match=f"is being written by process {other.pid} on "), hold_lock(path):
            pass
        other.kill()
        other.wait()
        with hold_lock(path):
            pass
    assert list(tmp_path.iterdir()) == []


def test_many_processes_take_turns(tmp_path: Path) -> None:
    """Two processes never hold the lock at the same time, and a refused process can repeat the attempt."""
    code = f"""{HOLD.rsplit(";", 1)[0]}
from regard.errors import InputError
path = pathlib.Path(sys.argv[1])
done = 0
while done < 50:
    try:
        with hold_lock(path):
            path.mkdir()
            path.rmdir()
            done += 1
    except InputError as error:
        assert "being written" in str(error), error
"""
    others = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "run")]) for _ in range(3)]
    assert [other.wait() for other in others] == [0, 0, 0]


def test_an_impossible_path_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "run", tmp_path / "a\0b", tmp_path / ("x" * 300) / "run"):
        with pytest.raises(InputError, match="cannot write .*choose another path"), hold_lock(path):
            pass


def test_waiting_is_reported_once_with_the_holder(tmp_path: Path) -> None:
    path, said, order = tmp_path / "run", list[str](), list[str]()
    told = threading.Event()

    def wait(what: str) -> None:
        said.append(what)
        told.set()

    def second() -> None:
        build_once(path, lambda: "second" in order, lambda: order.append("second"), on_wait=wait)

    with hold_lock(path):
        other = threading.Thread(target=second)
        other.start()
        assert told.wait(10)
        order.append("first")
    other.join(10)
    assert order == ["first", "second"] and len(said) == 1
    assert said[0].startswith(f"waiting: {str(path)!r} is being written by process {os.getpid()} on ")
    with pytest.raises(InputError, match="cannot write"):
        build_once(Path("/proc/none/run"), lambda: False, list, on_wait=wait)


@pytest.mark.parametrize("way", ["link", "dangling", "second name", "pipe"])
def test_a_lock_that_is_a_link_is_refused(tmp_path: Path, way: str) -> None:
    victim, lock = tmp_path / "victim", tmp_path / "top" / ".run.lock"
    lock.parent.mkdir()
    if way != "dangling":
        victim.write_text("precious")
    if way == "second name":
        lock.hardlink_to(victim)
    elif way == "pipe":
        os.mkfifo(lock)
    else:
        lock.symlink_to("../victim")
    with pytest.raises(InputError), hold_lock(tmp_path / "top" / "run"):
        pass
    assert victim.read_text() == "precious" if way != "dangling" else not victim.exists()


def test_the_lock_is_beside_a_link_and_not_beside_its_target(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "run").symlink_to("../elsewhere")
    with hold_lock(tmp_path / "top" / "run"):
        assert [path.name for path in tmp_path.rglob("*.lock")] == [".run.lock"]
        assert (tmp_path / "top" / ".run.lock").exists()


def test_a_lock_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    stale = tmp_path / ".corpus.lock"
    stale.write_text("99999999 elsewhere")
    build_once(tmp_path / "corpus", lambda: True, list, on_wait=print)
    assert not stale.exists()
    with hold_lock(tmp_path / "corpus"):
        build_once(tmp_path / "corpus", lambda: True, list, on_wait=print)
        assert stale.exists()


# A folder is complete or missing, no matter when its writer is killed.


def filled(path: Path, content: str) -> None:
    with new_folder(path) as building:
        (building / "inside").mkdir()
        (building / "inside" / "file").write_text(content)


def content_of(path: Path) -> str:
    return (path / "inside" / "file").read_text()


def test_a_new_folder_replaces_an_existing_one(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run"
    filled(path, "one")
    filled(path, "two")
    assert content_of(path) == "two"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("target", ["run", "nowhere", "file"])
def test_a_link_to_a_folder_is_replaced_and_its_target_is_unchanged(tmp_path: Path, target: str) -> None:
    filled(tmp_path / "run", "one")
    (tmp_path / "file").write_text("precious")
    (tmp_path / "link").symlink_to(target)
    filled(tmp_path / "link", "two")
    assert not (tmp_path / "link").is_symlink() and content_of(tmp_path / "link") == "two"
    assert content_of(tmp_path / "run") == "one" and (tmp_path / "file").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "run"]


def test_a_path_up_from_a_missing_folder_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="folder '.*missing' does not exist"):
        filled(tmp_path / "missing" / ".." / "run", "one")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    filled(tmp_path / "there" / ".." / "run", "one")
    assert content_of(tmp_path / "run") == "one"


def test_a_failure_leaves_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run"
    filled(path, "one")
    with pytest.raises(ZeroDivisionError), new_folder(path):
        raise ZeroDivisionError

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MachineError, match="No space left on device"):
        filled(path, "two")
    assert content_of(path) == "one"
    assert list(tmp_path.iterdir()) == [path]


def in_another_process(code: str, folder: Path) -> None:
    """Run code that kills its process."""
    lines = ["import os, pathlib", "from regard.io import new_folder", "from regard.io import write_file", code]
    found = subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=folder, check=False)
    assert found.returncode == 9


BUILD = """
path = pathlib.Path("run")
with new_folder(path) as building:
    (building / "inside").mkdir()
    (building / "inside" / "file").write_text("two")
    {}
"""


def test_leftovers_of_a_dead_process_are_removed(tmp_path: Path) -> None:
    filled(tmp_path / "run", "one")
    in_another_process(BUILD.format("os._exit(9)"), tmp_path)
    assert len(list(tmp_path.glob(".run~*.new"))) == 1
    in_another_process('os.fsync = lambda file: os._exit(9)\nwrite_file(pathlib.Path("file"), b"half")', tmp_path)
    assert not list(tmp_path.glob(".run~*.new")), "whoever writes here next cleans up first"
    assert len(list(tmp_path.glob(".file~*.new"))) == 1
    tidy(tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "run"]
    assert content_of(tmp_path / "run") == "one"


def test_a_process_killed_between_two_renames_loses_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "run", "one")
    dying = """
def rename(self, target):
    if target.name == path.name and self.name.endswith(".new"):
        os._exit(9)
    return renamed(self, target)

renamed, pathlib.Path.rename = pathlib.Path.rename, rename
"""
    in_another_process(dying + BUILD.format("pass"), tmp_path)
    assert not (tmp_path / "run").exists()
    tidy(tmp_path)
    assert content_of(tmp_path / "run") == "one"
    tidy(tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "run"]


def test_files_of_a_living_process_stay(tmp_path: Path) -> None:
    with new_folder(tmp_path / "run") as building:
        tidy(tmp_path)
        assert building.is_dir()
