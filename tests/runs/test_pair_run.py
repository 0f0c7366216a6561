"""Runs of sequence tasks: train, resume, translate, test, attend."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard import record

SMALL: dict[str, Any] = {"hidden": 8, "batchsize": 6, "steps": 40, "progress": False}


def files(run: regard.Run) -> dict[str, bytes]:
    return {str(path.relative_to(run.folder)): path.read_bytes() for path in run.folder.rglob("*.*")}


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
    tmp_path: Path, interrupt_at: Callable[..., None], flags: dict[str, Any]
) -> None:
    whole = regard.train("sort", **SMALL, **flags, savepath=tmp_path / "whole")
    interrupt_at(23)
    with pytest.raises(KeyboardInterrupt):
        regard.train("sort", **SMALL, **flags, savepath=tmp_path / "parts")
    parts = regard.train("sort", resume=True, progress=False, savepath=tmp_path / "parts")
    assert files(parts) == files(whole)


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


def test_answer_alone_equals_answer_in_a_batch(translator: regard.PairRun) -> None:
    generator = torch.Generator().manual_seed(0)
    texts = [pair.source for pair in translator.task.pairs(40, generator)]
    for beam in (1, 4):
        together = translator.translate(texts, beam=beam, batchsize=7)
        assert together == [translator.translate([text], beam=beam)[0] for text in texts]
    assert translator.translate([]) == [] and len(translator.translate([""])) == 1


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run: run.test(samples=0), "samples 0 is out of range"),
        (lambda run: run.test(sample_len=5), "dates have no adjustable length"),
        (lambda run: run.attend("x", sample_len=5), "leave out sample_len"),
        (lambda run: run.search(["x"], beam=2, length_penalty=-1), "length_penalty -1.0 is out of range"),
    ],
)
def test_bad_options_are_refused(translator: regard.PairRun, call: Any, message: str) -> None:
    with pytest.raises(regard.InputError, match=message):
        call(translator)


def test_models_of_the_wrong_form_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        regard.InputError, match="model 'query' does not fit task dates: choose recurrent or transformer"
    ):
        regard.train("dates", model="query", savepath=tmp_path)
    with pytest.raises(
        regard.InputError, match="model 'recurrent' does not fit task counting: choose query or pooling"
    ):
        regard.train("counting", model="recurrent", savepath=tmp_path)
    with pytest.raises(regard.InputError, match="flag 'pos_enc' is unknown"):
        regard.train("dates", pos_enc=True, savepath=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("task", ["dates", "copy", "recall"])
def test_default_flags_train_to_high_accuracy(tmp_path: Path, task: str) -> None:
    flags: dict[str, Any] = {"max_len": 20} if task == "recall" else {}
    run = regard.train(task, **flags, savepath=tmp_path, progress=False)
    assert isinstance(run, regard.AnswerRun | regard.PairRun) and run.test().exact_match > 0.98


Command = Callable[..., tuple[int, str, str]]


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
