"""Imported models compute the same as in JoeyNMT, if JoeyNMT is installed."""

import importlib.util
import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import regard
from regard.convert import import_model, read_certificate
from regard.convert.joeynmt import _make_flags
from regard.errors import InputError
from tests.german import sentences

HERE = importlib.util.find_spec("joeynmt") is not None
needs_joeynmt = pytest.mark.skipif(not HERE, reason="needs JoeyNMT")
TEXTS = [source for source, _ in sentences()[:12]]
SPECIAL = {"unk": (0, "<unk>"), "pad": (1, "<pad>"), "bos": (2, "<s>"), "eos": (3, "</s>")}


def part(**options: Any) -> dict[str, Any]:
    return {
        "type": "transformer",
        "num_layers": 2,
        "num_heads": 4,
        "embeddings": {"embedding_dim": 16, "scale": options.pop("scale", True)},
        "hidden_size": 16,
        "ff_size": 24,
        "layer_norm": "pre",
        **options,
    }


def pieces() -> bytes:
    """Return a SentencePiece model of both languages, trained in the same way as by JoeyNMT."""
    from sentencepiece import SentencePieceTrainer

    made = io.BytesIO()
    train: Any = SentencePieceTrainer.train
    train(
        sentence_iterator=iter([text for pair in sentences() for text in pair]),
        model_writer=made,
        vocab_size=80,
        hard_vocab_limit=False,
        **{f"{name}_id": number for name, (number, _) in SPECIAL.items()},
        num_threads=1,
        minloglevel=2,
    )
    return made.getvalue()


def write_joeynmt(folder: Path, *, level: str = "word", tied: bool = True, **options: Any) -> Path:
    """Write the folder of a JoeyNMT model with random weights; `options` apply to the encoder and the
    decoder.
    """
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    folder.mkdir()
    text = [each for pair in sentences() for each in pair]
    names = sorted({word for each in text for word in (each.split() if level == "word" else each)} - {" "})
    side: dict[str, Any] = {"level": level, "lowercase": level == "char"}
    names += ["▁"] * (level == "char")
    if level == "bpe":
        from sentencepiece import SentencePieceProcessor

        (folder / "sp.model").write_bytes(pieces())
        found = SentencePieceProcessor(model_file=str(folder / "sp.model"))
        names = [found.IdToPiece(index) for index in range(4, found.GetPieceSize())]
        side |= {"tokenizer_type": "sentencepiece", "tokenizer_cfg": {"model_file": "elsewhere/sp.model"}}
    special = SimpleNamespace(sep_id=None, sep_token=None, lang_tags=[])
    for name, (number, token) in SPECIAL.items():
        vars(special).update({f"{name}_id": number, f"{name}_token": token})
    vocabulary = Vocabulary(names, special)
    for name in ("src", "trg"):
        vocabulary.to_file(folder / f"{name}_vocab.txt")
    model = {
        "tied_embeddings": tied,
        "tied_softmax": tied,
        "encoder": part(**options),
        "decoder": part(**options),
        "initializer": "xavier_uniform",
        "embed_initializer": "xavier_uniform",
    }
    data = {"src": {"lang": "de", **side}, "trg": {"lang": "en", **side}}
    (folder / "config.yaml").write_text(json.dumps({"data": data, "model": model}), encoding="utf-8")
    torch.manual_seed(0)
    made = build_model(model, vocabulary, vocabulary)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    import numpy as np

    stats = {"best_ckpt_score": np.float64(1.5), "best_ckpt_iter": np.int64(3), "steps": 3}
    torch.save({"model_state": made.state_dict(), "stats_state": stats}, folder / "3.ckpt")
    (folder / "best.ckpt").symlink_to("3.ckpt")
    return folder


@needs_joeynmt
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"layer_norm": "post", "activation": "gelu"},
        {"tied": False, "scale": False},
        {"level": "char", "activation": "swish"},
    ],
    ids=["pre", "post", "untied", "characters"],
)
def test_imported_model_equals_joeynmt(tmp_path: Path, options: dict[str, Any]) -> None:
    theirs = write_joeynmt(tmp_path / "theirs", **options)
    place = import_model(theirs, program="joeynmt", savepath=tmp_path, name="run", examples=TEXTS, progress=False)
    found = read_certificate(place)
    assert found.logits is not None and found.weights is not None and found.missing == {}
    assert 0 < found.logits < 1e-5 and 0 < found.weights < 1e-5 and found.same_tokens == found.same_greedy == 1
    run = regard.load_translator(place)
    assert len(run.translate(TEXTS[:3])) == 3 and run.config.flags()["norm_epsilon"] == 1e-6


