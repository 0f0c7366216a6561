"""Atomic writing."""

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from regard.errors import InputError, MachineError
from regard.files import check_writable, write_file, write_json, write_new


def test_writes_and_replaces(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_file(file, b"one")
    write_file(file, b"two")
    assert file.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    write_file(file, b"one")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MachineError, match="cannot write '.*file': No space left on device"):
        write_file(file, b"two")
    assert file.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [file]


def test_numbers_that_json_has_no_word_for_can_be_refused(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    write_json(file, {"bleu": 1.0}, allow_nan=False)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(file, {"bleu": float("nan")}, allow_nan=False)
    assert file.read_text() == '{\n  "bleu": 1.0\n}\n'


def test_a_path_that_cannot_be_is_the_users_to_change(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write '.*': No such file or directory; choose another path"):
        write_file(tmp_path / "none" / "file", b"one")


def test_where_nothing_can_be_written_is_told_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for wrong in ("none/file", "", "file/inside", "n" * 300, "\0"):
        with pytest.raises(InputError, match="cannot write"):
            check_writable(tmp_path / wrong)
    for right in ("file", "new", "../new"):
        check_writable(tmp_path / right)
    check_writable(Path(os.devnull))
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_links_are_followed_and_pipes_are_written_to(tmp_path: Path) -> None:
    real, link, pipe = tmp_path / "real", tmp_path / "link", tmp_path / "pipe"
    real.write_bytes(b"one")
    real.chmod(0o640)
    link.symlink_to("real")
    write_file(link, b"two")
    assert link.is_symlink() and real.read_bytes() == b"two"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="nobody reads from it"):
        write_file(pipe, b"three")
    found: list[bytes] = []
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    large = b"x" * 1_000_000  # more than a pipe holds at once

    def read() -> None:
        while sum(map(len, found)) < len(large):  # before the writer has come, there is nothing to read
            found.append(os.read(reader, 1 << 16))

    thread = threading.Thread(target=read)
    thread.start()
    write_file(pipe, large)
    thread.join()
    os.close(reader)
    assert b"".join(found) == large and stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_device_stays_one() -> None:
    write_file(Path("/dev/null"), b"gone")
    assert Path("/dev/null").is_char_device()


def test_names_may_be_as_long_as_the_file_system_takes(tmp_path: Path) -> None:
    for name in ("x" * 255, "é" * 127):
        write_file(tmp_path / name, b"one")
        assert (tmp_path / name).read_bytes() == b"one"
    with pytest.raises(InputError, match="File name too long; choose another path"):
        write_file(tmp_path / ("x" * 256), b"one")
    with pytest.raises(InputError, match="holds no NUL; choose another path"):
        write_file(tmp_path / "a\0b", b"one")


def test_new_files_are_all_written_or_none(tmp_path: Path) -> None:
    wanted = {tmp_path / "deep" / "a": b"one", tmp_path / "other" / "b": b"two"}
    assert write_new(wanted) == list(wanted)
    assert {path: path.read_bytes() for path in wanted} == wanted
    (tmp_path / "other" / "b").write_text("mine")
    more = {tmp_path / "third" / "c": b"three", tmp_path / "other" / "b": b"two"}
    with pytest.raises(InputError, match="is there already: choose another folder"):
        write_new(more)
    assert not (tmp_path / "third").exists()
    assert (tmp_path / "other" / "b").read_text() == "mine"
