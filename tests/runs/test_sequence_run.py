"""Runs that answer with text: of sequence tasks, and of translation."""

import copy
import io
import json
import math
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import regard
from regard import record
from regard.attention.blocks import Block
from regard.data.parallel import PairCounts, ParallelText
from regard.data.vocabulary import is_blank
from regard.errors import InputError
from regard.evaluation.bleu import quality
from regard.models.transformer import Transformer
from regard.runs.cross_entropy_filter import dual_score, dual_scores
from regard.training.checkpoint import Checkpoint
from tests.conftest import TINY, Command, files
from tests.german import LINKS, sentences, write

SMALL: dict[str, Any] = {"hidden": 8, "batchsize": 6, "steps": 40, "progress": False}


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"context": "cell", "cell": "gru"},
        {"teacher_forcing": 0.5},
        {"model": "transformer", "heads": 2, "dropout": 0.3},
    ],
    ids=str,
)
def test_resumed_training_equals_uninterrupted_bit_for_bit(
    check_resumed: Callable[..., Any], flags: dict[str, Any]
) -> None:
    check_resumed("sort", 23, **SMALL, **flags)


def test_loaded_run_equals_the_trained_one(translator: regard.PairRun) -> None:
    loaded = regard.load(translator.folder)
    assert isinstance(loaded, regard.PairRun) and loaded.config == translator.config
    assert loaded.translate(["3. Mai 1979"], beam=3) == translator.translate(["3. Mai 1979"], beam=3)


def test_small_run_beats_chance(translator: regard.PairRun) -> None:
    report = translator.test(samples=300)
    assert report.exact_match > 0.2 and report == translator.test(samples=300)
    aligned = report.alignments["decoder.cross"]
    assert aligned.share > 2 * aligned.uniform and aligned.error_rate < 0.8
    assert "Exact match: " in str(report) and "alignment error rate" in str(report)


def test_map_shows_the_decoders_attention(translator: regard.PairRun) -> None:
    text = "3. Mai 1979"
    attention = translator.attend(text, beam=3)
    best = translator.search([text], beam=3)[0][0]
    assert attention.input == text and attention.prediction == best.text and attention.truth == "1979-05-03"
    layer = attention.cross
    assert layer.key_labels == [*"3.␣Mai␣1979", "</s>"]
    assert layer.query_labels == [*best.text, "</s>"]
    # The map shows the attention that was recorded during the search.
    model, task = translator.model, translator.task
    source = torch.tensor([[*task.source_vocabulary.encode(text), 2]])
    with torch.inference_mode():
        state = model.start(model.encode(source, source != 0))
        for step, token in enumerate([1, *best.tokens]):
            with record(model) as records:
                _, state = model.step(torch.tensor([[token]]), state)
            stepped = records["decoder.cross"].weights[0, :, 0].numpy()
            np.testing.assert_allclose(layer.weights[:, step], stepped, atol=1e-6)


def test_map_marks_relevant_inputs_of_right_answers(tmp_path: Path, translator: regard.PairRun) -> None:
    texts = [pair.source for pair in translator.task.pairs(60, torch.Generator().manual_seed(2))]
    maps = [translator.attend(text) for text in texts]
    right = [each for each in maps if each.prediction == each.truth]
    wrong = [each for each in maps if each.prediction != each.truth]
    assert right and wrong
    assert all(each.cross.relevant is not None for each in right)
    assert all(each.cross.relevant is None for each in wrong)
    relevant = right[0].cross.relevant
    assert relevant is not None and relevant.shape == right[0].cross.weights.shape[1:]
    known = translator.task.known(right[0].input)
    assert known is not None
    assert [tuple(np.flatnonzero(row)) for row in relevant[:-1]] == [tuple(each) for each in known.alignment]
    unknown = translator.attend("nonsense")
    assert unknown.truth is None and "Truth:      unknown" in str(unknown)
    for name in ("a.png", "a.html"):
        unknown.save(tmp_path / name)
    assert '"truth": null' in (tmp_path / "a.html").read_text()


