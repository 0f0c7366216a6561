"""Runs that start from another run."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.errors import InputError
from regard.runs import training
from regard.training.checkpoint import Checkpoint
from regard.training.config import changed_config
from tests.german import sentences, write

Command = Callable[..., tuple[int, str, str]]

OTHER: dict[str, Any] = {"steps": 8, "validate_every": 5, "progress": False}


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another text, in which half of the targets have their words in reverse order."""
    pairs = [(source, " ".join(reversed(target.split()))) for source, target in sentences()[:60]]
    file = tmp_path / "other.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in [*pairs, *sentences()[60:120]]))
    return file


def same_model(run: regard.AnyRun, other: regard.AnyRun) -> bool:
    names = run.config.options.flag_names("model")
    return all(run.config.flags()[name] == other.config.flags()[name] for name in names)


def test_run_starts_with_parameters_and_vocabularies_of_its_origin(
    german: regard.TranslationRun, other: Path, tmp_path: Path
) -> None:
    begun = regard.train("translation", start_from=german.folder, train=other, **OTHER, savepath=tmp_path)
    assert begun.task.files == german.task.files and begun.step == 8
    assert same_model(begun, german) and begun.config.tokenizer == german.config.tokenizer
    origin = begun.config.origin
    assert origin is not None and origin.run == str(german.folder) and origin.step == german.step
    assert origin.weights == hashlib.sha256((german.folder / "model.safetensors").read_bytes()).hexdigest()
    assert f"started from {german.folder} at step {german.step}" in str(begun)
    assert f"started from {german.folder} at step" in begun.about()["history"] and not german.about()["history"]
    assert begun.json()["config"]["origin"]["weights"] == origin.weights and german.config.origin is None
    before, after = german.model.state_dict(), begun.model.state_dict()
    apart = max((before[name].cpu() - after[name].cpu()).abs().max() for name in before)
    assert 0 < apart < 0.1  # eight steps away
    drawn = german.untrained(german.config.training.seed).model.state_dict()
    assert max((before[name].cpu() - drawn[name].cpu()).abs().max() for name in before) > 0.3


def test_options_but_text_are_inherited(german: regard.TranslationRun, other: Path, tmp_path: Path) -> None:
    flags = {**OTHER, "dropout": 0.25, "lr": 0.001, "max_len": 40}
    begun = regard.train("translation", start_from=german.folder, train=other, **flags, savepath=tmp_path)
    task, there = begun.task.config, german.task.config
    assert task.train == (str(other),) and task.valid == task.test == () and there.valid
    named = {"train", "valid", "test", "steps", "validate_every", "dropout", "lr", "max_len"}
    for name, value in begun.config.flags().items():
        if name in named:
            assert value != german.config.flags()[name]
        else:
            assert value == german.config.flags()[name], name


def test_schedule_starts_anew(german: regard.TranslationRun, other: Path, tmp_path: Path) -> None:
    flags = {**OTHER, "steps": 20, "warmup": 0.5}
    begun = regard.train("translation", start_from=german.folder, train=other, **flags, savepath=tmp_path)
    assert [(line["step"], line["lr"]) for line in begun.metrics] == [
        (10, pytest.approx(begun.config.training.lr)),
        (20, pytest.approx(begun.config.training.schedule_at(19))),
    ]
    assert begun.metrics[0]["lr"] > 10 * begun.metrics[1]["lr"]
    moments = Checkpoint.load(begun.folder, training={}).training
    assert moments is not None and moments["adam/encoder.norm.weight:step"].item() == 20


def test_inherited_parameters_are_used(german: regard.TranslationRun, tmp_path: Path) -> None:
    text = write(tmp_path)
    few = {**OTHER, "steps": 10, "train": text["train"], "lr": 1e-6}
    begun = regard.train("translation", start_from=german.folder, **few, savepath=tmp_path)
    sources, targets = zip(*sentences()[240:264], strict=True)
    assert begun.translate(sources) == german.translate(sources)
    assert begun.loss(list(zip(sources, targets, strict=True))) < 1.0


