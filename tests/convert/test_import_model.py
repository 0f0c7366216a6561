"""Imported Hugging Face Marian models produce the same logits, weights and translations, and support all
features of a run.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.convert import huggingface
from regard.convert.certificate import Certificate, read_certificate
from regard.convert.exchange import export, import_model
from regard.data.imported_tokenizers import SentencePieceVocabulary
from regard.errors import InputError
from tests.conftest import TINY, Command
from tests.german import sentences, write
from tests.marian import write_marian

transformers = pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")
pytest.importorskip("sacremoses")  # without sacremoses, the tokenizer warns
TEXTS = [source for source, _ in sentences()[:12]]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_marian(tmp_path_factory.mktemp("theirs") / "opus")


@pytest.fixture(scope="module")
def imported(theirs: Path, tmp_path_factory: pytest.TempPathFactory) -> regard.TranslationRun:
    folder = tmp_path_factory.mktemp("runs")
    text = write(folder)
    place = import_model(theirs, savepath=folder, valid=text["valid"], test=text["test"], progress=False)
    run = regard.load(place)
    assert isinstance(run, regard.TranslationRun)
    return run


def check(found: Certificate, sentences: int) -> None:
    assert found.logits is not None and found.weights is not None and found.missing == {}
    assert 0 < found.logits < 1e-4 and 0 < found.weights < 1e-4 and found.same_tokens == 1
    assert found.same_greedy == 1 and (found.same_beam or 0) > 0.9 and found.sentences == sentences


def test_imported_model_equals_transformers(theirs: Path, imported: regard.TranslationRun) -> None:
    check(read_certificate(imported.folder), 24)
    hashes = read_certificate(imported.folder).hashes
    assert hashes.keys() >= {"run/model.safetensors", "model.safetensors", "source.spm", "vocab.json"}
    tokenizer = transformers.MarianTokenizer.from_pretrained(theirs)
    model = transformers.MarianMTModel.from_pretrained(theirs)
    asked = {"num_beams": 1, "max_new_tokens": 10, "suppress_tokens": [tokenizer.unk_token_id]}
    answers = model.generate(**tokenizer(TEXTS, return_tensors="pt", padding=True), **asked)
    ours = [best.tokens[:10] for best, *_ in imported.search(TEXTS, beam=1)]
    read = imported.task.target_vocabulary.decode
    assert len({tuple(each) for each in ours}) > 6
    assert [read(each) for each in ours] == tokenizer.batch_decode(answers, skip_special_tokens=True)
    assert isinstance(imported.task.source_vocabulary, SentencePieceVocabulary) and imported.step == 0


@pytest.mark.parametrize(
    "options",
    [
        {"shared": False},
        {"shared": False, "tie_word_embeddings": False, "activation_function": "relu"},
        {"activation_function": "gelu", "decoder_layers": 2},
        {"decoder_start_token_id": 5},
    ],
    ids=["separate", "untied", "gelu", "start"],
)
def test_other_models(tmp_path: Path, options: dict[str, Any]) -> None:
    place = import_model(
        write_marian(tmp_path / "theirs", **options), savepath=tmp_path, name="run", examples=TEXTS, progress=False
    )
    check(read_certificate(place), 12)
    run = regard.load(place)
    assert run.task.sizes["shared"] == options.get("shared", True)


def test_imported_run_has_all_features(imported: regard.TranslationRun, tmp_path: Path) -> None:
    pairs = sentences()[:6]
    assert len(imported.score(pairs)) == 6 and imported.test(beam=1).quality.exact_match == 0
    found = imported.attend(TEXTS[0])
    assert set(found.layers) >= {each.name for each in imported.layers if each.kind == "cross"} != set()
    assert [len(each.links) for each in imported.align(pairs)]
    assert imported.examine(samples=3).samples == 3
    assert imported.explain(TEXTS[0]).weights
    smaller = regard.prune(imported, 2, tmp_path / "smaller").run
    assert smaller.parameters < imported.parameters and smaller.translate(TEXTS[:2])  # type: ignore[union-attr]


def test_export_of_an_import_equals_the_original(imported: regard.TranslationRun, tmp_path: Path) -> None:
    folder = export(imported, tmp_path / "out", to="huggingface", license="mit", examples=TEXTS, progress=False)
    check(read_certificate(folder), 12)
    again = regard.load(import_model(folder, savepath=tmp_path, name="again", examples=TEXTS, progress=False))
    one, other = imported.model.state_dict(), again.model.state_dict()
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert again.task.files == imported.task.files


def test_import_of_an_export_equals_the_run(tmp_path: Path) -> None:
    flags = {**TINY, "pre_norm": False, "positions": "sinusoidal", "steps": 5}
    run = regard.train("translation", **write(tmp_path), **flags, savepath=tmp_path, progress=False)
    folder = export(run, tmp_path / "out", to="huggingface", license="mit", progress=False)
    place = import_model(folder, savepath=tmp_path, name="again", examples=TEXTS, progress=False)
    check(read_certificate(place), 12)
    stored = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    stored["model"]["vocab"]["<begin>"] = stored["model"]["vocab"].pop("<s>")
    (folder / "tokenizer.json").write_text(json.dumps(stored), encoding="utf-8")
    with pytest.raises(InputError, match="is not a vocabulary of Regard, and source.spm is missing"):
        import_model(folder, savepath=tmp_path, name="other", examples=TEXTS)


@pytest.mark.parametrize("options", [{}, {"shared": False, "tie_word_embeddings": False}])
def test_imported_run_is_exported_to_ctranslate2(tmp_path: Path, options: dict[str, Any]) -> None:
    pytest.importorskip("ctranslate2")
    place = import_model(
        write_marian(tmp_path / "theirs", **options), savepath=tmp_path, name="run", examples=TEXTS, progress=False
    )
    run = regard.load_translator(place)
    found = read_certificate(export(run, tmp_path / "out", examples=TEXTS, progress=False))
    assert found.log_probabilities < 1e-4 and found.same_greedy == 1 and "source.spm" in found.hashes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decoder_attention_heads": 2}, "decoder_attention_heads 2 differs from encoder_attention_heads 4"),
        ({"decoder_ffn_dim": 8}, "decoder_ffn_dim 8 differs from encoder_ffn_dim 24"),
        ({"activation_function": "tanh"}, "activation_function tanh is not supported"),
        ({"scale_embedding": False}, "scale_embedding is off"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is off with share_encoder"),
        ({"vocab_size": 77}, "vocab_size 77 does not match"),
        ({"decoder_start_token_id": 0}, "must differ"),
        ({"eos_token_id": [0, 1]}, "eos_token_id .* is not in the vocabulary"),
    ],
)
def test_unsupported_settings_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    folder = write_marian(tmp_path / "theirs", **options)
    with pytest.raises(InputError, match=message) as error:
        import_model(folder, savepath=tmp_path / "models", examples=TEXTS)
    assert "\n" not in str(error.value) and not (tmp_path / "models").exists()


def copied(theirs: Path, folder: Path) -> Path:
    shutil.copytree(theirs, folder)
    return folder


def test_damaged_and_foreign_folders_are_refused(theirs: Path, tmp_path: Path) -> None:
    def refused(folder: Path, message: str) -> None:
        with pytest.raises(InputError, match=message):
            import_model(folder, savepath=tmp_path / "models", examples=TEXTS)
        assert not (tmp_path / "models").exists()

    refused(tmp_path / "nothing", "is not a folder")
    folder = copied(theirs, tmp_path / "a")
    (folder / "config.json").write_text('{"model_type": "bart"}')
    refused(folder, "model_type bart is not supported")
    for number, (kind, field) in enumerate(
        (("marian", "encoder_layers"), ("gpt2", "n_layer"), ("llama", "num_hidden_layers"))
    ):
        folder = copied(theirs, tmp_path / f"large{number}")
        (folder / "config.json").write_text(json.dumps({"model_type": kind, field: 10**7}))
        refused(folder, f"its config has {field} 10000000 is out of range: choose from 0 to 1000")
    folder = copied(theirs, tmp_path / "b")
    (folder / "source.spm").write_bytes(b"abc")
    refused(folder, "cannot be loaded: transformers says|sentencepiece cannot read")
    folder = copied(theirs, tmp_path / "c")
    (folder / "model.safetensors").write_bytes(b"abc")
    refused(folder, "cannot be loaded: transformers says")
    folder = copied(theirs, tmp_path / "d")
    (folder / "vocab.json").write_text(json.dumps({"a": 0}))
    refused(folder, "cannot be loaded: transformers says|vocab_size")


def test_pickled_weights_are_read_as_weights_only(theirs: Path, tmp_path: Path) -> None:
    folder = copied(theirs, tmp_path / "theirs")
    state = transformers.MarianMTModel.from_pretrained(theirs).state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(dict(state), folder / "pytorch_model.bin")
    check(read_certificate(import_model(folder, savepath=tmp_path, name="run", examples=TEXTS, progress=False)), 12)

    torch.save({**state, "bad": Trap(tmp_path / "ran")}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="cannot be loaded: transformers says"):
        import_model(folder, savepath=tmp_path, name="other", examples=TEXTS)
    assert not (tmp_path / "ran").exists() and not (tmp_path / "other").exists()


class Trap:
    """Creates a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.mkdir, (self.path,)


