"""Imported fairseq models compute the same as the same architecture in transformers, with the same
parameters.
"""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.convert import export, import_model, read_certificate
from regard.convert.fairseq import _make_flags, make_sinusoids
from regard.errors import InputError
from tests.fairseq import TEXTS, settings, write_fairseq
from tests.german import write

pytest.importorskip("transformers")
PRE = {"encoder_normalize_before": True, "decoder_normalize_before": True}


def taken(folder: Path, savepath: Path, **options: Any) -> regard.TranslationRun:
    place = import_model(
        folder, program="fairseq", savepath=savepath, name="run", examples=TEXTS, progress=False, **options
    )
    run = regard.load(place)
    assert isinstance(run, regard.TranslationRun)
    return run


@pytest.mark.parametrize(
    "options",
    [
        {"share_all_embeddings": True},
        {"joined": False, "share_decoder_input_output_embed": True, **PRE},
        {"joined": False, "activation_fn": "gelu", "kind": "fastbpe", "encoder_layers": 1},
        {"encoder_learned_pos": True, "decoder_learned_pos": True, "kind": "words"},
        {"share_all_embeddings": True, "decoder_learned_pos": True, **PRE},
        {"old": True, "joined": False, "source_lang": "de", "target_lang": "en"},
        {"share_all_embeddings": True, "old": True},
        {"share_all_embeddings": True, "kind": "sentencepiece"},
    ],
    ids=["post", "pre", "gelu", "learned", "mixed", "old", "old-shared", "pieces"],
)
def test_imported_model_equals_transformers(tmp_path: Path, options: dict[str, Any]) -> None:
    if options.get("kind") == "sentencepiece":
        pytest.importorskip("sentencepiece")
    run = taken(write_fairseq(tmp_path / "theirs", **options), tmp_path)
    found = read_certificate(run.folder)
    assert found.logits is not None and found.weights is not None and found.missing == {}
    assert found.logits < 1e-4 and found.weights < 1e-4 and found.same_tokens == found.same_greedy == 1
    assert (found.same_beam or 0) > 0.9 and found.sentences == len(TEXTS) and found.tokens > 20
    flags = run.config.flags()
    assert flags["pre_norm"] == options.get("encoder_normalize_before", False) and flags["positions"] == "learned"
    tied = options.get("share_decoder_input_output_embed", False) or options.get("share_all_embeddings", False)
    assert flags["tied"] == tied and run.task.shared == options.get("share_all_embeddings", False)


def test_different_model_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.convert.fairseq.make_sinusoids", lambda *sizes: make_sinusoids(*sizes) + 1e-3)
    folder = write_fairseq(tmp_path / "theirs", share_all_embeddings=True)
    with pytest.raises(
        InputError, match="differ by .* in transformers, more than the limit of 0.0001: nothing was written"
    ):
        import_model(folder, program="fairseq", savepath=tmp_path / "models", examples=TEXTS, progress=False)
    assert not list((tmp_path / "models").glob("*"))


def test_sinusoidal_positions_equal_transformers() -> None:
    from transformers.models.fsmt.modeling_fsmt import SinusoidalPositionalEmbedding

    theirs = SinusoidalPositionalEmbedding.get_embedding(53, 26, None)
    assert torch.equal(make_sinusoids(53, 26), theirs) and make_sinusoids(5, 7)[:, 6].eq(0).all()


def test_imported_run_has_all_features(tmp_path: Path) -> None:
    text = write(tmp_path)
    folder = write_fairseq(tmp_path / "theirs", joined=False)
    run = taken(folder, tmp_path, valid=text["valid"], test=text["test"])
    assert len(run.translate(TEXTS, beam=3)) == len(TEXTS) and run.test(beam=1).quality.exact_match == 0
    found = run.attend(TEXTS[0])
    assert found.cross.key_labels[0].startswith("▁") and found.input == TEXTS[0]
    assert [len(each.source) for each in run.align([(TEXTS[0], "The dog runs.")])] == [5]
    further = regard.train(
        "translation",
        start_from=run.folder,
        train=text["train"],
        steps=2,
        savepath=tmp_path / "further",
        progress=False,
    )
    assert further.task.files == run.task.files


def test_imported_run_can_be_exported(tmp_path: Path) -> None:
    run = taken(write_fairseq(tmp_path / "theirs", share_all_embeddings=True), tmp_path)
    with pytest.raises(InputError, match="positions learned is not sinusoidal"):
        export(run, tmp_path / "out", to="huggingface", license="mit", examples=TEXTS)
    pytest.importorskip("ctranslate2")
    folder = export(run, tmp_path / "served", examples=TEXTS, progress=False)
    assert read_certificate(folder).same_greedy == 1
    first = (folder / "source.codes").read_text(encoding="utf-8").splitlines()[:2]
    assert first == (tmp_path / "theirs" / "codes").read_text(encoding="utf-8").splitlines()[:2]