def test_run_resumes_exactly_without_its_origin(
    german: regard.TranslationRun, other: Path, tmp_path: Path, interrupt_at: Callable[..., None]
) -> None:
    start = Path(shutil.copytree(german.folder, tmp_path / "start"))
    asked: dict[str, Any] = {**OTHER, "train": other, "freeze": "encoder", "start_from": start}
    whole = regard.train("translation", **asked, savepath=tmp_path / "whole")
    interrupt_at(5)
    with pytest.raises(KeyboardInterrupt):
        regard.train("translation", **asked, savepath=tmp_path / "parts")
    shutil.rmtree(start)
    with pytest.raises(
        InputError, match="from '.*elsewhere' differs from the run's '.*start': a resumed run keeps its"
    ):
        regard.train("translation", resume=True, start_from="elsewhere", progress=False, savepath=tmp_path / "parts")
    parts = regard.train("translation", resume=True, **asked, savepath=tmp_path / "parts")
    for name in ("config.json", "metrics.jsonl", "model.safetensors", "trainer/step-8.safetensors"):
        assert (parts.folder / name).read_bytes() == (whole.folder / name).read_bytes()


def test_run_can_be_replaced_by_one_that_starts_from_it(
    german: regard.TranslationRun, other: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(german.folder, tmp_path / "translation"))
    asked: dict[str, Any] = {**OTHER, "train": other, "start_from": "translation", "savepath": tmp_path}
    with pytest.raises(InputError, match="already contains a run"):
        regard.train("translation", **asked)
    assert not (tmp_path / "prepared").exists()  # the error precedes any work
    begun = regard.train("translation", **asked, overwrite=True)
    assert begun.folder == folder and begun.config.origin is not None
    assert begun.config.origin.step == german.step and begun.metrics[-1]["step"] == 8


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"hidden": 64}, "hidden 64 differs from 32 of run '.*'.*leave out hidden, or train without --from"),
        ({"positions": "rotary"}, "positions rotary differs from sinusoidal of run"),
        ({"vocab_size": 50}, "vocab_size 50 differs from 60 of run"),
        ({"joint": False}, "joint False differs from True of run"),
        ({"tokenizer": "words"}, "tokenizer words differs from bpe of run"),
        ({"lowercase": True}, "lowercase True differs from False of run"),
        ({"model": "recurrent"}, "model recurrent differs from transformer of run"),
        ({"preset": "small"}, "preset 'small' sets the sizes of a new model.*: leave preset out"),
        ({"hiden": 3}, "flag 'hiden' is unknown"),
        ({"train": ()}, "translation needs training text"),
        (
            {"freeze": "encodr"},
            "freeze 'encodr': the model has no part with this name; choose embedding, encoder, encoder.0,",
        ),
        ({"steps": 0}, "steps 0 is out of range"),
        ({"start_from": "nowhere"}, "no run 'nowhere' in"),
        ({"start_from": 3}, "start_from 3 is of type int: give None or Path or str"),
    ],
    ids=str,
)
def test_bad_options_write_nothing(
    german: regard.TranslationRun, other: Path, tmp_path: Path, flags: dict[str, Any], message: str
) -> None:
    asked = {**OTHER, "train": other, "start_from": german.folder, **flags}
    with pytest.raises(InputError, match=message) as raised:
        regard.train("translation", **asked, savepath=tmp_path / "models")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "models" / "translation").exists()


def test_number_of_learned_positions_is_fixed(other: Path, tmp_path: Path) -> None:
    few: dict[str, Any] = {**OTHER, "vocab_size": 60, "hidden": 8, "heads": 2, "inner": 8, "steps": 1}
    flags = {**few, "positions": "learned", "max_len": 30, "train": other}
    before = regard.train("translation", **flags, savepath=tmp_path / "before")
    asked: dict[str, Any] = {**OTHER, "steps": 1, "train": other, "start_from": before.folder}
    with pytest.raises(InputError, match=r"parameter source_positions.weight is float32 \(121, 8\) in the earlier run"):
        regard.train("translation", **asked, max_len=31, savepath=tmp_path)
    assert regard.train("translation", **asked, savepath=tmp_path).step == 1


def test_start_from_a_damaged_run_is_refused(german: regard.TranslationRun, other: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(german.folder, tmp_path / "start"))
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match="another run: model.safetensors: the file has changed since it was written"):
        regard.train("translation", start_from=folder, train=other, **OTHER, savepath=tmp_path / "models")


