"""Runs on parallel text."""

import copy
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.attention.blocks import Block
from regard.errors import InputError
from regard.evaluation.bleu import quality
from regard.models.transformer import Transformer
from regard.training.checkpoint import Checkpoint
from tests.conftest import TINY
from tests.german import LINKS, sentences, write

FEW: dict[str, Any] = {**TINY, "steps": 12, "validate_every": 5, "progress": False}


def files(run: regard.Run) -> dict[str, bytes]:
    return {str(path.relative_to(run.folder)): path.read_bytes() for path in run.folder.rglob("*.*")}


def test_translation_beats_chance(german: regard.TranslationRun) -> None:
    report = german.test()
    assert report.quality.main > 50 and report.quality.chrf > 50 and report.quality.exact_match > 0.3
    references = [target for _, target in sentences()[264:]]
    assert report.quality.bleu == pytest.approx(quality(report.translations, references).main)
    assert "|tok:13a|" in report.quality.signatures["bleu"] and report.quality.signatures["bleu"] in str(report)


def test_averaged_model_with_the_best_bleu_is_kept(german: regard.TranslationRun) -> None:
    validated = [line for line in german.metrics if "bleu" in line]
    assert [line["step"] for line in validated] == [100, 200, 300]
    best = max(validated, key=lambda line: line["bleu"])
    assert german.step == best["step"]
    sources, references = zip(*sentences()[240:264], strict=True)
    assert quality(german.translate(sources, beam=1), references).main == pytest.approx(best["bleu"])
    checkpoint = Checkpoint.load(german.folder, training={})
    trainer, step = checkpoint.training or {}, checkpoint.step
    if step == german.step:
        for name, parameter in german.model.named_parameters():
            assert torch.equal(parameter.cpu(), trainer[f"average/{name}"])
            assert not torch.equal(parameter.cpu(), trainer[f"model/{name}"])


def test_a_joint_vocabulary_is_one_embedding(german: regard.TranslationRun, tmp_path: Path) -> None:
    assert isinstance(german.model, Transformer) and german.model.source_embedding is None
    flags = {**FEW, "joint": False, "steps": 1}
    apart = regard.train("translation", **write(tmp_path), **flags, savepath=tmp_path)
    assert isinstance(apart.model, Transformer) and apart.model.source_embedding is not None
    assert isinstance(apart, regard.TranslationRun)
    assert apart.task.source_vocabulary.symbols != apart.task.target_vocabulary.symbols


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"r_drop": 3.0},
        {"accumulate": 3, "schedule": "inverse_sqrt", "merge_dropout": 0.2},
        {"model": "recurrent", "embedding": 16, "score": "additive"},
        {"precision": "bfloat16", "label_smoothing": 0.0},
        {"guide": "links", "r_drop": 1.0},
    ],
    ids=str,
)
def test_resumed_training_equals_uninterrupted_bit_for_bit(
    tmp_path: Path, interrupt_at: Callable[..., None], flags: dict[str, Any]
) -> None:
    few = {name: value for name, value in FEW.items() if not (flags.get("model") and name in MADE_OF_HEADS)}
    text = write(tmp_path)
    if "guide" in flags:
        flags = flags | {"guide": tmp_path / flags["guide"]}
        flags["guide"].write_text(f"{LINKS}\n" * 240)
    whole = regard.train("translation", **text, **few, **flags, savepath=tmp_path / "whole")
    interrupt_at(8)
    with pytest.raises(KeyboardInterrupt):
        regard.train("translation", **text, **few, **flags, savepath=tmp_path / "parts")
    parts = regard.train("translation", resume=True, progress=False, savepath=tmp_path / "parts")
    assert files(parts) == files(whole)


MADE_OF_HEADS = ("heads", "inner", "dec_layers", "positions")


