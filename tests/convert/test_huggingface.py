"""Exported Transformers load in Hugging Face's classes, and produce the same logits, weights and translations."""

from pathlib import Path
from typing import Any

import pytest

import regard
from regard.convert.certificate import read_certificate
from regard.convert.exchange import export
from regard.errors import InputError
from tests.conftest import TINY, Command, train_german
from tests.german import sentences, write

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> regard.TranslationRun:
    return train_german(tmp_path_factory, pre_norm=False, steps=200)


def test_transformers_classes_load_the_export(marian: regard.TranslationRun, tmp_path: Path) -> None:
    folder = export(marian, tmp_path / "out", to="huggingface", license="cc-by-4.0", progress=False)
    found = read_certificate(folder)
    assert found.logits is not None and found.weights is not None and found.missing == {}
    assert 0 < found.logits < 1e-4 and 0 < found.weights < 1e-4 and found.same_greedy == 1
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    texts = [source for source, _ in sentences()[240:260]]
    answers = model.generate(**tokenizer(texts, return_tensors="pt", padding=True))
    written = tokenizer.batch_decode(answers, skip_special_tokens=True)
    assert written == marian.translate(texts, beam=1)
    odd = "Der </s> Hund, <pad>  läuft !"
    assert tokenizer(odd).input_ids[:-1] == marian.task.source_vocabulary.encode(odd)


def test_model_card(marian: regard.TranslationRun, tmp_path: Path) -> None:
    card = (export(marian, tmp_path / "out", to="huggingface", license="cc0-1.0") / "README.md").read_text("utf-8")
    assert card.startswith('---\nlicense: "cc0-1.0"\n') and "- training: train.de, train.en" in card
    bleu = marian.metrics[-1]["bleu"]
    assert f"BLEU {bleu:.1f} on the validation text" in card and "|tok:13a|" in card


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, "pre_norm True is not False"),
        ({"pre_norm": False, "positions": "rotary"}, "positions rotary is not sinusoidal"),
        ({"pre_norm": False, "joint": False}, "joint is off"),
        ({"pre_norm": False, "score": "dot"}, "score dot is not scaled_dot"),
        ({"pre_norm": False, "norm": "none"}, "norm none is not supported by Hugging Face: train with --norm layer"),
    ],
)
def test_unsupported_models_are_refused(tmp_path: Path, flags: dict[str, Any], message: str) -> None:
    run = regard.train(
        "translation", **write(tmp_path), **{**TINY, **flags}, steps=1, savepath=tmp_path, progress=False
    )
    assert isinstance(run, regard.TranslationRun)
    with pytest.raises(InputError, match=message):
        export(run, tmp_path / "out", to="huggingface", license="mit")
    assert not (tmp_path / "out").exists()


def test_license_is_required(marian: regard.TranslationRun, tmp_path: Path, command: Command) -> None:
    status, _, err = command("export", marian.folder, "--to", "huggingface", "--output", tmp_path / "out")
    assert status == 2 and "give --license" in err and not (tmp_path / "out").exists()
