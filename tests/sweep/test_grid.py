"""Comparison of variants: training jobs, saved files and messages."""

import csv
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import regard
from regard import plugins
from regard.errors import InputError
from regard.sweep import job
from regard.sweep.comparison import Variant, compare, format_mean, make_variants
from regard.sweep.job import Measured
from tests.conftest import TINY, Command
from tests.german import write
from tests.viz.test_report_page import begins_with_picture

pytestmark = pytest.mark.usefixtures("in_this_process")
SMALL = ("--steps", "20", "--hidden", "4", "--batchsize", "8", "--seeds", "2")


def test_variants_are_all_combinations() -> None:
    assert [variant.name for variant in make_variants({"a": [1, 2], "b": ["x", "y"]})] == [
        "a=1,b=x",
        "a=1,b=y",
        "a=2,b=x",
        "a=2,b=y",
    ]


def test_a_page_links_to_the_explorer(command: Command, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    argv = ("compare", "recall", "--vary", "pooling=last,attention", *SMALL, "--steps", "2", "--html", page)
    status, _, err = command(*argv, "--savepath", tmp_path / "kept")
    assert status == 0, err
    text = page.read_text()
    assert begins_with_picture(text) and '<a href="http://127.0.0.1:8137/">pooling=last, seed 0</a>' in text
    for number, other in enumerate(("pooling=attention, seed 0", "pooling=last, seed 1")):
        assert f'<a href="http://127.0.0.1:8137/#beside=model-{number}">pooling=last, seed 0 | {other}</a>' in text
    kept = tmp_path / "kept" / "recall"
    folders = [
        kept / name / "recall" for name in ("pooling=last/seed-0", "pooling=attention/seed-0", "pooling=last/seed-1")
    ]
    assert f"regard show {folders[0]} --compare_with {folders[1]} {folders[2]}" in text
    assert all((folder / "config.json").exists() for folder in folders)


def test_compare_command(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    argv = ("compare", "recall", "--vary", "pooling=last,attention", "--vary=max_len=6,8", *SMALL)
    status, out, err = command(*argv, "--savepath", tmp_path)
    assert status == 0, err
    lines = json.loads((tmp_path / "recall" / "results.json").read_text())
    assert [(line["pooling"], line["max_len"], line["seed"]) for line in lines] == [
        (pooling, length, seed) for pooling in ("last", "attention") for length in (6, 8) for seed in (0, 1)
    ]
    with (tmp_path / "recall" / "results.csv").open() as file:
        assert [row["exact_match"] for row in csv.DictReader(file)] == [str(line["exact_match"]) for line in lines]
    for picture in ("curves.png", "values.png"):
        assert (tmp_path / "recall" / picture).read_bytes().startswith(b"\x89PNG")
    result = json.loads((tmp_path / "recall" / "summary.json").read_text())
    assert len(result["means"]) == 4 and len(result["differences"]["exact_match"]) == 6
    assert "Differences in exact match (95 % intervals that hold for all 6 at once)" in out
    assert "Exact match by max_len" in out and "max_len=8" in out
    assert all(line["relevance"] is None for line in lines[:4]) and all(line["relevance"] for line in lines[4:])
    assert err.splitlines()[-1] == "compare: 8 of 8 done"
    again = command(*argv, "--savepath", tmp_path)
    stored = tmp_path / "recall"
    assert again == (status, out, f"8 of 8 measurements are stored in {stored} and used again\n")


def test_fixed_flags_are_checked_with_the_varied_ones(command: Command, tmp_path: Path) -> None:
    """By default, the model of the task Reverse feeds the context to the cell, which excludes input feeding and
    the current state."""
    argv = ("--vary", "context=output", "--vary", "query=current,previous", "--input_feeding", "--max_len", "4", *SMALL)
    status, _, err = command("compare", "reverse", *argv, "--savepath", tmp_path)
    assert status == 0, err
    folders = {path.name for path in (tmp_path / "reverse").iterdir() if path.is_dir()}
    assert folders == {"context=output,query=current", "context=output,query=previous"}
    config = json.loads((tmp_path / "reverse" / "context=output,query=previous/seed-1/reverse/config.json").read_text())
    assert [config["options"][name] for name in ("input_feeding", "query", "steps")] == [True, "previous", 20]


def interrupt_after_training(flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Train the model of a comparison, and interrupt the comparison before its measurement."""
    train = job.train

    def interrupted_train(*args: Any, **kwargs: Any) -> Any:
        train(*args, **kwargs)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(job, "train", interrupted_train)
        with pytest.raises(KeyboardInterrupt):
            compare("reverse", {"score": ["dot"]}, progress=False, **flags)


def test_measured_jobs_are_reused_and_interrupted_ones_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags: dict[str, Any] = {"steps": 20, "hidden": 4, "batchsize": 8, "seeds": 1, "savepath": tmp_path / "a"}
    whole = compare("reverse", {"score": ["dot"]}, progress=False, **flags)
    flags["savepath"] = tmp_path / "b"
    interrupt_after_training(flags, monkeypatch)
    parts = compare("reverse", {"score": ["dot"]}, progress=False, **flags)
    [[measured]], [[expected]] = parts.measured.values(), whole.measured.values()
    assert measured.seconds is None and dataclasses.replace(expected, seconds=None) == measured


def test_refuses_an_edited_interrupted_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags: dict[str, Any] = {"steps": 4, "hidden": 4, "batchsize": 8, "seeds": 1, "savepath": tmp_path}
    interrupt_after_training(flags, monkeypatch)
    [config] = tmp_path.rglob("reverse/config.json")
    stored = json.loads(config.read_text())
    stored["options"]["batchsize"] = 9
    config.write_text(json.dumps(stored))
    with pytest.raises(InputError) as caught:
        compare("reverse", {"score": ["dot"]}, progress=False, **flags)
    assert "batchsize is 9" in str(caught.value) and str(caught.value).endswith("seed-0' to train it again")


def test_refuses_a_damaged_measurement(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"hidden": 4, "batchsize": 8, "seeds": 1, "savepath": tmp_path, "progress": False}
    compare("copy", {"score": ["dot"]}, steps=2, **flags)
    (tmp_path / "copy" / "score=dot" / "seed-0" / "measured.json").write_text("{")
    with pytest.raises(InputError, match="measured.json' is damaged"):
        compare("copy", {"score": ["dot"]}, steps=2, **flags)


def test_format_mean() -> None:
    assert format_mean([0.5, 0.25, 1.0], "{:.2f}".format) == "0.58 (0.25 to 1.00)"
    assert format_mean([0.5, 0.5], "{:.2f}".format) == "0.50"
    assert format_mean([], "{:.2f}".format) == ""


def test_values_of_a_comparison() -> None:
    measured = Measured(
        exact_match=0.5,
        steps_to_99=None,
        parameters=3,
        seconds=None,
        loss=1.0,
        relevance=None,
        uniform=None,
        alignment_error=None,
    )
    variant = Variant({"a": 1})
    comparison = regard.Comparison("copy", Path(), [variant], {"a=1": [measured, measured]})
    assert comparison.values(variant, "exact_match") == [0.5, 0.5]
    assert comparison.values(variant, "steps_to_99") == []


@pytest.mark.parametrize(("lowercase", "steps"), [(False, 2), (True, 150)])
def test_translation_is_compared_by_bleu(tmp_path: Path, lowercase: bool, steps: int) -> None:
    flags: dict[str, Any] = {**TINY, **write(tmp_path), "steps": steps, "validate_every": steps, "lowercase": lowercase}
    results = [
        compare("translation", {"heads": [1]}, seeds=1, savepath=tmp_path, progress=False, **flags) for _ in range(2)
    ]
    run = regard.load(tmp_path / "translation" / "heads=1" / "seed-0" / "translation")
    assert isinstance(run, regard.TranslationRun)
    scores = run.test().quality
    best = scores.bleu_lowercase if lowercase else scores.bleu
    assert results[0].values(results[0].variants[0], "bleu") == [best] and results[1] == results[0]
    if lowercase:
        assert scores.bleu is None and str(run.test()).startswith(f"BLEU {best:.2f}")


def test_a_measurement_of_changed_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "grid_helper.py").write_text("FACTOR = 1\n")
    score = "import grid_helper\nfrom regard.attention.scores import ScaledDot\nclass S(ScaledDot): pass\n"
    (tmp_path / "grid_score.py").write_text(score)
    flags: dict[str, Any] = {"seeds": 1, "steps": 2, "hidden": 4, "savepath": tmp_path / "compared"}
    vary = {"score": ["dot", "grid_score:S"]}
    try:
        compare("counting", vary, **flags)
        capsys.readouterr()
        compare("counting", vary, **flags)
        stored = tmp_path / "compared" / "counting"
        assert f"2 of 2 measurements are stored in {stored} and used again\n" in capsys.readouterr().err
    finally:
        for name in ("grid_score", "grid_helper"):
            sys.modules.pop(name, None)
    plugins._loaded.clear()  # as in another process
    (tmp_path / "grid_helper.py").write_text("FACTOR = 2\n")
    with pytest.raises(InputError, match=r"score 'grid_score:S' has changed since .* was measured: delete it to"):
        compare("counting", vary, **flags)
    with pytest.raises(InputError, match="has a measurement with other flags"):
        compare("counting", vary, **{**flags, "hidden": 8})


@pytest.mark.parametrize(
    ("values", "variants", "said"),
    [
        ("softmax,alibi,sink", ["softmax", "alibi", "sink"], True),
        ("softmax;alibi,sink", ["softmax", "alibi,sink"], False),
        ("softmax,alibi+sink", ["softmax", "alibi+sink"], False),
    ],
)
def test_a_combination_of_parts_is_not_split_silently(
    command: Command, tmp_path: Path, values: str, variants: list[str], said: bool
) -> None:
    argv = ("compare", "induction", "--vary", f"attention={values}", "--seeds", "1", "--steps", "1")
    status, out, err = command(*argv, "--savepath", tmp_path)
    assert status == 0, err
    assert [line.split()[0] for line in out.splitlines()[2 : 2 + len(variants)]] == variants
    assert (f"attention is varied over {len(variants)} mechanisms, {', '.join(variants)}" in err) == said