@needs_joeynmt
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_sentencepiece_vocabulary(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    theirs = write_joeynmt(tmp_path / "theirs", level="bpe")
    flags: dict[str, Any] = {"program": "joeynmt", "savepath": tmp_path, "name": "run", "examples": TEXTS}
    if not hasattr(sentencepiece.SentencePieceProcessor, "SetVocabulary"):
        with pytest.raises(InputError, match="joeynmt does not support this version of sentencepiece"):
            import_model(theirs, **flags)
        return
    assert read_certificate(import_model(theirs, **flags)).same_tokens == 1


@needs_joeynmt
def test_damaged_and_unsupported_folders_are_refused(tmp_path: Path) -> None:
    folder = write_joeynmt(tmp_path / "theirs")
    stored = json.loads((folder / "config.yaml").read_text(encoding="utf-8"))

    def refused(message: str, **changes: Any) -> None:
        data = {**stored["data"], "src": {**stored["data"]["src"], **changes}}
        if "special_symbols" in changes:
            data["special_symbols"] = changes["special_symbols"]
        (folder / "config.yaml").write_text(json.dumps({**stored, "data": data}), encoding="utf-8")
        with pytest.raises(InputError, match=message) as error:
            import_model(folder, program="joeynmt", savepath=tmp_path / "models", examples=TEXTS)
        assert "\n" not in str(error.value) and not (tmp_path / "models").exists()

    refused("normalize is on", normalize=True)
    refused("pretokenizer moses is not supported", tokenizer_cfg={"pretokenizer": "moses"})
    refused("tokenizer_type subword-nmt is not supported", level="bpe", tokenizer_type="subword-nmt")
    refused("special_symbols.lang_tags .* is not supported", special_symbols={"lang_tags": ["<de>"]})
    refused("symbol 9 of the file is not </s>", special_symbols={"eos_id": 9})
    state = torch.load(folder / "best.ckpt", weights_only=False)
    torch.save({"model_state": {**state["model_state"], "trap": Trap(tmp_path / "ran")}}, folder / "3.ckpt")
    refused("cannot be read as weights")
    assert not (tmp_path / "ran").exists()
    del state["model_state"]["decoder.layer_norm.weight"]
    torch.save(state, folder / "3.ckpt")
    refused("best.ckpt' is damaged: it has no 'decoder.layer_norm.weight'")
    (folder / "best.ckpt").unlink()
    refused("has no best.ckpt")
    (folder / "config.yaml").write_text("a: [", encoding="utf-8")
    with pytest.raises(InputError, match="config.yaml' is damaged"):
        import_model(folder, program="joeynmt", savepath=tmp_path / "models", examples=TEXTS)


class Trap:
    """Creates a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.mkdir, (self.path,)


@pytest.mark.parametrize(
    ("encoder", "decoder", "message"),
    [
        ({"type": "recurrent"}, {}, "encoder.type recurrent is not supported"),
        ({}, {"layer_norm": None}, "decoder.layer_norm is neither pre nor post"),
        ({"layer_norm": "post"}, {}, "decoder.layer_norm pre differs from encoder.layer_norm post"),
        ({}, {"num_heads": 2}, "decoder.num_heads 2 differs from encoder.num_heads 4"),
        ({}, {"ff_size": 8}, "decoder.ff_size 8 differs from encoder.ff_size 24"),
        ({"alpha": 1.1}, {}, "encoder.alpha 1.1 is not 1"),
        ({}, {"activation": "tanh"}, "decoder.activation tanh is not supported"),
        ({"activation": "gelu"}, {}, "decoder.activation relu differs from encoder.activation gelu"),
    ],
)
def test_unsupported_settings_are_refused(encoder: dict[str, Any], decoder: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        _make_flags({"encoder": part(**encoder), "decoder": part(**decoder)})
    found = _make_flags({"encoder": part(), "decoder": part(), "tied_softmax": True})
    assert found["pre_norm"] and found["tied"] and not found["joint"] and found["hidden"] == 16


@pytest.mark.skipif(HERE, reason="JoeyNMT is installed")
def test_without_joeynmt_there_is_no_certificate(
    tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    status, _, err = command("import", tmp_path, "--from", "joeynmt", "--savepath", tmp_path / "models")
    assert status == 2 and "the certificate needs joeynmt" in err and "pip install" in err
    assert not (tmp_path / "models").exists()
