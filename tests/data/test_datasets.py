"""Data sets are downloaded by name from a local server."""

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.data import datasets
from regard.data.datasets import DataSet, fetch
from regard.errors import InputError, MachineError
from tests.conftest import Command
from tests.data.file_server import FileServer, run_server

LANGUAGES = {"de": b"eins", "en": b"one", "fr": b"un", "cs": b"jedna"}
FILES = {
    f"{part}.{language}.gz": gzip.compress(part.encode() + content + b"\n", mtime=0)
    for part in ("train", "val", "test_2016_flickr")
    for language, content in LANGUAGES.items()
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A server with a small data set."""
    with run_server(monkeypatch) as started:
        started.files.update({f"/{name}": content for name, content in FILES.items()})
        checksums = {name: f"sha256:{hashlib.sha256(content).hexdigest()}" for name, content in FILES.items()}
        monkeypatch.setitem(datasets.DATA_SETS, "multi30k", DataSet(started.address, checksums, tuple(LANGUAGES)))
        monkeypatch.setattr(datasets, "RETRIES", 0)
        yield started


def test_files_are_downloaded_once(server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = fetch("multi30k", tmp_path)
    assert {file.name: file.read_bytes() for file in files} == {
        name: content for name, content in FILES.items() if ".de." in name or ".en." in name
    }
    assert f"Fetching 6 files from {server.address}" in capsys.readouterr().err
    requests = len(server.requests)
    assert fetch("multi30k", tmp_path) == files and len(server.requests) == requests
    files[0].write_bytes(b"damaged")
    assert fetch("multi30k", tmp_path)[0].read_bytes() == FILES["train.de.gz"]
    assert len(server.requests) == requests + 1
    assert sorted(path.name for path in (tmp_path / "multi30k").iterdir()) == sorted(file.name for file in files)


def test_other_languages(server: FileServer, tmp_path: Path) -> None:
    files = fetch("multi30k", tmp_path, languages=("fr", "cs"))
    assert [file.name for file in files][:2] == ["train.fr.gz", "train.cs.gz"]
    assert files[1].read_bytes() == FILES["train.cs.gz"]
    with pytest.raises(InputError, match="language of multi30k 'ru' is unknown"):
        fetch("multi30k", tmp_path, languages=("fr", "ru"))
    with pytest.raises(InputError, match="languages de de are not a pair"):
        fetch("multi30k", tmp_path, languages=("de", "de"))
    with pytest.raises(InputError, match="data set 'multi40k' is unknown: choose multi30k"):
        fetch("multi40k", tmp_path)


def test_a_wrong_checksum_leaves_no_file(server: FileServer, tmp_path: Path) -> None:
    server.files["/val.de.gz"] = b"changed"
    with pytest.raises(MachineError, match=r"cannot fetch http.*/val.de.gz: .*hash") as caught:
        fetch("multi30k", tmp_path)
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in (tmp_path / "multi30k").iterdir()) == ["train.de.gz", "train.en.gz"]


def test_a_broken_connection_is_retried(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "RETRIES", 1)
    server.breaks = [10]
    assert fetch("multi30k", tmp_path)[0].read_bytes() == FILES["train.de.gz"]
    assert server.requests.count("/train.de.gz") == 2


def test_a_broken_connection_leaves_no_file(server: FileServer, tmp_path: Path) -> None:
    server.breaks = [10]
    with pytest.raises(MachineError, match=r"cannot fetch http.*/train.de.gz: ") as caught:
        fetch("multi30k", tmp_path)
    assert "\n" not in str(caught.value) and not list((tmp_path / "multi30k").glob("*"))


def test_links_are_refused(server: FileServer, tmp_path: Path) -> None:
    folder, other = tmp_path / "multi30k", tmp_path / "other"
    folder.mkdir()
    (folder / "train.de.gz").symlink_to(other)
    with pytest.raises(InputError, match="is a link"):
        fetch("multi30k", tmp_path)
    assert not other.exists()


def test_the_command(server: FileServer, tmp_path: Path, command: Command) -> None:
    status, out, _ = command("data", "multi30k", "--languages", "fr", "en", "--savepath", tmp_path)
    folder = tmp_path / "multi30k"
    assert status == 0 and f"--train {folder}/train.fr.gz {folder}/train.en.gz --valid {folder}/val.fr.gz" in out
    status, _, err = command("data", "multi30k", "--savepath", tmp_path / "x", "--url", f"{server.address}/none")
    assert status == 1 and "cannot fetch" in err.splitlines()[-1] and "Traceback" not in err
    status, _, err = command("data", "multi30k", "--savepath", tmp_path / "y", "--url", "http://127.0.0.1:9/none")
    assert status == 1 and err.endswith("no connection; try again later, or give the address of a copy with --url\n")
