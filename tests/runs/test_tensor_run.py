"""Runs of language models: train, resume, test, generate, attend, examine, prune."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.errors import InputError
from regard.evaluation.accuracy import measure_tokens, next_token_losses
from regard.evaluation.validation import BATCHES, language_validation
from regard.streams import make_generator
from regard.tasks.text import Text
from regard.tasks.tokens import TokenTask
from regard.training.config import make_config
from regard.viz.subject import Layer
from tests.conftest import Command, files
from tests.sweep.cluster import LostError, lose_at, short_checkpoints

SMALL: dict[str, Any] = {"hidden": 16, "heads": 2, "batchsize": 8, "snapshots": 4}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> regard.LanguageRun[Any, Any]:
    """A run that has learned a small induction task, in about three seconds."""
    flags: dict[str, Any] = {"max_len": 10, "repeated": 4, "vocab_size": 8, "steps": 700, "hidden": 32}
    folder = tmp_path_factory.mktemp("runs")
    return regard.train("induction", **flags, snapshots=6, savepath=folder, progress=False)


def test_a_run_learns_and_reports_what_the_report_says(run: regard.LanguageRun[Any, Any]) -> None:
    report = run.test(samples=300)
    assert report.exact_match > 0.9 and report.figures.outputs == 300 * 4
    inputs = run.unseen(300, 0, purpose="test")
    losses = run.losses(inputs)
    assert losses[:, 1].sum() == 1200
    assert report.loss == pytest.approx(losses[:, 0].sum() / 1200, rel=1e-5)
    assert report.perplexity == pytest.approx(np.exp(report.loss))
    relevance = report.figures.relevance
    assert list(relevance) == ["decoder.0.self_attention", "decoder.1.self_attention"]
    # The share of one head, from its map and the relevance of the task.
    shares = []
    for tokens in inputs:
        layer = run.look(tokens).layers["decoder.1.self_attention"]
        assert layer.relevant is not None
        rows = layer.relevant.any(1)
        shares.append((layer.weights[1] * layer.relevant).sum(1)[rows])
    assert relevance["decoder.1.self_attention"][1] == pytest.approx(float(np.concatenate(shares).mean()), abs=1e-5)
    assert "Exact match" in str(report) and report.json()["figures"]["outputs"] == 1200


def test_attention_map_shows_inputs_predictions_and_truth(run: regard.LanguageRun[Any, Any]) -> None:
    attention = run.attend("ABCDEFBCDE")
    assert attention.truth == "CDEF"
    layer = attention.layers["decoder.1.self_attention"]
    assert layer.query_labels == layer.key_labels == list("ABCDEFBCDE") and layer.kind == "decoder"
    assert len(attention.outputs) == len(attention.probabilities) == 10
    assert attention.prediction == "".join(attention.outputs[6:])
    assert layer.relevant is not None and np.argwhere(layer.relevant[6]).flatten().tolist() == [1, 2, 6]
    with regard.intervene(run, "decoder.1.self_attention", heads=[0, 1, 2, 3], to="off"):
        changed = run.attend("ABCDEFBCDE")
    assert changed.original is not None and changed.original.prediction == attention.prediction
    assert changed.interventions
    with pytest.raises(InputError, match="token '1' at position 1 is not in the vocabulary"):
        run.attend("A1")


def test_generation_continues_the_repetition(run: regard.LanguageRun[Any, Any]) -> None:
    [[best]] = run.generate("ABCDEFBC", new=2)
    assert best.text == "DE"
    assert run.generate("ABCDEFBC")[0][0].tokens[:2] == best.tokens  # as many as fit
    [ranked] = run.generate("ABCDEFBC", new=2, beam=3, n_best=3)
    assert ranked[0].text == "DE" and ranked[0].log_probability >= ranked[1].log_probability
    assert ranked[0].log_probability == pytest.approx(best.log_probability, abs=1e-5)
    [[first]], [[again]] = (run.generate("ABCDEF", new=4, temperature=1.0, seed=3) for _ in range(2))
    assert first.text == again.text
    assert (
        run.generate("ABCDEF", new=4, temperature=1.0, top_k=1)[0][0].text == run.generate("ABCDEF", new=4)[0][0].text
    )
    with pytest.raises(InputError, match="3 tokens after a prompt of 8 exceed the model's 10 positions"):
        run.generate("ABCDEFBC", new=3)
    with pytest.raises(InputError, match="exclude each other"):
        run.generate("AB", new=3, beam=2, temperature=1.0)


def test_generated_log_probability_is_that_of_one_pass(run: regard.LanguageRun[Any, Any]) -> None:
    [[best]] = run.generate("ABCDEF", new=4, beam=4)
    tokens = run.task.parse(f"ABCDEF{best.text}")
    targets = torch.full_like(tokens, -100)
    targets[:, 5:-1] = tokens[:, 6:]
    loss = next_token_losses(run.model, tokens, targets)[0, 0]
    assert best.log_probability == pytest.approx(-loss.item(), abs=1e-4)


def test_importance_examination_and_roles_find_the_induction_heads(run: regard.LanguageRun[Any, Any]) -> None:
    assert run.layers == [
        Layer("decoder.0.self_attention", "decoder", 4),
        Layer("decoder.1.self_attention", "decoder", 4),
    ]
    examined = run.examine(samples=20)
    assert {head.layer for head in examined.heads} == {layer.name for layer in run.layers}
    # Uniform attention to the inputs so far: 3 relevant ones of 7, 8, 9 and 10 inputs.
    assert examined.uniform is not None and examined.uniform.mean == pytest.approx(
        np.mean([3 / n for n in (7, 8, 9, 10)])
    )
    importance = run.importance(samples=200)
    assert max(importance.added["decoder.1.self_attention"]) > 0.1
    assert len(run.roles(samples=20).heads) == 8
    explanation = run.explain("ABCDEFBCDE", layer="decoder.1.self_attention", head=1, output=7)
    assert explanation.answered is not None and explanation.answered.answer == run.attend("ABCDEFBCDE").outputs[7]
    assert sum(explanation.weights) == pytest.approx(1)


def test_playback_and_pruning(run: regard.LanguageRun[Any, Any], tmp_path: Path) -> None:
    playback = run.playback("ABCDEFBCDE")
    assert playback.steps[0] == 0 and playback.steps[-1] == 700 and len(playback.frames) == 6
    pruned = regard.prune(run, 1, tmp_path / "pruned")
    assert pruned.run.parameters < run.parameters and isinstance(pruned.run, regard.LanguageRun)
    assert sum(layer.heads for layer in pruned.run.layers) == 7
    page = run.attend("ABCDEFBCDE").save(tmp_path / "page.html")
    assert "decoder.1.self_attention" in page.read_text()


def test_a_loaded_run_is_the_same(run: regard.LanguageRun[Any, Any]) -> None:
    loaded = regard.load(run.folder)
    assert isinstance(loaded, regard.LanguageRun)
    assert loaded.attend("ABCDEFBCDE").prediction == run.attend("ABCDEFBCDE").prediction
    assert loaded.draw(seed=4) == run.draw(seed=4)


@pytest.mark.parametrize("task", ["induction", "regression", "parity", "dyck"])
def test_resuming_is_exact(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short_checkpoints(monkeypatch)
    flags: dict[str, Any] = {**SMALL, "steps": 12, "dropout": 0.1, "progress": False}
    whole = regard.train(task, **flags, savepath=tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(LostError):
        lose_at(10, patch)
        regard.train(task, **flags, savepath=tmp_path / "cut")
    assert files(regard.train(task, resume=True, savepath=tmp_path / "cut", progress=False)) == files(whole)


@pytest.mark.parametrize("task", ["mqar", "modular", "regression", "selective-copy", "parity", "dyck"])
def test_every_task_trains_and_tests(task: str, tmp_path: Path) -> None:
    flags = {**SMALL, "batchsize": make_config(task).training.batchsize if task == "modular" else 8}
    run: Any = regard.train(task, **flags, steps=10, savepath=tmp_path, progress=False)
    report = run.test(samples=20)
    assert report.figures.outputs > 0 and np.isfinite(report.loss)
    assert run.metrics[-1]["loss"] > 0
    if not run.task.input_width:
        assert run.attend(seed=2).layers and run.playback(seed=2).frames
        run.check(run.draw(seed=1))
    assert run.figures().exact_match >= 0
    assert len(run.losses(run.unseen(5, 0))) == 5


def test_text_is_generated_from_a_file(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat. the dog sat on the log.\n" * 60)
    flags: dict[str, Any] = {**SMALL, "max_len": 16, "steps": 30, "feed_forward": True, "inner": 32}
    run: Any = regard.train("text", text=str(text), **flags, savepath=tmp_path, progress=False)
    assert isinstance(run, regard.LanguageRun) and run.draws
    assert len(run.generate("the ", new=5)[0][0].tokens) == 5
    assert run.test(samples=10).figures.relevance == {}
    text.write_text("the cat sat on the mat. the dog sat on the LOG.\n" * 60)
    changed: Any = regard.load(run.folder)
    assert not changed.draws
    with pytest.raises(InputError, match="is not the text that the run was trained on: restore that text"):
        changed.test(samples=10)
    text.unlink()
    assert not regard.load(run.folder).draws


def write_text(path: Path) -> str:
    """Write a text whose held-out part is another language, and return its path."""
    path.write_text("the cat sat on the mat.\n" * 90 + "der Hund sitzt.\n" * 20)
    return str(path)


@pytest.mark.parametrize("task", ["text", "modular", "parity", "regression"])
def test_the_validation_loss_is_that_of_held_out_samples(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags: dict[str, Any] = {**SMALL, "steps": 8, "savepath": tmp_path / "runs"}
    if task == "text":
        flags |= {"text": write_text(tmp_path / "text.txt"), "max_len": 16}
    run: Any = regard.train(task, **flags, validate_every=3)
    losses = {line["step"]: line["valid_loss"] for line in run.metrics if "valid_loss" in line}
    assert list(losses) == [3, 6, 8]
    printed = capsys.readouterr().err
    assert all(f"validation loss {loss:.4f}" in printed for loss in losses.values())
    generator = make_generator(0, "validation")
    held_out = [run.task.sample(8, generator, unseen=True) for _ in range(BATCHES)]
    figures = measure_tokens(run.model, run.task, held_out)
    assert losses[8] == pytest.approx(figures.loss, rel=1e-5)
    seen = [run.task.sample(8, generator) for _ in range(BATCHES)]
    if task == "text":  # letters that do not occur in the training part
        assert losses[8] > 1.2 * measure_tokens(run.model, run.task, seen).loss
    # Validation does not change the parameters, and the last parameters are saved.
    flags |= {"savepath": tmp_path / "without", "overwrite": False}
    without = regard.train(task, **flags, validate_every=0, progress=False)
    assert not any("valid_loss" in line for line in without.metrics)
    for name, value in without.model.state_dict().items():
        assert torch.equal(value, regard.load(run.folder).model.state_dict()[name]), name


def test_a_text_without_a_held_out_part_is_not_validated(tmp_path: Path) -> None:
    config = make_config("text", {"text": write_text(tmp_path / "text.txt"), "valid_share": 0.0})
    task = Text.prepare(config.task, tmp_path)  # type: ignore[arg-type]
    assert language_validation(task, config.training) is None


def test_a_run_on_text_resumes_with_a_moved_text(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt")
    run: Any = regard.train("text", text=text, **SMALL, max_len=16, steps=4, savepath=tmp_path, progress=False)
    Path(text).rename(tmp_path / "moved.txt")
    with pytest.raises(InputError, match=r"--resume --text \.\.\."):
        regard.train("text", resume=True, savepath=tmp_path, progress=False)
    moved = str(tmp_path / "moved.txt")
    again: Any = regard.train("text", text=moved, resume=True, savepath=tmp_path, progress=False)
    assert again.step == run.step


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = command("train", "induction", "--steps=20", "--hidden=16", "--heads=2", "--no-tied")
    assert status == 0 and "perplexity" in out, err
    status, out, err = command("test", "induction", "--samples=20", "--json=report.json", "--plot=page.html")
    assert status == 0 and "decoder.1.self_attention: head 0" in out, err
    assert json.loads((tmp_path / "report.json").read_text())["samples"] == 20
    status, out, err = command("generate", "induction", "ABCDEFGH", "--new=3", "--scores")
    assert status == 0 and len(out.strip().split("\t")[1]) == 11, err
    (tmp_path / "prompts.txt").write_text("AB\nABC\n")
    status, out, err = command("generate", "induction", "--input=prompts.txt", "--new=2")
    assert status == 0 and list(map(len, out.split())) == [4, 5], err
    status, out, err = command("generate", "induction")
    assert status == 2 and "give a prompt" in err
    status, out, err = command("translate", "induction", "AB")
    assert status == 2 and "is a language model: try `regard generate induction PROMPT`" in err
    status, out, err = command("train", "counting", "--steps=2")
    status, out, err = command("generate", "counting", "AB")
    assert status == 2 and "is not a language model" in err


def test_config_class_has_the_defaults_of_the_task() -> None:
    config = regard.InductionConfig(steps=5)
    assert not config.feed_forward and config.lr == 0.003 and config.run_config().kind == "decoder"


@pytest.mark.parametrize(("tokenizer", "prompt"), [("characters", "the qu"), ("bpe", "the qu"), ("bpe", "the quick")])
def test_prompt_and_continuation_are_the_whole_text(
    tmp_path: Path, command: Command, tokenizer: str, prompt: str
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the quick fox jumps\n" * 200, encoding="utf-8")
    size = {} if tokenizer == "characters" else {"vocab_size": 60}
    flags: dict[str, Any] = {"hidden": 8, "heads": 2, "layers": 1, "inner": 8, "steps": 2, "max_len": 16, **size}
    run: Any = regard.train("text", text=str(text), tokenizer=tokenizer, **flags, savepath=tmp_path, progress=False)
    [[best]] = run.generate(prompt, new=3)
    tokens = [*run.task.parse(prompt)[0].tolist(), *best.tokens]
    assert prompt + best.text == run.task.render(torch.tensor(tokens))
    _, out, _ = command("generate", run.folder, prompt, "--new", "3")
    assert out == f"{prompt}{best.text}\n"


def test_a_space_at_the_end_of_a_prompt_is_the_space_before_the_continuation(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"hidden": 8, "heads": 2, "layers": 1, "inner": 8, "steps": 2}
    run: Any = regard.train("mqar", **flags, savepath=tmp_path, progress=False)
    for prompt in ("k1 v2 k3", "k1 v2 k3 "):
        [[best]] = run.generate(prompt, new=2)
        assert re.fullmatch(r"k1 v2 k3( [kv.]\d*){2}", prompt + best.text)


def test_tokens_of_several_letters_continue_after_a_space() -> None:
    task: Any = SimpleNamespace(render=lambda tokens: " ".join(["ab", "c"][token] for token in tokens.tolist()))
    assert TokenTask.continuation(task, torch.tensor([0, 1]), torch.tensor([1, 0])) == " c ab"
