"""A folder is complete or missing, no matter when its writer is killed."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from regard.errors import InputError, MachineError
from regard.io import new_folder, tidy


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
def test_a_link_is_replaced_and_its_target_is_unchanged(tmp_path: Path, target: str) -> None:
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
