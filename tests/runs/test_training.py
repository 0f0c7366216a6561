"""Training: runs that start from another run, resumed runs, and runs with a new schedule."""

import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

import regard
from regard.errors import InputError
from regard.runs import training
from regard.training.checkpoint import Checkpoint, TrainingState
from regard.training.config import changed_config
from tests.conftest import Command
from tests.german import sentences, write
from tests.sweep.cluster import LostError, lose_at

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
        (
            {"freeze": "encodr"},
            "freeze 'encodr': the model has no part with this name; choose embedding, encoder, encoder.0,",
        ),
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
    assert status == 0 and "--from" in out and "default: 0.95)" in out  # the averaged parameters of that run
    status, _, err = command("compare", "dates", "--vary", "lr=0.1,0.2", "--from", "start")
    assert status == 2 and "--from is not available here" in err and err.count("\n") == 1


def test_preset_of_a_resumed_run_must_agree(german: regard.TranslationRun) -> None:
    with pytest.raises(InputError, match="preset base has hidden 512, but the run has 32: a resumed run keeps"):
        regard.train("translation", resume=True, preset="base", savepath=german.folder.parent, progress=False)
    stored = regard.make_config("translation", {"preset": "small", "heads": 8})
    training._check_preset(stored, {"preset": "small", "heads": 8})
    with pytest.raises(InputError, match="preset small has heads 4, but the run has 8"):
        training._check_preset(stored, {"preset": "small"})


# Resumed training on text: the text is identified by its content, and its files may have moved.


PAIRS = [(f"w{i % 7} w{i % 5} w{i % 3}", f"v{i % 7} v{i % 5} v{i % 3}") for i in range(60)]
FLAGS: dict[str, Any] = {
    "tokenizer": "words",
    "hidden": 8,
    "heads": 2,
    "inner": 8,
    "enc_layers": 1,
    "dec_layers": 2,
    "tokens": 60,
    "steps": 6,
    "validate_every": 3,
    "progress": False,
}


class StoppedError(Exception):
    """Interrupts a training run."""