def test_accumulated_batches_equal_one_larger_batch(tmp_path: Path) -> None:
    """Two accumulated batches equal one step on the tokens of both batches."""
    text = write(tmp_path)
    run = regard.train("translation", **text, **FEW, accumulate=2, savepath=tmp_path)
    assert len({line["step"] for line in run.metrics}) == len(run.metrics)
    assert (Checkpoint.load(run.folder, training={}).training or {})["progress/place"].tolist()[0] >= 1


def test_patience_stops_training(tmp_path: Path) -> None:
    flags = {**FEW, "steps": 100, "validate_every": 2, "patience": 3, "lr": 0.5, "warmup": 0.0, "average": 0.0}
    run = regard.train("translation", **write(tmp_path), **flags, criterion="loss", savepath=tmp_path)
    losses = [line["valid_loss"] for line in run.metrics if "valid_loss" in line]
    best = losses.index(min(losses))
    assert best == len(losses) - 4 and run.step == 2 * (best + 1) and run.metrics[-1]["step"] < 100
    again = regard.train("translation", resume=True, progress=False, savepath=tmp_path)
    assert files(again) == files(run)


def test_a_criterion_that_does_not_move_stops_nothing(tmp_path: Path) -> None:
    flags = {**FEW, "steps": 10, "validate_every": 2, "patience": 3, "lr": 1e-9}
    run = regard.train("translation", **write(tmp_path), **flags, savepath=tmp_path)
    assert len({line["bleu"] for line in run.metrics if "bleu" in line}) == 1 and run.step == 10


