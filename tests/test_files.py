"""Atomic writing."""

import errno
import os
from pathlib import Path

import pytest

from regard.errors import InputError, MachineError
from regard.files import write_atomically, write_json


def test_writes_and_replaces(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_atomically(file, b"one")
    write_atomically(file, b"two")
    assert file.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    write_atomically(file, b"one")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MachineError, match="cannot write '.*file': No space left on device"):
        write_atomically(file, b"two")
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
        write_atomically(tmp_path / "none" / "file", b"one")