def test_nothing_is_written_if_outputs_differ(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    original = huggingface.permute_width
    monkeypatch.setattr(huggingface, "permute_width", lambda *inputs: original(*inputs) * 1.01)
    (tmp_path / "text").write_text("\n".join(TEXTS), encoding="utf-8")
    flags = ("--savepath", tmp_path / "models", "--examples", tmp_path / "text")
    status, _, err = command("import", theirs, *flags)
    assert status == 2 and "nothing was written" in err and not list((tmp_path / "models").glob("*"))


def test_command(theirs: Path, tmp_path: Path, command: Command) -> None:
    flags = ("--savepath", tmp_path / "models", "--name", "de-en")
    status, _, err = command("import", theirs, *flags)
    assert status == 2 and "give sentences with --examples" in err
    (tmp_path / "text").write_text("\n\n".join(TEXTS), encoding="utf-8")
    status, out, _ = command("import", theirs, *flags, "--examples", tmp_path / "text")
    assert status == 0 and out.startswith(
        f"Imported into {tmp_path / 'models' / 'de-en'}\ncompared on 12 sentences in both"
    )
    status, _, err = command("import", theirs, *flags, "--examples", tmp_path / "text")
    assert status == 2 and "already contains a run: give another --name" in err
    (tmp_path / "long").write_text("Hund " * 300, encoding="utf-8")
    status, _, err = command("import", theirs, *flags, "--name", "b", "--examples", tmp_path / "long")
    assert status == 2 and "a sentence has more than 60 tokens" in err and "--examples" in err
    status, out, _ = command("translate", tmp_path / "models" / "de-en", TEXTS[0])
    assert status == 0
    status, _, err = command("train", "translation", "--tokenizer", "sentencepiece", "--train", "a.tsv")
    assert status == 2