def places(folder: Path) -> dict[str, Any]:
    return {
        "train": (folder / "train.a", folder / "train.b"),
        "valid": (folder / "valid.a", folder / "valid.b"),
        "guide": str(folder / "links"),
    }


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interrupted training run and a complete training run."""
    root = tmp_path_factory.mktemp("begun")
    (root / "text").mkdir()
    for name, lines in (
        ("train.a", [source for source, _ in PAIRS]),
        ("train.b", [target for _, target in PAIRS]),
        ("valid.a", [source for source, _ in PAIRS[:9]]),
        ("valid.b", [target for _, target in PAIRS[:9]]),
        ("links", ["0-0 1-1 2-2"] * len(PAIRS)),
    ):
        (root / "text" / name).write_text("".join(f"{line}\n" for line in lines))
    text = places(root / "text")
    regard.train("translation", **text, **FLAGS, savepath=root / "whole")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(LostError):
        lose_at(3, patch)
        regard.train("translation", **text, **FLAGS, savepath=root / "runs")
    return root


@pytest.fixture
def root(begun: Path, tmp_path: Path) -> Path:
    """A copy of the runs and of their text in another folder."""
    return Path(shutil.copytree(begun, tmp_path / "moved"))


def resume(root: Path, **flags: Any) -> regard.AnyRun:
    return regard.train("translation", savepath=root / "runs", resume=True, progress=False, **flags)


def squeeze(path: Path, level: int) -> Path:
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes(), level))
    path.unlink()
    return packed


def touch(root: Path) -> dict[str, Any]:
    for path in (root / "text").iterdir():
        os.utime(path, (1e9, 1e9))
    return places(root / "text")


def rename(root: Path) -> dict[str, Any]:
    shutil.move(root / "text/train.a", root / "source")
    return {**places(root / "text"), "train": (root / "source", root / "text/train.b")}


def compress(root: Path) -> dict[str, Any]:
    train = tuple(squeeze(root / "text" / name, level) for name, level in (("train.a", 1), ("train.b", 9)))
    return {**places(root / "text"), "train": train, "guide": str(squeeze(root / "text/links", 5))}


@pytest.mark.parametrize("move", [touch, rename, compress])
def test_moved_touched_or_compressed_text_is_the_same(
    begun: Path, root: Path, move: Callable[[Path], dict[str, Any]]
) -> None:
    flags = move(root)

    def prepared() -> dict[Path, int]:
        files = (path for path in (root / "runs/prepared").rglob("*") if path.is_file())
        return {path: path.stat().st_mtime_ns for path in files if not path.name.startswith("text-")}

    before = prepared()
    run = resume(root, **flags)
    assert run.task.config.train == tuple(map(str, places(begun / "text")["train"]))
    for name in ("model.safetensors", "trainer/step-6.safetensors"):
        mine, whole = ((each / "translation" / name).read_bytes() for each in (root / "runs", begun / "whole"))
        assert mine == whole
    assert prepared() == before  # found again, nothing is prepared


def append(root: Path) -> None:
    with (root / "text/train.b").open("a") as file:
        file.write("v1\n")


def change(name: str) -> Callable[[Path], None]:
    """Return an edit of a line in the middle of a file that preserves the file's size and time."""

    def edit(root: Path) -> None:
        path = root / "text" / name
        stamp, lines = path.stat(), path.read_text().splitlines(keepends=True)
        middle = len(lines) // 2
        lines[middle] = lines[middle].translate(str.maketrans("01234", "12340"))
        path.write_text("".join(lines))
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (append, r"train '.*train\.b' has changed: it has 61 lines, and had 60; a resumed run needs its original text"),
        (change("train.a"), r"train '.*train\.a' has changed: it has 60 lines as before, but different content"),
        (change("valid.b"), r"valid '.*valid\.b' has changed: it has 9 lines as before, but different content"),
        (change("links"), r"guide '.*links' has changed: it has 60 lines as before, but different content"),
    ],
)
def test_changed_text_is_refused(root: Path, edit: Callable[[Path], None], message: str) -> None:
    edit(root)
    before = {path: path.read_bytes() for path in (root / "runs").rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=message) as raised:
        resume(root, **places(root / "text"))
    assert "\n" not in str(raised.value)
    after = {path: path.read_bytes() for path in (root / "runs").rglob("*") if path.is_file()}
    assert {path: after[path] for path in before} == before


def test_other_files_are_refused(root: Path) -> None:
    text = places(root / "text")
    one, other = text["train"]
    with pytest.raises(InputError, match="the files of train are in a different order: '.*train.b', '.*train.a'"):
        resume(root, **{**text, "train": (other, one)})
    with pytest.raises(InputError, match="train has 1 file, and had 2"):
        resume(root, **{**text, "train": (one,)})
    with pytest.raises(InputError, match="valid has 0 files, and had 2"):
        resume(root, **{**text, "valid": ()})
    with pytest.raises(InputError, match="hidden 16 differs from the run's 8: a resumed run keeps its flags"):
        resume(root, **text, hidden=16)


def test_missing_text_is_refused_with_a_remedy(begun: Path, root: Path, command: Command) -> None:
    config = json.loads((root / "runs/translation/config.json").read_text())
    assert [each["lines"] for each in config["text"]["train"]] == [60, 60] and config["text"]["guide"]
    (begun / "text").rename(begun / "away")
    try:
        status, _, err = command("train", "translation", "--resume", "--savepath", root / "runs")
    finally:
        (begun / "away").rename(begun / "text")
    assert (status, err.count("\n")) == (2, 1)
    assert "train.a' does not exist" in err and "give its new path: --resume --train ..." in err
    train = [str(path) for path in places(root / "text")["train"]]
    valid = [str(path) for path in places(root / "text")["valid"]]
    argv = ("--train", *train, "--valid", *valid, "--guide", root / "text/links", "--savepath", root / "runs")
    status, out, _ = command("train", "translation", "--resume", *argv)
    assert status == 0 and "for 6 steps" in out


# Resumed runs with more steps or another learning rate: a new schedule from the last checkpoint.


COUNTING: dict[str, Any] = {"steps": 6, "batchsize": 5, "hidden": 8, "snapshots": 2, "progress": False}


def train(folder: Path, **flags: Any) -> regard.AnyRun:
    return regard.train("counting", savepath=folder, **{**COUNTING, **flags})


