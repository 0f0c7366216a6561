"""One file from a server on this machine: whole or not there, and gone on with."""

import errno
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regard.data import download as module
from regard.data.download import check_room, download, size_of
from regard.errors import MachineError
from tests.data.serving import Serving, serving

CONTENT = bytes(range(256)) * 4000
"""More than is read at once."""
CHECKSUM = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
BROKEN_OFF = 600_000


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    with serving(monkeypatch) as served:
        served.files["/text.gz"] = CONTENT
        monkeypatch.setattr(module, "WAIT", 0.0)
        yield served


def test_a_connection_that_breaks_is_taken_up_where_it_broke(server: Serving, tmp_path: Path) -> None:
    server.breaks = [BROKEN_OFF, 100_000]
    download(f"{server.address}/text.gz", tmp_path / "text.gz", checksum=CHECKSUM)
    assert (tmp_path / "text.gz").read_bytes() == CONTENT
    begins = [int(each.removeprefix("bytes=").removesuffix("-")) for each in server.ranges[1:] if each]
    assert len(begins) == 2 and 0 < begins[0] <= BROKEN_OFF and begins[0] <= begins[1] <= BROKEN_OFF + 100_000
    assert [path.name for path in tmp_path.iterdir()] == ["text.gz"]


def test_what_was_given_up_is_gone_on_with(server: Serving, tmp_path: Path) -> None:
    server.breaks = [BROKEN_OFF] + [0] * (module.TRIES - 1)
    with pytest.raises(MachineError, match=r"kB are kept, the same command goes on from there$") as caught:
        download(f"{server.address}/text.gz", tmp_path / "text.gz")
    assert "\n" not in str(caught.value) and not (tmp_path / "text.gz").exists()
    server.ranges.clear()
    download(f"{server.address}/text.gz", tmp_path / "text.gz", checksum=CHECKSUM)
    assert server.ranges[0] not in (None, "bytes=0-") and len(server.ranges) == 1


def test_what_has_changed_meanwhile_is_fetched_anew(server: Serving, tmp_path: Path) -> None:
    server.breaks = [BROKEN_OFF] + [0] * (module.TRIES - 1)
    with pytest.raises(MachineError):
        download(f"{server.address}/text.gz", tmp_path / "text.gz")
    server.tag, server.files["/text.gz"] = '"two"', CONTENT[::-1]
    download(f"{server.address}/text.gz", tmp_path / "text.gz")
    assert (tmp_path / "text.gz").read_bytes() == CONTENT[::-1]


def test_a_part_that_was_whole_already(server: Serving, tmp_path: Path) -> None:
    server.breaks = [BROKEN_OFF] + [0] * (module.TRIES - 1)
    with pytest.raises(MachineError):
        download(f"{server.address}/text.gz", tmp_path / "text.gz")
    (tmp_path / ".text.gz.part").write_bytes(CONTENT)
    download(f"{server.address}/text.gz", tmp_path / "text.gz", checksum=CHECKSUM)
    assert (tmp_path / "text.gz").read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_no_file(server: Serving, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="hash") as caught:
        download(f"{server.address}/text.gz", tmp_path / "text.gz", checksum=f"sha256:{'0' * 64}")
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())


def test_what_is_not_there_is_told_before(server: Serving, tmp_path: Path) -> None:
    assert size_of(f"{server.address}/text.gz") == len(CONTENT)
    with pytest.raises(MachineError, match=r"cannot fetch http.*/none: 404"):
        size_of(f"{server.address}/none")
    with pytest.raises(MachineError, match=r"cannot fetch http.*/none: 404"):
        download(f"{server.address}/none", tmp_path / "none")
    assert not list(tmp_path.iterdir())


def test_a_disk_without_room_is_told_before(
    server: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(MachineError, match=r"text.gz brings 1.0 MB, and there are 1.0 kB free at .*: make room"):
        download(f"{server.address}/text.gz", tmp_path / "text.gz")
    with pytest.raises(MachineError, match="make room"):
        check_room(tmp_path / "not" / "there", 1001, "it takes")
    check_room(tmp_path / "not" / "there", 1000, "it takes")


def test_a_disk_that_fills_up_is_told_in_a_line(
    server: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = module.open_own

    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *args: object) -> None:
            self.file.close()

        def seek(self, place: int) -> None:
            self.file.seek(place)

        def write(self, chunk: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    def full(path: Path, mode: str) -> Any:
        file = opened(path, mode)
        return Full(file) if path.name == ".text.gz.part" else file

    monkeypatch.setattr(module, "open_own", full)
    with pytest.raises(MachineError, match="No space left on device") as caught:
        download(f"{server.address}/text.gz", tmp_path / "text.gz")
    assert "\n" not in str(caught.value) and not (tmp_path / "text.gz").exists()
