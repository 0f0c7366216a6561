"""Data sets in the format of the Hugging Face Hub, from local folders."""

import gzip
import json
from pathlib import Path

import pytest

import regard
from regard.data.parallel import PairCounts
from regard.errors import InputError
from tests.conftest import TINY
from tests.german import sentences

pytest.importorskip("datasets")

from regard.data.datasets import HubText


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "small"
    folder.mkdir()
    pairs = sentences()
    for split, part in (("train", pairs[:200]), ("validation", pairs[200:240]), ("test", pairs[240:])):
        rows: list[dict[str, str | None]] = [{"de": source, "en": target} for source, target in part]
        rows += [{"de": "leer", "en": None}] if split == "train" else []
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_data_set_is_read_and_counted(folder: Path) -> None:
    text = HubText(str(folder), ("de", "en"), "train")
    assert list(text) == sentences()[:200] and text.counts == PairCounts(pairs=200, empty=1)
    back = HubText(str(folder), ("en", "de"), "train")
    assert next(iter(back)) == sentences()[0][::-1] and back.identity() != text.identity()
    with pytest.raises(InputError, match="row 201 of .* is with an empty side"):
        list(HubText(str(folder), ("de", "en"), "train", strict=True))


def test_missing_data_sets_splits_and_columns(folder: Path) -> None:
    with pytest.raises(InputError, match="language 'fr' is not in data set .*: choose from de, en"):
        HubText(str(folder), ("de", "fr"), "train")
    with pytest.raises(InputError, match="cannot load split 'dev'"):
        HubText(str(folder), ("de", "en"), "dev")


def test_training_on_a_data_set(folder: Path, tmp_path: Path) -> None:
    flags = {**TINY, "steps": 4, "validate_every": 2, "hub": str(folder), "languages": ("de", "en")}
    run = regard.train("translation", **flags, savepath=tmp_path, progress=False)
    assert isinstance(run, regard.TranslationRun) and len(run.test().translations) == 48
    assert [line["step"] for line in run.metrics if "bleu" in line] == [2, 4]


def test_a_folder_with_a_file_that_expands_like_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(b'{"de": "ein Hund", "en": "a dog"}\n' * 3_000_000))
    with pytest.raises(InputError, match="expands to more than 100 times its size"):
        HubText(str(tmp_path), ("de", "en"), "train")