def resume_counting(folder: Path, **flags: Any) -> regard.AnyRun:
    return regard.train("counting", savepath=folder, resume=True, progress=False, **flags)


def rates(run: regard.AnyRun) -> list[float]:
    return [line["lr"] for line in run.metrics]


def test_new_schedule_begins_at_the_last_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = train(tmp_path)
    run = resume_counting(tmp_path, steps=26, lr=0.004)
    assert "New learning-rate schedule: steps 6 to 26 with learning rate 0.004" in capsys.readouterr().err
    assert [line["step"] for line in run.metrics] == [6, 10, 20, 26] and run.step == 26
    training, now = first.config.training, run.config.training
    assert rates(run)[0] == training.schedule_at(5)
    for step, rate in zip((10, 20, 26), rates(run)[1:], strict=True):
        assert rate == 0.004 * now.optimization.schedule(step - 1 - 6, 20)
    stored = json.loads((run.folder / "config.json").read_text())["schedules"]
    assert stored == [{"first": 0, "steps": 6, "lr": 0.05}, {"first": 6, "steps": 26, "lr": 0.004}]
    history = "steps 0 to 6 with learning rate 0.05; steps 6 to 26 with learning rate 0.004"
    assert history in str(run) and run.about()["history"] == history
    assert [path.stem for path in run.files.snapshots] == ["step-0", "step-6", "step-26"]
    assert run.playback(seed=0).steps == [0, 6, 26]
    assert regard.load(run.folder).config == run.config


def test_interrupted_extension_resumes_exactly(tmp_path: Path) -> None:
    for name in ("whole", "cut"):
        train(tmp_path / name)
    whole = resume_counting(tmp_path / "whole", steps=12)
    save = TrainingState.save

    def stop(state: TrainingState, *args: Any, **options: Any) -> None:
        if state.step == 12:
            raise StoppedError
        save(state, *args, **options)

    with mock.patch.object(TrainingState, "save", stop), pytest.raises(StoppedError):
        resume_counting(tmp_path / "cut", steps=12)
    cut = resume_counting(tmp_path / "cut")  # with and without the flag: the new schedule is stored
    for name in ("config.json", "model.safetensors", "metrics.jsonl", "trainer/step-12.safetensors"):
        assert (whole.folder / name).read_bytes() == (cut.folder / name).read_bytes(), name
    before = (cut.folder / "model.safetensors").stat().st_mtime_ns
    assert resume_counting(tmp_path / "cut", steps=12).config == cut.config
    assert (cut.folder / "model.safetensors").stat().st_mtime_ns == before


def test_steps_in_the_past_and_other_flags_are_refused(tmp_path: Path, command: Command) -> None:
    run = train(tmp_path)
    files = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    for flags, message in (
        ({"steps": 3}, "the run already has 6 steps: give more, such as --steps 12"),
        ({"lr": 0.01}, "the run already has 6 steps: give more, such as --steps 12"),
        ({"steps": 9, "seed": 1}, "seed 1 differs from the run's 0: a resumed run keeps its flags"),
        ({"steps": 9, "lr": -1.0}, "lr -1.0 is out of range"),
    ):
        with pytest.raises(InputError, match=message):
            resume_counting(tmp_path, **flags)
    assert {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()} == files
    status, out, err = command("train", "counting", "--resume", "--steps", "9", "--savepath", tmp_path)
    assert status == 0 and "for 9 steps" in out and "steps 6 to 9 with learning rate 0.05" in err


def test_derived_results_are_named_when_they_are_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(tmp_path)
    run.files.write_derived("examination.json", {"any": 1})
    resume_counting(tmp_path, steps=7)
    assert "Removed results of the earlier model: examination.json" in capsys.readouterr().err
    assert not (run.folder / "examination.json").exists()


def test_run_that_starts_from_an_extended_run_has_one_schedule(tmp_path: Path) -> None:
    train(tmp_path)
    before = resume_counting(tmp_path, steps=8)
    begun = regard.train("counting", start_from=before.folder, steps=5, savepath=tmp_path / "b", progress=False)
    assert begun.config.schedules == [] and begun.config.first_step == 0
