"""Atomic writing."""

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from regard.errors import InputError, MachineError
from regard.io import check_writable, make_folder, open_regular, write_file, write_json, write_new


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
    with pytest.raises(InputError, match="exists already: choose another folder"):
        write_new(more)
    assert not (tmp_path / "third").exists()
    assert (tmp_path / "other" / "b").read_text() == "mine"