class Trap:
    """Creates a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.mkdir, (self.path,)


def test_damaged_and_foreign_folders_are_refused(tmp_path: Path) -> None:
    folder = write_fairseq(tmp_path / "theirs", joined=False)
    file = folder / "checkpoint_best.pt"
    with torch.serialization.safe_globals([Namespace]):
        stored = torch.load(file, weights_only=True)

    def refused(message: str) -> None:
        with pytest.raises(InputError, match=message) as error:
            import_model(folder, program="fairseq", savepath=tmp_path / "models", examples=TEXTS)
        assert "\n" not in str(error.value) and not (tmp_path / "models").exists()

    def refused_with(message: str, **parts: Any) -> None:
        torch.save({**stored, "model": {**stored["model"], **parts}}, file)
        refused(message)

    refused_with("cannot be read as weights .the file holds .*, which was not run", trap=Trap(tmp_path / "ran"))
    assert not (tmp_path / "ran").exists()
    refused_with(
        "has encoder.layers.0.gate: Regard's Transformer does not have this part",
        **{"encoder.layers.0.gate": torch.ones(2)},
    )
    refused_with(
        "is damaged: its parameters do not match its config", **{"encoder.layers.0.fc1.weight": torch.ones(2, 2)}
    )
    del stored["model"]["decoder.layers.1.fc2.bias"]
    refused_with("is damaged: it has no 'decoder.layers.1.fc2.bias'")
    file.write_bytes(b"PK")
    refused("cannot be read as weights")
    file.rename(folder / "one.pt")
    (folder / "two.pt").touch()
    refused("has one.pt, two.pt: give a folder with one checkpoint")


def test_dictionaries_of_named_languages_are_read(tmp_path: Path) -> None:
    named = {"source_lang": "en", "target_lang": "de"}  # in the other direction
    folder = write_fairseq(tmp_path / "theirs", joined=False, old=True, **named)
    with pytest.raises(InputError, match="dict.en.txt and .* the checkpoint's matrices have .* used in training"):
        import_model(folder, program="fairseq", savepath=tmp_path / "models", examples=TEXTS)


def test_dictionaries_and_codes(tmp_path: Path) -> None:
    folder = write_fairseq(tmp_path / "theirs", joined=False)
    german, english, codes = folder / "dict.de.txt", folder / "dict.en.txt", folder / "codes"

    def refused(message: str) -> None:
        with pytest.raises(InputError, match=message) as error:
            import_model(folder, program="fairseq", savepath=tmp_path / "models", examples=TEXTS)
        assert "\n" not in str(error.value) and not (tmp_path / "models").exists()

    one, other = german.read_text(encoding="utf-8"), english.read_text(encoding="utf-8")
    german.write_text(one.replace("madeupword0000 0\n", ""), encoding="utf-8")
    refused("the checkpoint's matrices .* give the dictionaries used in training")
    german.write_text(one.replace("madeupword0000 0", "madeupword0000"), encoding="utf-8")
    refused("dict.de.txt' is damaged: line .* of the file is not a symbol with a count")
    german.write_text(one.replace("madeupword0000", one.split(" ")[0]), encoding="utf-8")
    refused("dict.de.txt' is damaged: .* occurs twice")
    german.write_text(one, encoding="utf-8")
    text = codes.read_text(encoding="utf-8")
    codes.write_text(text.replace("0.2", "0.1"), encoding="utf-8")
    refused("codes' is damaged: its version is 0.1, not 0.2")
    codes.rename(folder / "elsewhere.txt")
    refused("has pieces with @@, but the folder has no BPE codes")
    (folder / "elsewhere.txt").write_text(text, encoding="utf-8")
    (folder / "elsewhere.txt").rename(folder / "codes.de")
    refused("dict.en.txt' has pieces with @@")
    (folder / "codes.en").write_text(text, encoding="utf-8")
    english.rename(folder / "elsewhere.txt")
    refused("has dict.de.txt only: add the dictionary of the other language")
    (folder / "elsewhere.txt").rename(english)
    (folder / "dict.fr.txt").write_text(other, encoding="utf-8")
    refused("which language is the source, and .* add dict.source.txt and dict.target.txt")
    german.rename(folder / "dict.source.txt")
    english.rename(folder / "dict.target.txt")
    for ending in ("de", "en"):
        (folder / f"codes.{ending}").rename(folder / f"codes.{'source' if ending == 'de' else 'target'}")
    assert taken(folder, tmp_path).task.source_vocabulary.encode("heute") != []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"arch": "lightconv_iwslt_de_en"},
            "arch lightconv_iwslt_de_en is not supported: only fairseq's Transformers",
        ),
        ({"arch": "transformer_lm"}, "arch transformer_lm is not supported"),
        ({"layernorm_embedding": True}, "layernorm_embedding True is not supported"),
        ({"adaptive_softmax_cutoff": [100, 200]}, "adaptive_softmax_cutoff .* is not supported"),
        (
            {"decoder_normalize_before": True},
            "decoder_normalize_before True differs from encoder_normalize_before False",
        ),
        ({"decoder_attention_heads": 2}, "decoder_attention_heads 2 differs from encoder_attention_heads 4"),
        ({"decoder_output_dim": 8}, "decoder_output_dim 8 differs from decoder_embed_dim 16"),
        ({"activation_fn": "gelu_accurate"}, "activation_fn gelu_accurate is not supported"),
    ],
)
def test_unsupported_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        _make_flags(vars(settings(**options)))
    for arch in ("transformer", "transformer_vaswani_wmt_en_de_big", "transformer_wmt_en_de_big_align"):
        assert _make_flags(vars(settings(arch=arch)))["hidden"] == 16


def test_command(tmp_path: Path, command: Callable[..., tuple[int, str, str]]) -> None:
    folder = write_fairseq(tmp_path / "theirs", share_all_embeddings=True)
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    flags = ("--from", "fairseq", "--examples", texts, "--savepath", tmp_path / "models")
    status, out, _ = command("import", folder, *flags)
    assert status == 0 and out.startswith(
        f"Imported into {tmp_path / 'models' / 'theirs'}\ncompared on 12 sentences in both"
    )
    assert "logits within" in out and "weights within" in out
    status, out, _ = command("translate", tmp_path / "models" / "theirs", TEXTS[0])
    assert status == 0 and "@@" not in out