def test_a_resumed_run_may_compile_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine on which a run is resumed may have no compiler."""
    compiled: list[bool] = []
    monkeypatch.setattr(Block, "compile", lambda self, dynamic: compiled.append(dynamic))
    regard.train("translation", **write(tmp_path), **{**FEW, "steps": 2}, savepath=tmp_path)
    assert not compiled
    resume = {"resume": True, "progress": False, "savepath": tmp_path}
    regard.train("translation", **resume, steps=3, compile=True)
    assert compiled and all(compiled)
    compiled.clear()
    assert regard.train("translation", **resume, steps=4, compile=False).step == 4 and not compiled


@pytest.mark.slow  # compiling takes a minute
@pytest.mark.filterwarnings("ignore")  # warnings of PyTorch's own compiler
def test_compiled_layers_give_the_same_losses_and_compile_once(tmp_path: Path) -> None:
    flags = {**FEW, "dropout": 0.2, "precision": "float32", "dec_layers": 2, "steps": 10}
    text = write(tmp_path)
    plain = regard.train("translation", **text, **flags, savepath=tmp_path / "plain")
    torch.compiler.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    compiled = regard.train("translation", **text, **flags, compile=True, savepath=tmp_path / "compiled")
    # The encoder's layers are compiled once. The decoder's layers are compiled twice if both sides of the first
    # batch have equal length.
    assert counters["stats"]["unique_graphs"] <= 3 and not counters["graph_break"]
    for one, other in zip(plain.metrics, compiled.metrics, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-4)
        assert other.get("bleu") == pytest.approx(one.get("bleu"), abs=1.0)


def test_presets() -> None:
    from regard.training.config import make_config

    assert make_config("translation", {"preset": "base"}).flags()["hidden"] == 512
    tiny = make_config("translation", {"preset": "tiny", "heads": 8})
    assert [tiny.flags()[name] for name in ("hidden", "inner", "heads", "lr")] == [128, 256, 8, 0.003]
    with pytest.raises(InputError, match="preset 'huge' does not fit"):
        make_config("translation", {"preset": "huge"})
    with pytest.raises(InputError, match="compile works only on Transformer layers"):
        make_config("translation", {"model": "recurrent", "compile": True})
    with pytest.raises(InputError, match="preset 'base' does not fit model recurrent"):
        make_config("translation", {"preset": "base", "model": "recurrent"})


def test_bad_text_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    text = write(tmp_path)
    models = tmp_path / "models"
    for flags, message in (
        ({}, "translation needs training text"),
        ({"train": ("a", "b", "c")}, "train has 3 files"),
        ({"train": ("nowhere.tsv",)}, "file .*nowhere.tsv' does not exist"),
        ({"train": 3}, "train 3 is of type int: give str"),
        ({**text, "vocab_size": 4}, "vocab_size 4 is out of range"),
        ({**text, "r_drop": -1.0, "dropout": 0.1}, "r_drop -1.0 is out of range: choose from 0 to 1000"),
        ({**text, "r_drop": 5.0, "dropout": 0.0}, "r_drop compares two passes with different dropout"),
        ({**text, "tokens": 3}, "tokens 3 is less than the .* of the longest sentence"),
        ({**text, "max_len": 2}, "train.de.* and .*train.en.* has no pairs: 0 pairs; left out: 240 too long"),
        ({**text, "max_len": 2, "strict": True}, "tokens, but the limit is 2"),
        (
            {**text, "valid": (__file__,)},
            "validation text .* has no pairs: .*; separate source and target in each line by a tab",
        ),
    ):
        with pytest.raises(InputError, match=message):
            regard.train("translation", **{**FEW, **flags}, savepath=models)
        assert not (models / "translation").exists()


def test_another_tokenizer_is_refused(german: regard.TranslationRun, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(german.folder, tmp_path / "translation"))
    file = folder / "tokenizer" / "source.json"
    stored = json.loads(file.read_text())
    stored["model"]["vocab"] = {name: index for index, name in enumerate(reversed(stored["model"]["vocab"]))}
    file.write_text(json.dumps(stored))
    with pytest.raises(InputError, match="was edited or mixed with another run: tokenizer: its vocabularies differ"):
        regard.load(folder)
    file.unlink()
    with pytest.raises(InputError, match="is damaged: its tokenizer cannot be read"):
        regard.load(folder)


def test_run_resumes_without_prepared_corpus_and_refuses_other_flags(tmp_path: Path) -> None:
    text = write(tmp_path)
    run = regard.train("translation", **text, **FEW, savepath=tmp_path)
    shutil.rmtree(tmp_path / "prepared")
    with pytest.raises(InputError, match="vocab_size 50 differs from the run's 60: a resumed run keeps its flags"):
        regard.train("translation", resume=True, vocab_size=50, progress=False, savepath=tmp_path)
    again = regard.train("translation", resume=True, **text, progress=False, savepath=tmp_path)
    assert files(again) == files(run)


def test_default_search_has_a_beam(german: regard.TranslationRun) -> None:
    sources = [source for source, _ in sentences()[:5]]
    asked = german.search(sources, beam=5, length_penalty=1.0)
    assert german.search(sources) == asked and asked != german.search(sources, beam=5, length_penalty=0.0)
    assert german.translate(sources) == [best.text for best, *_ in asked]
    assert german.attend(sources[0]).prediction == asked[0][0].text


def test_scores_agree_with_search_and_teacher_forcing(german: regard.TranslationRun) -> None:
    sources = [source for source, _ in sentences()[:20]]
    found = [best for best, *_ in german.search(sources, beam=3)]
    scored = german.score(zip(sources, [each.text for each in found], strict=True), batchsize=7)
    for one, other in zip(found, scored, strict=True):
        if german.task.target_vocabulary.encode(one.text) == one.tokens:
            assert other.log_probability == pytest.approx(one.log_probability, abs=1e-4)
            assert other.tokens == len(one.tokens) + 1
    right, wrong = german.score([sentences()[0], (sentences()[0][0], sentences()[1][1])])
    assert right.per_token > wrong.per_token


def test_map_has_every_layer_with_subword_labels(german: regard.TranslationRun) -> None:
    attention = german.attend("Heute läuft der alte ☃.")
    assert set(attention.layers) == {
        "encoder.0.self_attention",
        "encoder.1.self_attention",
        "decoder.0.self_attention",
        "decoder.0.cross",
    }
    layer = attention.cross
    assert "".join(layer.key_labels).startswith("▁Heute") and "☃" in "".join(layer.key_labels)
    assert layer.key_labels[-1] == layer.query_labels[-1] == "</s>"
    assert layer.weights.shape == (2, len(layer.query_labels), len(layer.key_labels))
    assert attention.truth is None and attention.prediction.startswith("The ")  # type: ignore[union-attr]


def test_samples_are_drawn_by_seed_and_temperature(german: regard.TranslationRun) -> None:
    source = [sentences()[0][0]]
    drawn = [german.search(source, temperature=2.0, seed=seed)[0][0].text for seed in (0, *range(20))]
    assert drawn[0] == drawn[1] and len(set(drawn)) > 5
    assert len({german.search(source, temperature=0.01, seed=seed)[0][0].text for seed in range(5)}) == 1
    assert german.search(source[:1], temperature=0.01)[0][0].text == german.translate(source[:1], beam=1)[0]
    with pytest.raises(InputError, match="temperature 1.0 and beam 2 exclude each other"):
        german.search(source, temperature=1.0, beam=2)
    with pytest.raises(InputError, match="temperature -1.0 is out of range"):
        german.search(source, temperature=-1.0)


def test_curves_for_tensorboard(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    flags = {**FEW, "tensorboard": True}
    run = regard.train("translation", **write(tmp_path), **flags, savepath=tmp_path)
    written = events.EventAccumulator(str(run.folder / "tensorboard"))
    written.Reload()
    assert [event.step for event in written.Scalars("bleu")] == [5, 10, 12]
    assert written.Scalars("loss")[0].value == pytest.approx(run.metrics[0]["loss"], rel=1e-5)


def test_missing_tensorboard_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(InputError, match=r"pip install 'regard\[track\]'"):
        regard.train("translation", **write(tmp_path), **{**FEW, "tensorboard": True}, savepath=tmp_path)
    assert not (tmp_path / "translation").exists()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("model", ["transformer", "recurrent"])
def test_gpu_agrees_with_cpu(tmp_path: Path, model: str) -> None:
    small = TINY if model == "transformer" else {"model": model, "vocab_size": 60, "tokens": 400, "hidden": 64}
    run = regard.train("translation", **write(tmp_path), **small, steps=300, savepath=tmp_path, progress=False)
    assert isinstance(run, regard.TranslationRun) and next(run.model.parameters()).is_cuda
    assert model == "recurrent" or run.test().quality.main > 50
    here = replace(run, model=copy.deepcopy(run.model).cpu())
    pairs = run.unseen(8, seed=0)
    sources = [source for source, _ in pairs]
    assert run.translate(sources) == here.translate(sources)
    for there, mine in zip(run.score(pairs), here.score(pairs), strict=True):
        assert there.log_probability == pytest.approx(mine.log_probability, abs=1e-3)
    theirs, ours = run.attend(sources[0]), here.attend(sources[0])
    for name, layer in theirs.layers.items():
        np.testing.assert_allclose(layer.weights, ours.layers[name].weights, atol=1e-3)
    assert len(run.search(sources, temperature=1.0)) == len(sources)
    assert str(run.examine(samples=4))


def test_a_source_is_drawn_from_unseen_text(german: regard.TranslationRun) -> None:
    sources = [source for source, _ in german.unseen(1000, 0)]
    assert german.draws and [german.draw(seed=seed) for seed in range(3)] == sources[:3]
    assert german.draw(seed=len(sources)) == sources[0]
    assert german.about()["draws"] is True and german.about()["accepts"] == ""
    lost = replace(german.task.config, valid=("gone.de", "gone.en"))
    task = german.task.restore(lost, german.task.files)
    assert not replace(german, task=task).draws