def test_map_of_a_model_without_attention_is_refused(tmp_path: Path) -> None:
    run = regard.train("copy", score="none", **{**SMALL, "steps": 1}, savepath=tmp_path)
    assert isinstance(run, regard.PairRun)
    attention = run.attend("ABC")
    assert attention.layers == {} and attention.truth == "ABC"
    with pytest.raises(regard.InputError, match="has no attention to show"):
        attention.save(tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


@pytest.mark.slow
@pytest.mark.parametrize("task", ["dates", "copy", "recall"])
def test_default_flags_train_to_high_accuracy(tmp_path: Path, task: str) -> None:
    flags: dict[str, Any] = {"max_len": 20} if task == "recall" else {}
    run = regard.train(task, **flags, savepath=tmp_path, progress=False)
    assert isinstance(run, regard.AnswerRun | regard.PairRun) and run.test().exact_match > 0.98


def test_unseen_lengths_are_reported(trained: regard.AnswerRun) -> None:
    usual, short = "BCCCBAABACCCA", "BCCCB"
    assert trained.attend(usual).note == "" and trained.test(samples=10).note == ""
    note = "all training inputs have 10 letters, this input has 2: expect errors; train with --vary_len"
    assert trained.attend(short).note.startswith(note) and f"Note:       {note}" in str(trained.attend(short))
    assert f"Note: {note}" in str(trained.test(samples=10, sample_len=2))
    assert "all training inputs have 10 letters" in trained.about()["accepts"]


def test_vary_len_has_no_unseen_lengths(tmp_path: Path) -> None:
    run = regard.train("counting", vary_len=True, steps=1, hidden=4, savepath=tmp_path, progress=False)
    assert run.attend("AB_BC").note == "" and run.test(samples=10, sample_len=3).note == ""


def test_longer_sequence_is_reported(tmp_path: Path) -> None:
    run = regard.train("copy", max_len=4, steps=1, hidden=4, savepath=tmp_path, progress=False)
    assert run.attend("ABCD").note == ""
    assert "training used inputs of at most 4 characters, but this input has 6" in run.attend("ABCDEF").note


def test_training_ends_with_a_test_on_unseen_samples(command: Command, tmp_path: Path) -> None:
    status, out, _ = command("train", "copy", "--steps", "2", "--hidden", "4", "--savepath", tmp_path)
    assert status == 0 and "exact match 0.0% of 20 unseen samples" in out, out


# Runs on parallel text.


FEW: dict[str, Any] = {**TINY, "steps": 12, "validate_every": 5, "progress": False}


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
def test_resumed_training_on_text_equals_uninterrupted_bit_for_bit(
    tmp_path: Path, check_resumed: Callable[..., Any], flags: dict[str, Any]
) -> None:
    few = {name: value for name, value in FEW.items() if not (flags.get("model") and name in MADE_OF_HEADS)}
    if "guide" in flags:
        flags = flags | {"guide": tmp_path / flags["guide"]}
        flags["guide"].write_text(f"{LINKS}\n" * 240)
    check_resumed("translation", 8, **write(tmp_path), **few, **flags)


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
    with pytest.raises(InputError, match="compile works only on Transformer layers"):
        make_config("translation", {"model": "recurrent", "compile": True})
    with pytest.raises(InputError, match="preset 'base' does not fit model recurrent"):
        make_config("translation", {"preset": "base", "model": "recurrent"})


def test_text_that_does_not_fit_is_refused_before_a_run_is_written(tmp_path: Path) -> None:
    text = write(tmp_path)
    for flags, message in (
        ({**FEW, "tokens": 3}, "tokens 3 is less than the .* of the longest sentence"),
        ({**FEW, "max_len": 2}, "train.de.* and .*train.en.* has no pairs: 0 pairs; left out: 240 too long"),
        ({**FEW, "max_len": 2, "strict": True}, "tokens, but the limit is 2"),
    ):
        with pytest.raises(InputError, match=message):
            regard.train("translation", **text, **flags, savepath=tmp_path / "models")
        assert not (tmp_path / "models" / "translation").exists()


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


# The answer to a blank text is always empty, and every answer is on the line of its text.


BLANK = ["", " ", "\t \t", "\u00a0", "\u200b\u200d", "\ufeff", "\u3000", "\x01", "\u2060 \u00ad", "\u3164", "\u2800"]
SOURCE = sentences()[0][0]


def test_blank_texts() -> None:
    assert all(map(is_blank, BLANK))
    assert not any(map(is_blank, [SOURCE, ".", " a", "\u200bä", "狗", "☃", "\ufffd", "0", "\u0301a", "\u200b!"]))


@pytest.mark.parametrize("options", [{}, {"beam": 3, "n_best": 3}, {"temperature": 1.0}], ids=str)
@pytest.mark.parametrize("engine", ["regard", "ctranslate2"])
def test_blank_text_has_the_empty_answer(german: regard.TranslationRun, engine: Any, options: dict[str, Any]) -> None:
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2")
        if "temperature" in options:
            pytest.skip("CTranslate2 draws nothing")
    texts = [each for blank in BLANK for each in (SOURCE, blank)]
    found = german.search(texts, engine=engine, **options)
    alone = german.search([SOURCE], engine=engine, **options)[0]
    for answered, empty in zip(found[::2], found[1::2], strict=True):
        assert [each.text for each in answered] == [each.text for each in alone]
        assert [(each.text, each.tokens, each.log_probability, each.finished) for each in empty] == [("", [], 0, True)]
    assert german.translate([""], engine=engine) == [""]


def test_scores_links_and_maps(german: regard.TranslationRun, translator: regard.PairRun) -> None:
    target = sentences()[0][1]
    whole, no_source, no_target, ended = german.score([(SOURCE, target), (" ", "x"), (SOURCE, "\u200b"), (SOURCE, "")])
    assert math.isnan(no_source.log_probability) and math.isnan(no_source.per_token) and no_source.tokens == 0
    assert no_target.log_probability == pytest.approx(ended.log_probability) and no_target.tokens == 1
    assert whole.log_probability > no_target.log_probability
    for pair in ((" \u200b", target), (SOURCE, "\t"), ("", "")):
        [found] = german.align([pair])
        assert found.moses == "" and len(found.source) in (0, 5) and len(found.target) in (0, 5)
    assert german.attend("  ").prediction == "" and translator.attend("\u00a0").prediction == ""
    assert translator.translate(BLANK) == [""] * len(BLANK) and translator.translate([]) == []
    with pytest.raises(InputError, match="input is blank, so the answer is empty"):
        german.tree(" ")


def lines_of(german: regard.TranslationRun, command: Command, lines: list[str], *words: Any, **given: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        content = "".join(f"{line}\n" for line in lines).encode()
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        status, out, err = command(*words)
    assert status == 0, err
    return out.split("\n")[:-1], err


@pytest.mark.parametrize("words", [(), ("--align",), ("--n_best", "2", "--scores"), ("--tags",)], ids=str)
def test_lines_of_translate(german: regard.TranslationRun, command: Command, words: tuple[str, ...]) -> None:
    lines = [SOURCE, "", "   ", SOURCE, "\u200b", "\t", SOURCE]
    every = 2 if "--n_best" in words else 1
    for engine in ("regard", "auto"):
        out, _ = lines_of(german, command, lines, "translate", german.folder, "--engine", engine, *words)
        assert len(out) == every * len(lines)
        for number, line in enumerate(lines):
            found = out[number * every : (number + 1) * every]
            assert found == ([""] * every if is_blank(line) else out[:every])


def test_lines_of_score_and_align(german: regard.TranslationRun, command: Command, tmp_path: Path) -> None:
    pair = "\t".join(sentences()[0])
    lines = [pair, f"\u00a0\t{SOURCE}", f"{SOURCE}\t ", pair]
    out, err = lines_of(german, command, lines, "score", german.folder)
    assert out[0] == out[3] and out[1] == "nan\tnan" and not math.isnan(float(out[2].split()[0]))
    assert "line 2 has a blank source" in err and "line 3 has a blank target" in err
    out, _ = lines_of(german, command, lines, "align", german.folder, "-")
    assert out == [out[0], "", "", out[0]] and out[0]
    out, _ = lines_of(german, command, [SOURCE, " ", SOURCE], "align", german.folder, "-")
    assert out == [out[0], "", out[0]] and " ||| " in out[0]
    out, _ = lines_of(german, command, lines, "align", german.folder, "-", "--format", "json")
    assert [json.loads(line)["links"] for line in out][1:3] == [[], []]
    status, out, _ = command("translate", german.folder, "  ")
    assert (status, out) == (0, "\n")
    status, out, err = command("translate", german.folder, "  ", "--plot", tmp_path / "x.png")
    assert status == 2 and "the text is blank" in err


def test_the_explorer(german: regard.TranslationRun) -> None:
    pytest.importorskip("httpx")
    app = pytest.importorskip("regard.server.app")
    from tests.server.test_app import Client

    if find_spec("ctranslate2") is not None:
        german.translate([SOURCE], engine="ctranslate2")  # open files are not copied with the run
    client = Client(app.make_app(app.Explorer(german)))
    found = client.post("/api/attend", {"input": " \u200b"})
    assert found.status_code == 200, found.text
    assert found.json()["map"]["prediction"] == ""
    refused = client.post("/api/tree", {"input": "  "})
    assert refused.status_code in (400, 422) and "input is blank" in refused.json()["error"]


def test_blank_lines_of_a_text_are_counted_and_keep_their_places(
    german: regard.TranslationRun, command: Command, tmp_path: Path
) -> None:
    pairs = sentences()[264:270]
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    sources[1], targets[3], sources[5] = "\u200b", " ", ""
    for name, side in (("a", sources), ("b", targets)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    text = ParallelText([tmp_path / "a", tmp_path / "b"])
    assert len(list(text)) == 3 and text.counts == PairCounts(pairs=3, empty=3)
    words = ("--data", tmp_path / "a", tmp_path / "b", "--output", tmp_path / "out", "--json", tmp_path / "j")
    status, out, err = command("test", german.folder, *words)
    assert status == 0 and "3 pairs; left out: 3 with an empty side" in out, err
    found = (tmp_path / "out").read_text().split("\n")
    translated = german.translate([sources[line] for line in (0, 2, 4)])
    assert found == [translated[0], "", translated[1], "", translated[2], "", ""]
    assert json.loads((tmp_path / "j").read_text())["quality"]["tokenizer"] == "13a"


# An answer is independent of the length, number and order of the other texts in its batch.


WORDS = ["a", "b", "c", "never"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=20).map(" ".join), min_size=2, max_size=8)
SEARCHES: list[dict[str, Any]] = [
    {"beam": 1},
    {"beam": 3, "n_best": 3},
    {"beam": 3, "n_best": 2, "length_penalty": 1.0},
    {"beam": 1, "temperature": 1.0, "seed": 3},
]


@pytest.fixture(scope="module", params=["transformer", "recurrent"])
def endless(request: Any, tmp_path_factory: pytest.TempPathFactory) -> regard.TranslationRun:
    """A run that repeats a word until its answers reach their length limits."""
    folder = tmp_path_factory.mktemp("endless")
    pairs = ["a b\t" + "x y " * 50, "c\tx", "b a\t" + "y x x " * 30]
    (folder / "pairs.tsv").write_text("".join(f"{pair}\n" for pair in pairs * 10))
    flags: dict[str, Any] = {"model": request.param, "tokenizer": "words", "hidden": 16, "enc_layers": 1}
    if request.param == "transformer":
        flags |= {"heads": 2, "inner": 16, "dec_layers": 1}
    run = regard.train(
        "translation",
        train=(str(folder / "pairs.tsv"),),
        **flags,
        steps=25,
        tokens=1000,
        savepath=folder,
        progress=False,
    )
    assert isinstance(run, regard.TranslationRun)
    return run


def answers(run: regard.SequenceRun, texts: list[str], **options: Any) -> list[list[tuple[Any, ...]]]:
    found = run.search(texts, **options)
    return [
        [
            (each.text, each.finished, pytest.approx(each.log_probability, abs=1e-3), round(each.score, 2))
            for each in some
        ]
        for some in found
    ]


def check_alone(run: regard.SequenceRun, texts: list[str], order: list[int], **options: Any) -> None:
    alone = [answers(run, [text], batchsize=1, **options)[0] for text in texts]
    for batchsize in (1, 7, 64):
        assert answers(run, texts, batchsize=batchsize, **options) == alone
    turned = answers(run, [texts[place] for place in order], batchsize=7, **options)
    assert [turned[order.index(place)] for place in range(len(texts))] == alone


@pytest.mark.parametrize("options", SEARCHES, ids=str)
@settings(max_examples=3)
@given(texts=TEXTS, data=st.data())
def test_answer_is_independent_of_the_batch(
    endless: regard.TranslationRun, options: dict[str, Any], texts: list[str], data: st.DataObject
) -> None:
    check_alone(endless, texts, data.draw(st.permutations(range(len(texts)))), **options)


@pytest.mark.parametrize("options", SEARCHES[:3], ids=str)
def test_answer_is_independent_of_the_batch_in_ctranslate2(
    endless: regard.TranslationRun, options: dict[str, Any]
) -> None:
    pytest.importorskip("ctranslate2")
    if endless.config.kind != "transformer":
        pytest.skip("CTranslate2 has Transformers only")
    texts = ["a b", "a b " * 6, "c", "never " * 12, "b a", "a " * 20, "c c c"]
    check_alone(endless, texts, [3, 1, 6, 0, 2, 5, 4], engine="ctranslate2", **options)
    here = [[each.text for each in some] for some in endless.search(texts, **options)]
    there = endless.search(texts, engine="ctranslate2", **options)
    assert [[each.text for each in some] for some in there] == here


def test_limits_are_reached(endless: regard.TranslationRun) -> None:
    """The sources differ in length and in their answers. Otherwise the other tests would be trivial."""
    short, long = endless.search(["a b", "a b" + " a b" * 5], beam=1)
    assert not short[0].finished and not long[0].finished
    assert (len(short[0].tokens), len(long[0].tokens)) == (56, 76)


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_answers_on_dates_are_independent_of_the_batch(translator: regard.PairRun, options: dict[str, Any]) -> None:
    texts = [f"{day}. Mai {1950 + 2 * day}" for day in (1, 11, 28)] + ["1", "x" * 90, "14 juillet 1989", "1 1 1"]
    check_alone(translator, texts, [6, 0, 5, 2, 4, 1, 3], **options)


def test_sampled_answers_depend_on_text_and_seed_only(endless: regard.TranslationRun) -> None:
    first, again, other = endless.search(["a b", "a b", "b a"], temperature=1.0, seed=1)
    assert first[0].text == again[0].text != other[0].text
    assert endless.search(["a b"], temperature=1.0, seed=2)[0][0].text != first[0].text


# Dual cross-entropy filter.


def test_dual_score_by_hand() -> None:
    """Junczys-Dowmunt 2018, equation 1: exp(-(|2 - 1| + 1.5))."""
    assert dual_score(2.0, 1.0) == pytest.approx(math.exp(-2.5))
    assert dual_score(0.0, 0.0) == 1


def test_true_pair_scores_higher_than_a_wrong_one(german: regard.TranslationRun) -> None:
    pairs = sentences()[240:260]
    wrong = [(source, pairs[(place + 7) % len(pairs)][1]) for place, (source, _) in enumerate(pairs)]
    right, others = dual_scores(pairs, german), dual_scores(wrong, german)
    assert all(score is not None and 0 < score <= 1 for score in right + others)
    assert sum(one > other for one, other in zip(right, others, strict=True)) > 15  # type: ignore[operator]
    [first] = german.score(pairs[:1])
    assert right[0] == pytest.approx(math.exp(first.per_token), rel=1e-4)


def test_two_directions_and_too_long_texts(german: regard.TranslationRun) -> None:
    long = " ".join(["Hund"] * 2000)
    pairs = [sentences()[0], (long, "A dog."), ("Ein Hund.", long)]
    found = dual_scores(pairs, german, german)
    assert found[0] is not None and found[1:] == [None, None]
    there, back = german.score([pairs[0]]) + german.score([pairs[0][::-1]])
    assert found[0] == pytest.approx(dual_score(-there.per_token, -back.per_token), rel=1e-3)
