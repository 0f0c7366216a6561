"""Fetching data sets by name, from a server on this machine."""

import gzip
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from regard.data import datasets
from regard.data.datasets import DATA_SETS, DataSet, fetch
from regard.errors import InputError, MachineError
from tests.data.serving import Serving, serving

LANGUAGES = {"de": b"eins", "en": b"one", "fr": b"un", "cs": b"jedna"}
FILES = {
    f"{part}.{language}.gz": gzip.compress(part.encode() + content + b"\n", mtime=0)
    for part in ("train", "val", "test_2016_flickr")
    for language, content in LANGUAGES.items()
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """A server of a small data set, and of an OPUS with one corpus."""
    with serving(monkeypatch) as served:
        served.files.update({f"/{name}": content for name, content in FILES.items()})
        checksums = {name: f"sha256:{hashlib.sha256(content).hexdigest()}" for name, content in FILES.items()}
        monkeypatch.setitem(datasets.DATA_SETS, "multi30k", DataSet(served.address, checksums, tuple(LANGUAGES)))
        monkeypatch.setattr(datasets, "API", f"{served.address}/api")
        packed = zip_of({"README": "of no use", "Tatoeba.de-en.de": "eins\n", "Tatoeba.de-en.en": "one\n"})
        served.files["/de-en.zip"] = packed
        found = {"url": f"{served.address}/de-en.zip", "version": "v1", "source": "de", "target": "en"}
        answer = {"corpora": [{**found, "size": 1, "alignment_pairs": 1234, "corpus": "Tatoeba"}]}
        served.answers["corpus=Tatoeba"] = json.dumps(answer).encode()
        served.answers["corpora=True"] = json.dumps({"corpora": ["Books", "Tatoeba"]}).encode()
        served.answers["corpus="] = b'{"corpora": []}'
        yield served


def zip_of(texts: dict[str, str]) -> bytes:
    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    return kept.getvalue()


def test_files_come_whole_and_once(server: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = fetch("multi30k", tmp_path)
    assert {each.name: each.read_bytes() for each in found} == {
        name: content for name, content in FILES.items() if ".de." in name or ".en." in name
    }
    size = sum(len(content) for name, content in FILES.items() if ".de." in name or ".en." in name)
    assert f"Fetching 6 files ({size} bytes) from {server.address}" in capsys.readouterr().err
    asked = len(server.asked)
    assert fetch("multi30k", tmp_path) == found and len(server.asked) == asked
    found[0].write_bytes(b"damaged")
    assert fetch("multi30k", tmp_path)[0].read_bytes() == FILES["train.de.gz"]
    assert sorted(path.name for path in (tmp_path / "multi30k").iterdir() if path.suffix == ".part") == []


def test_other_languages_of_a_data_set(server: Serving, tmp_path: Path) -> None:
    found = fetch("multi30k", tmp_path, languages=("fr", "cs"))
    assert [each.name for each in found][:2] == ["train.fr.gz", "train.cs.gz"]
    assert found[1].read_bytes() == FILES["train.cs.gz"]
    with pytest.raises(InputError, match="language of multi30k 'ru' is unknown"):
        fetch("multi30k", tmp_path, languages=("fr", "ru"))
    with pytest.raises(InputError, match="languages de de are no pair"):
        fetch("multi30k", tmp_path, languages=("de", "de"))
    with pytest.raises(InputError, match="data set 'multi40k' is unknown: choose multi30k, tatoeba, opus/NAME"):
        fetch("multi40k", tmp_path)


def test_what_is_not_as_it_should_be_is_refused(server: Serving, tmp_path: Path) -> None:
    server.files["/val.de.gz"] = b"changed"
    with pytest.raises(MachineError, match=r"cannot fetch http.*/val.de.gz: .*hash"):
        fetch("multi30k", tmp_path)
    assert not (tmp_path / "multi30k" / "val.de.gz").exists()
    with pytest.raises(MachineError, match=r"cannot fetch http.*/elsewhere/train.de.gz: 404"):
        fetch("multi30k", tmp_path / "other", url=f"{server.address}/elsewhere/")


def test_a_corpus_of_opus(server: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, source = fetch("tatoeba", tmp_path, languages=("en", "de"))
    assert (source.read_text(), target.read_text()) == ("eins\n", "one\n")
    assert source.parent == tmp_path / "opus" / "Tatoeba-v1"
    assert "Fetching Tatoeba v1 (1,234 pairs, 1.0 kB)" in capsys.readouterr().err
    assert server.asked.count("/de-en.zip") == 1
    fetch("opus/Tatoeba", tmp_path, languages=("de", "en"))
    assert server.asked.count("/de-en.zip") == 1
    source.write_text("zwei\n")  # of the same size
    assert fetch("tatoeba", tmp_path, languages=("de", "en"))[0].read_text() == "eins\n"
    assert not list(source.parent.glob("*.zip"))


def test_a_corpus_that_opus_has_not(server: Serving, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="OPUS has no corpus 'Tatoba' in 'de' and 'en': did you mean Tatoeba"):
        fetch("opus/Tatoba", tmp_path, languages=("de", "en"))
    with pytest.raises(InputError, match="no languages given: as in --languages de en"):
        fetch("tatoeba", tmp_path)
    with pytest.raises(InputError, match=r"OPUS has nothing called '\.\./x'"):
        fetch("opus/../x", tmp_path, languages=("de", "en"))
    with pytest.raises(MachineError, match="cannot ask http"):
        fetch("tatoeba", tmp_path, languages=("de", "en"), url="http://127.0.0.1:1/")


@pytest.mark.parametrize("packed", [b"no zip", zip_of({"Tatoeba.de-en.de": "eins\n"}), None])
def test_a_damaged_corpus_leaves_nothing(server: Serving, tmp_path: Path, packed: bytes | None) -> None:
    whole = server.files["/de-en.zip"]
    server.files["/de-en.zip"] = packed or whole.replace(b"one", b"two").replace(whole[70:80], bytes(10))
    with pytest.raises(MachineError, match="de-en.zip is damaged: "):
        fetch("tatoeba", tmp_path, languages=("de", "en"))
    assert not [path for path in (tmp_path / "opus" / "Tatoeba-v1").iterdir() if "Tatoeba" in path.name]


def test_the_command(server: Serving, tmp_path: Path, command: Callable[..., tuple[int, str, str]]) -> None:
    status, out, _ = command("data", "multi30k", "--languages", "fr", "en", "--savepath", tmp_path)
    folder = tmp_path / "multi30k"
    assert status == 0 and f"--train {folder}/train.fr.gz {folder}/train.en.gz --valid {folder}/val.fr.gz" in out
    status, out, _ = command("data", "tatoeba", "--languages", "de", "en", "--savepath", tmp_path)
    folder = tmp_path / "opus" / "Tatoeba-v1"
    assert status == 0 and f"--train {folder}/Tatoeba.de-en.de {folder}/Tatoeba.de-en.en\n" in out
    status, _, err = command("data", "multi30k", "--savepath", tmp_path / "x", "--url", f"{server.address}/none")
    assert status == 1 and "cannot fetch" in err.splitlines()[-1] and "Traceback" not in err
    status, _, err = command("data", "multi30k", "--savepath", tmp_path / "y", "--url", "http://127.0.0.1:9/none")
    assert status == 1 and err.endswith(
        "no connection (Connection refused); try again later, or name a copy by --url\n"
    )


def test_the_real_files_are_those_that_were_checked() -> None:
    """Where the data set is at hand, its checksums are the ones that are asked for."""
    folder = Path(__file__).parents[3] / "shared" / "data" / "multi30k"
    if not folder.is_dir():
        pytest.skip("needs Multi30k beside the repository")
    for name in DATA_SETS["multi30k"].files(("de", "en")):
        checksum = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        assert f"sha256:{checksum}" == DATA_SETS["multi30k"].checksums[name]
