"""Several seeds are examined at once, by Python and by command."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.interpret.examination import read_examination
from regard.runs import seeds as several_seeds
from regard.streams import make_generator
from regard.training.run_folder import RunFolder
from regard_lab.bench.known_models import compiled_model
from tests.conftest import Command

OPTIONS: dict[str, Any] = {"hidden": 8, "heads": 2, "steps": 3, "batchsize": 4, "progress": False}


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two seeds of Signal 2, and runs that do not belong to them: another shape, another task, another step."""
    folder = tmp_path_factory.mktemp("seeds")
    for number in (0, 1):
        regard.train("signal2", seed=number, savepath=folder / str(number), **OPTIONS)
    regard.train("signal2", seed=2, savepath=folder / "wide", **{**OPTIONS, "hidden": 12})
    regard.train("counting", seed=3, savepath=folder / "task", **{**OPTIONS, "heads": 1})
    return [folder / name for name in ("0/signal2", "1/signal2", "wide/signal2", "task/counting")]


@pytest.fixture
def runs(seeds: list[Path], tmp_path: Path) -> list[Path]:
    """Copies of the two seeds."""
    return [Path(shutil.copytree(path, tmp_path / path.parent.name / path.name)) for path in seeds[:2]]


@pytest.fixture(scope="module")
def alone(seeds: list[Path]) -> list[regard.Examination]:
    """The examination of each of the two seeds."""
    return [regard.load(path).examine(samples=10) for path in seeds[:2]]


def test_runs_are_examined_as_each_alone(runs: list[Path], alone: list[regard.Examination]) -> None:
    result = regard.examine_runs(runs, samples=10, progress=False)
    assert result.seeds == [0, 1] and result.runs == list(map(str, runs)) and result.examinations == alone
    heads = {layer: len(added) for layer, added in result.examinations[0].importance.added.items()}
    for count in result.counts:
        assert count.of is None or count.of == heads[count.layer]
    in_memory = regard.examine_runs([regard.load(runs[1])], samples=10, progress=False)
    assert in_memory.examinations == alone[1:]


def test_the_needed_heads_of_a_compiled_program_are_counted() -> None:
    """The circuit is known, and the spare heads of each seed are other ones."""
    known = [compiled_model("sorted", seed=seed) for seed in (0, 1)]
    result = regard.examine_runs([model.subject for model in known], samples=10, progress=False)
    for layer in result.examinations[0].importance.added:
        needed = [sum(head is True for head in model.circuit.needed[layer]) for model in known if model.circuit]
        counts = [count.heads for count in result.counts if (count.layer, count.kind) == (layer, "needed")]
        assert counts == ([needed] if any(needed) else [])
    assert "needed" in {count.kind for count in result.counts}
    assert not Path("compiled:sorted").exists()  # a run in memory has no folder


