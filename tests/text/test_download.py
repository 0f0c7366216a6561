"""Fetching data sets, from a server on this machine."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from regard.errors import InputError, MachineError
from regard.text import download
from regard.text.download import DataSet, fetch

FILES = {"train.de.gz": b"eins", "train.en.gz": b"one", "val.de.gz": b"zwei", "val.en.gz": b"two"}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a folder with a small data set, and no other host to fetch from."""
    folder = tmp_path / "served"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    serving = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    address = f"http://127.0.0.1:{serving.server_port}"
    monkeypatch.setitem(download.DATA_SETS, "multi30k", DataSet(address, checksums))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    yield address
    serving.shutdown()
    thread.join()
    serving.server_close()


def test_files_come_whole_and_once(server: str, tmp_path: Path) -> None:
    found = fetch("multi30k", tmp_path / "data")
    assert {each.name: each.read_bytes() for each in found} == FILES
    assert {each.parent for each in found} == {tmp_path / "data" / "multi30k"}
    stamps = [each.stat().st_mtime_ns for each in found]
    assert [each.stat().st_mtime_ns for each in fetch("multi30k", tmp_path / "data")] == stamps
    found[0].write_bytes(b"damaged")
    assert fetch("multi30k", tmp_path / "data")[0].read_bytes() == b"eins"


def test_what_is_not_as_it_should_be_is_refused(server: str, tmp_path: Path) -> None:
    (tmp_path / "served" / "val.de.gz").write_bytes(b"changed")
    with pytest.raises(MachineError, match=r"cannot fetch http.*/val.de.gz"):
        fetch("multi30k", tmp_path / "data")
    assert not (tmp_path / "data" / "multi30k" / "val.de.gz").exists()
    with pytest.raises(MachineError, match=r"cannot fetch http.*/elsewhere/train.de.gz: 404"):
        fetch("multi30k", tmp_path / "other", url=f"{server}/elsewhere/")
    with pytest.raises(MachineError, match="cannot fetch http://127.0.0.1:1/train.de.gz"):
        fetch("multi30k", tmp_path / "other", url="http://127.0.0.1:1")
    with pytest.raises(InputError, match="data set 'multi40k' is unknown: choose multi30k"):
        fetch("multi40k", tmp_path)


def test_the_command(server: str, tmp_path: Path, command: Callable[..., tuple[int, str, str]]) -> None:
    status, out, _ = command("data", "multi30k", "--savepath", tmp_path / "data", "--url", server)
    folder = tmp_path / "data" / "multi30k"
    assert status == 0 and f"--train {folder}/train.de.gz {folder}/train.en.gz --valid {folder}/val.de.gz" in out
    status, _, err = command("data", "multi30k", "--savepath", tmp_path / "x", "--url", "http://127.0.0.1:1")
    assert status == 1 and "cannot fetch" in err and err.count("\n") == 1


def test_the_real_files_are_those_that_were_checked() -> None:
    """Where the data set is at hand, its checksums are the ones that are asked for."""
    folder = Path(__file__).parents[3] / "shared" / "data" / "multi30k"
    if not folder.is_dir():
        pytest.skip("needs Multi30k beside the repository")
    for name, checksum in download.DATA_SETS["multi30k"].files.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == checksum