def test_start_from_runs_of_other_tasks(
    trained: regard.AnswerRun, translator: regard.PairRun, german: regard.TranslationRun, tmp_path: Path
) -> None:
    begun = regard.train("signal2", start_from=trained.folder, steps=3, progress=False, savepath=tmp_path)
    assert isinstance(begun, regard.AnswerRun) and same_model(begun, trained)
    assert begun.config.origin is not None and begun.step == 3
    dates = regard.train(
        "dates", start_from=translator.folder, steps=2, lr=1e-9, freeze="encoder", progress=False, savepath=tmp_path
    )
    for name, value in dates.model.state_dict().items():
        torch.testing.assert_close(value, translator.model.state_dict()[name], atol=1e-6, rtol=0)
    for task, flags, message in (
        ("dates", {"start_from": translator.folder, "locales": "en"}, "locales en differs from"),
        ("signal2", {"start_from": trained.folder, "vary_len": True}, "vary_len True differs from False of run"),
        ("signal2", {"start_from": trained.folder, "max_len": 11}, "max_len 11 differs from 10 of run"),
        ("dates", {"start_from": german.folder}, "is a run of task translation: start from a run of task dates"),
        (
            "translation",
            {"start_from": translator.folder},
            "is a run of task dates: start from a run of task translation",
        ),
    ):
        asked: dict[str, Any] = {**flags, "savepath": tmp_path / "models"}
        with pytest.raises(InputError, match=message):
            regard.train(task, **asked, progress=False)


def test_start_from_a_pruned_run(german: regard.TranslationRun, other: Path, tmp_path: Path) -> None:
    pruned = regard.prune(german, heads=1, output=tmp_path / "pruned").run
    begun = regard.train("translation", start_from=pruned.folder, train=other, **OTHER, savepath=tmp_path)
    assert begun.config.kept_heads == pruned.config.kept_heads != {}
    assert begun.parameters == pruned.parameters < german.parameters


def test_start_from_a_run_with_a_config(german: regard.TranslationRun, other: Path, tmp_path: Path) -> None:
    config = german.config
    asked = changed_config(config, {"train": (str(other),), "valid": (), "test": (), "steps": 3})
    begun = regard.train(asked, start_from=german.folder, progress=False, savepath=tmp_path)
    assert begun.config.origin is not None and begun.step == 3
    wider = changed_config(asked, {"hidden": 64})
    with pytest.raises(InputError, match="a config is given: leave out steps"):
        regard.train(asked, start_from=german.folder, steps=3, savepath=tmp_path / "x")
    with pytest.raises(InputError, match="hidden 64 differs from 32 of run"):
        regard.train(wider, start_from=german.folder, progress=False, savepath=tmp_path / "wider")


def test_start_from_on_the_command_line(
    german: regard.TranslationRun, other: Path, tmp_path: Path, command: Command
) -> None:
    shutil.copytree(german.folder, tmp_path / "start")
    argv = ("train", "translation", "--from", "start", "--savepath", tmp_path)
    status, out, err = command(*argv, "--train", other, "--steps", "4", "--freeze", "embedding", "encoder.0")
    assert status == 0 and "Trained translation for 4 steps" in out
    mine = sum(
        each.numel()
        for name, each in german.model.named_parameters()
        if not name.startswith(("target_embedding.", "encoder.layers.0."))
    )
    assert f"Training {mine:,} of {german.parameters:,} parameters" in err
    stored = json.loads((tmp_path / "translation" / "config.json").read_text())
    assert stored["options"]["freeze"] == ["embedding", "encoder.0"]
    assert stored["origin"]["run"] == str(tmp_path / "start")
    status, out, _ = command("train", "translation", "--resume", "--savepath", tmp_path)
    assert status == 0 and "was complete already after 4 steps" in out
    status, out, err = command(*argv, "--overwrite", "--train", other, "--hidden", "64")
    assert (status, out) == (2, "") and "hidden 64 differs from 32 of run" in err and err.count("\n") == 1
    status, out, _ = command(*argv, "--help-all")
    assert status == 0 and "--from" in out and "(default: 0.95)" in out  # the averaged parameters of that run
    status, _, err = command("compare", "dates", "--vary", "lr=0.1,0.2", "--from", "start")
    assert status == 2 and "--from is not available here" in err and err.count("\n") == 1


def test_preset_of_a_resumed_run_must_agree(german: regard.TranslationRun) -> None:
    with pytest.raises(InputError, match="preset base has hidden 512, but the run has 32: a resumed run keeps"):
        regard.train("translation", resume=True, preset="base", savepath=german.folder.parent, progress=False)
    stored = regard.make_config("translation", {"preset": "small", "heads": 8})
    training._check_preset(stored, {"preset": "small", "heads": 8})
    with pytest.raises(InputError, match="preset small has heads 4, but the run has 8"):
        training._check_preset(stored, {"preset": "small"})