def test_a_repeated_call_continues(
    runs: list[Path],
    alone: list[regard.Examination],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An examination that was saved is read, unless its samples, its seed or its model differ."""
    first = alone[0]
    first.save(runs[0] / "examined.json")
    assert read_examination(RunFolder(runs[0]), 10, 0) == first
    assert read_examination(RunFolder(runs[0]), 11, 0) is None
    assert read_examination(RunFolder(runs[0]), 10, 1) is None
    examined: list[str] = []

    def count(run: regard.AnswerRun, **_: Any) -> regard.Examination:
        examined.append(str(run.folder))
        return alone[1]

    monkeypatch.setattr(regard.AnswerRun, "examine", count)
    result = regard.examine_runs(runs, samples=10)
    assert examined == [str(runs[1])] and result.examinations == alone
    assert f"read from examined.json, not measured again: {runs[0]}\n" in capsys.readouterr().err
    assert regard.examine_runs(runs, samples=10, progress=False) == result and len(examined) == 1
    assert regard.examine_runs(runs[:1], samples=11, progress=False).examinations != [first] and len(examined) == 2


def test_an_examination_of_another_version_is_measured_again(runs: list[Path], alone: list[regard.Examination]) -> None:
    folder, result = RunFolder(runs[0]), alone[0]
    folder.write_derived("examined.json", {**result.json(), "version": "0.0.0"})
    assert read_examination(folder, 10, 0) is None
    folder.write_derived("examined.json", {**result.json(), "heads": [{"layer": "cross"}]})
    assert read_examination(folder, 10, 0) is None


def test_runs_that_are_not_seeds_of_one_model_are_refused(seeds: list[Path], tmp_path: Path) -> None:
    first, second, wide, task = seeds
    regard.train("signal2", seed=4, savepath=tmp_path, **{**OPTIONS, "steps": 4})
    for others, message in (
        ([second, wide], r"hidden is 8 in '.*0/signal2' and 12 in '.*': give runs that differ only in their seed"),
        ([task], r"'.*0/signal2' is a run of signal2, '.*counting' of counting: give runs of one task"),
        ([second, first], r"seed 0 is that of '.*' and of '.*': give each seed once"),
        ([tmp_path / "signal2"], r"steps is 3 in '.*' and 4 in '.*': give runs that differ only in their seed"),
    ):
        with pytest.raises(regard.InputError, match=message):
            regard.examine_runs([first, *others], samples=4, progress=False)
    with pytest.raises(regard.InputError, match="there are no runs: name the folders of one or more runs"):
        regard.examine_runs([])
    with pytest.raises(regard.InputError, match="samples 1 is out of range"):
        regard.examine_runs([first, second], samples=1)
    assert not (first / "examined.json").exists()


def test_a_pruned_run_is_refused(runs: list[Path], tmp_path: Path) -> None:
    pruned = regard.prune(regard.load(runs[1]), 1, tmp_path / "pruned")
    with pytest.raises(regard.InputError, match="were pruned to different heads"):
        regard.examine_runs([runs[0], pruned.run.folder], samples=4, progress=False)


def test_an_interrupted_training_run_is_refused(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    load = several_seeds.load

    def unfinished(run: Path, **options: Any) -> Any:
        loaded = load(run, **options)
        object.__setattr__(loaded, "step", 2 if run == runs[1] else 3)
        return loaded

    monkeypatch.setattr(several_seeds, "load", unfinished)
    with pytest.raises(regard.InputError, match="has 3 training steps, .* has 2: continue an interrupted"):
        regard.examine_runs(runs, samples=4, progress=False)


def test_runs_are_examined_by_command(
    command: Command, runs: list[Path], alone: list[regard.Examination], tmp_path: Path
) -> None:
    alone[0].save(runs[0] / "examined.json")  # one is read, the other measured
    json_file, page = tmp_path / "all.json", tmp_path / "all.html"
    status, out, err = command("examine", *runs, "--samples", "10", "--json", json_file, "--html", page)
    assert status == 0 and "examine, runs: 2 of 2 done" in err
    assert "signal2, 2 runs (seeds 0, 1), 10 unseen samples each" in out
    assert "Heads of different runs do not correspond by number" in out
    for path in (*(run / "examined.json" for run in runs), json_file, page):
        assert f"Saved {path}\n" in out and path.exists()
    assert json.loads(json_file.read_text())["seeds"] == [0, 1]
    again = command("examine", *runs, "--samples", "10")
    assert again[0] == 0 and "read from examined.json, not measured again" in again[2]
    assert again[1].split("Saved")[0] == out.split("Saved")[0]


def test_bad_input_by_command(command: Command, seeds: list[Path]) -> None:
    for argv, words in (
        ([seeds[0], seeds[3]], "give runs of one task"),
        ([seeds[0], "nowhere"], "nowhere"),
        ([], "name the run first, as in `regard examine counting`"),
        ([seeds[0], ""], "a name of a run is empty"),
        ([seeds[0], seeds[1], "--samples", "1"], "samples 1 is out of range"),
    ):
        status, out, err = command("examine", *argv)
        assert (status, out) == (2, "") and words in err and err.count("\n") == 1
    assert "RUN..." in command("examine", "--help")[1]


SMALL: dict[str, Any] = {"max_len": 10, "repeated": 4, "vocab_size": 8, "hidden": 8, "heads": 2, "snapshots": 4}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two short runs of induction that differ in their seed."""
    base = tmp_path_factory.mktemp("seeds")
    runs = [
        regard.train("induction", **SMALL, steps=20, seed=seed, savepath=base / f"seed{seed}", progress=False)
        for seed in range(2)
    ]
    return [run.folder for run in runs]


def test_every_snapshot_is_measured(folders: list[Path]) -> None:
    timeline = regard.timeline(folders, samples=40, progress=False)
    run = regard.load(folders[1])
    assert timeline.steps == run.config.training.snapshot_steps and len(timeline.runs) == 2
    last = timeline.runs[1]
    assert last.seed == 1 and last.roles["induction"].shape == (4, 4)
    # Other samples and half precision: about the same loss as that of the run.
    assert last.loss[-1] == pytest.approx(run.loss(run.unseen(200, 3)), abs=0.1)
    again = regard.timeline([run], samples=40, progress=False)
    assert np.array_equal(again.runs[0].roles["induction"], last.roles["induction"])


def test_other_kinds_of_models_have_timelines(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"steps": 3, "snapshots": 3, "savepath": tmp_path, "progress": False}
    run: Any = regard.train("signal2", hidden=8, heads=2, **flags)
    roles = {role.role for role in regard.timeline([run], samples=10, progress=False).roles}
    assert {"relevant-input", "same-position", "previous-token", "next-token"} <= roles
    run = regard.train("copy", model="transformer", hidden=8, heads=2, enc_layers=1, dec_layers=1, **flags)
    timeline = regard.timeline([run], samples=10, progress=False)
    assert {"encoder.0.self_attention", "decoder.0.cross"} <= {head.layer for head in timeline.runs[0].heads}
    assert timeline.runs[0].importance.shape == (3, 6)
    run = regard.train("reverse", model="recurrent", hidden=8, **flags)
    assert "relevant-input" in {role.role for role in regard.timeline([run], samples=10, progress=False).roles}


def test_runs_that_do_not_fit_are_refused_in_one_line(folders: list[Path], tmp_path: Path) -> None:
    flags: dict[str, Any] = {**SMALL, "steps": 20, "progress": False}
    none = regard.train("induction", **(flags | {"snapshots": 0}), savepath=tmp_path / "b").folder
    for runs, message in (
        ([], "there are no runs"),
        ([none], "has no snapshots: train it with --snapshots 50"),
        ([folders[0], folders[0]], "seed 0 is that of .*: give each seed once"),
        ([tmp_path / "missing"], "no run"),
    ):
        with pytest.raises(regard.InputError, match=message):
            regard.timeline(runs, progress=False)
    with pytest.raises(regard.InputError, match="threshold 1.5 is out of range"):
        regard.timeline(folders, threshold=1.5)


def test_the_command_prints_and_writes(command: Command, folders: list[Path], tmp_path: Path) -> None:
    page, data = tmp_path / "page.html", tmp_path / "timeline.json"
    status, out, err = command("timeline", *folders, "--samples", "20", "--html", page, "--json", data)
    assert status == 0 and "Roles of the heads of induction, 2 seeds, 4 snapshots" in out, err
    assert "4 of 8 done" in err and page.exists()
    assert json.loads(data.read_text())["samples"] == 20
    status, out, _ = command("timeline", "--help")
    assert status == 0 and "--threshold" in out and "RUN..." in out and command("timeline")[0] == 2


def test_what_a_watch_measured_has_a_timeline(command: Command, tmp_path: Path) -> None:
    others = dict.fromkeys(("entropy", "relative_entropy", "own_token", "first_token"), 0.1)
    rows = [
        {"step": step, "layer": "layer.0", "head": head, **others, "previous_token": share}
        for step, shares in ((0, (0.1, 0.2)), (20, (0.2, 0.9)), (40, (0.25, 0.8)))
        for head, share in enumerate(shares)
    ]
    lines = map(json.dumps, [{"watch": "GPT", "parameters": 3}, *rows, {"step": 39, "loss": 0.5}])
    (tmp_path / "watch.jsonl").write_text("\n".join([*lines, ""]))
    status, out, err = command("timeline", tmp_path, "--html", tmp_path / "page.html")
    assert status == 0 and "A previous-token head at step 20." in out and "loss at the end is 0.5000" in out, err
    assert "the score of a role is the share of the weight on its keys" in " ".join(out.split())


def test_checkpoints_of_transformers_have_a_timeline(command: Command, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=9, n_embd=8, n_head=2, n_layer=1, n_positions=48, bos_token_id=0)
    for step in (20, 5):
        model = transformers.GPT2LMHeadModel(config).eval()
        model.save_pretrained(tmp_path / f"checkpoint-{step}")
    result = regard.timeline([tmp_path], samples=3, progress=False)
    run = result.runs[0]
    half = torch.randint(9, (3, 24), generator=make_generator(0, "timeline"))
    model.set_attn_implementation("eager")
    output, fair = model(torch.cat([half, half], 1), output_attentions=True), 1 / torch.arange(2, 49)
    score = (output.attentions[0][:, :, 1:, 0] - fair) / (1 - fair)
    assert run.steps == [5, 20] and not np.allclose(run.roles["first-token"][0], run.roles["first-token"][1])
    assert run.roles["first-token"][0] == pytest.approx(score.mean((0, 2)).detach().numpy(), abs=1e-5)
    loss = torch.nn.functional.cross_entropy(output.logits[:, 24:-1].flatten(0, 1), half[:, 1:].flatten())
    assert run.loss[0] == pytest.approx(loss.item(), abs=1e-5)
    status, printed, _ = command("timeline", tmp_path, "--samples", "3")
    assert status == 0 and "24 random tokens, repeated once" in " ".join(printed.split())
    bert = transformers.BertConfig(vocab_size=9, hidden_size=8, num_attention_heads=2, num_hidden_layers=1)
    transformers.BertModel(bert).save_pretrained(tmp_path / "other" / "checkpoint-1")
    with pytest.raises(regard.InputError, match="is a BertModel: the timeline of checkpoints needs a language model"):
        regard.timeline([tmp_path / "other"], progress=False)
