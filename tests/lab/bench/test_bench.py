"""`regard bench`: oracle and chance, repeated and resumed runs, methods of a user, and errors."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lab_pages import write_bench

import regard
from regard import plugins
from regard.cli import main
from regard.interpret.attribution.trial import Trial
from regard_lab.bench import rankings as cells
from regard_lab.bench.bench import bench, entry_text, group_columns, model_columns
from regard_lab.bench.known_models import QUICK, choose_models
from regard_lab.bench.rankings import choose_methods
from tests.conftest import run_jobs_here
from tests.viz.test_report_page import begins_with_picture

EXAMPLE = Path(__file__).parents[3] / "examples" / "explanation_method.py"
FLAGS = ["--models", "counting", "--seeds", "2", "--quick"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the model Counting is trained with two seeds, and some methods are measured."""
    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        run_jobs_here(patch)
        bench("attention,ablation_mean", models="counting", seeds=2, quick=True, savepath=folder, progress=False)
    return folder


def names_of(result: Any) -> list[str]:
    return [column.name for column in result.columns]


def test_oracle_is_right_and_chance_is_one_half(folder: Path, in_this_process: None) -> None:
    result = bench("attention", models="counting,compiled/reverse,lookup", seeds=2, quick=True, savepath=folder)
    kinds = {(column.name, column.kind, column.level) for column in result.columns}
    assert ("reverse", "compiled", "edges") in kinds and ("counting", "learned", "inputs") in kinds
    for column in [*result.columns, *result.groups]:
        assert column.entries["oracle"].values == [1.0, 1.0]
        assert column.entries["random"].mean == pytest.approx(0.5, abs=0.02)


def test_a_repeated_call_measures_nothing_and_gives_the_same(
    folder: Path, in_this_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"models": "counting", "seeds": 2, "quick": True, "savepath": folder}
    first = bench("attention,ablation_mean", **options)

    def fail(*arguments: object) -> None:
        raise AssertionError("a stored result is measured again")

    monkeypatch.setattr(cells, "measure_cell", fail)
    assert bench("attention,ablation_mean", **options).json() == first.json()


def test_measured_again_the_scores_are_identical(in_this_process: None, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        bench("all", models="first", seeds=1, quick=True, savepath=folder, progress=False)
    paths = [sorted(path.relative_to(folder) for path in folder.rglob("*.json")) for folder in folders]
    assert paths[0] == paths[1] and len(paths[0]) == len(choose_methods("all"))
    for path in paths[0]:
        first, second = (json.loads((folder / path).read_text()) for folder in folders)
        for score in [*first["scores"], *second["scores"]]:
            score.pop("seconds")
        assert first == second


def test_an_interrupted_bench_continues(folder: Path, in_this_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    measure, measured = cells.measure_cell, list[str]()

    def interrupt(subjects: Any, method: Any) -> Any:
        if method.name == "ablation_zero" and subjects.known.seed == 1:
            raise KeyboardInterrupt
        measured.append(method.name)
        return measure(subjects, method)

    arguments = ["bench", "--methods", "ablation_zero", *FLAGS, "--savepath", str(folder)]
    monkeypatch.setattr(cells, "measure_cell", interrupt)
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 130 and measured == ["ablation_zero"]
    monkeypatch.setattr(cells, "measure_cell", measure)
    assert main(arguments) == 0


def test_command_with_a_method_of_a_user(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, page = (tmp_path / f"bench.{kind}" for kind in ("json", "html"))
    files = ["--json", str(table), "--html", str(page)]
    assert main(["bench", "--methods", str(EXAMPLE), *FLAGS, "--savepath", str(folder), *files]) == 0
    assert "next_token" in capsys.readouterr().out
    content = json.loads(table.read_text())
    assert content["methods"] == ["oracle", "random", "next_token"]
    [column] = content["columns"]
    assert column["entries"]["next_token"]["letters"]
    assert "next_token" in page.read_text() and begins_with_picture(page.read_text())


def test_example_is_short() -> None:
    source = EXAMPLE.read_text()
    assert len([line for line in source[source.index("@torch") :].splitlines() if line.strip()]) <= 15


def reversed_attention(trial: Trial[Any]) -> np.ndarray:
    """Return the least attended inputs first."""
    return -trial.records["cross"].weights[0].mean(0).numpy()


def fails(trial: Trial[Any]) -> torch.Tensor:
    """Return a wrong shape."""
    return torch.zeros(1, 1)


def test_functions_and_their_failures(folder: Path, in_this_process: None, tmp_path: Path) -> None:
    options: dict[str, Any] = {"models": "counting", "seeds": 2, "quick": True, "savepath": folder}
    result = bench(reversed_attention, **options)
    [column] = result.columns
    assert column.entries["reversed_attention"].mean < 0.1
    tables = write_bench(result, tmp_path / "tables.md").read_text()
    assert "## inputs: relevant\n\n| method | learned (1) |" in tables and "| `reversed_attention` | 0." in tables
    page = tmp_path / "page.html"
    regard.write_bench_page(result, page)
    link = "page-failures/learned-counting.html#map=0&amp;layer=explanation&amp;head=0"
    assert page.read_text().count(f'<a href="{link}">') == 2  # the mean over models, and the model
    drawn = (tmp_path / "page-failures" / "learned-counting.html").read_text()
    assert "reversed_attention ranks inputs with AUROC" in drawn and "known answer" in drawn
    with pytest.raises(regard.InputError, match=r"method fails: the method returned \(1, 1\)"):
        bench(fails, **options)


def test_a_file_that_fails_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import nothing_of_this_name")
    with pytest.raises(regard.InputError, match="failed: ModuleNotFoundError"):
        choose_methods(str(path))
    path = tmp_path / "empty.py"
    path.write_text("x = 1")
    with pytest.raises(regard.InputError, match="defines no public function"):
        choose_methods(str(path))


def cell(method: str, model: str, seed: int, values: list[float]) -> cells.Cell:
    score = cells.AurocScore(level="inputs", truth="relevant", values=values, seconds=0.5, worst=None)
    return cells.Cell(
        method=method,
        model=model,
        kind="learned",
        family="encoder",
        seed=seed,
        samples=len(values),
        scores=[score],
        left_out={},
    )


def test_means_are_over_samples_then_seeds_then_models() -> None:
    stored = [cell("a", "x", 0, [1.0, 0.0]), cell("a", "x", 1, [1.0]), cell("a", "y", 0, [0.5])]
    stored += [cell("a", "y", 1, [0.5]), cell("b", "x", 0, [0.0]), cell("b", "x", 1, [0.0])]
    first, second = model_columns(stored)
    assert first.entries["a"].values == [0.5, 1.0] and first.entries["a"].mean == 0.75
    assert "b" not in second.entries
    [group] = group_columns([first, second])
    assert group.entries["a"].values == [0.5, 0.75] and group.models == 2
    assert list(group.entries) == ["a", "b"]  # the best first
    assert entry_text(group.entries["b"], group.models).plain.endswith("[1 of 2] !")
    assert group.entries["b"].letters == ""


def test_the_quick_bench_trains_few_models() -> None:
    quick = choose_models(quick=True)
    assert {str(model) for model in quick if model.kind not in ("compiled", "trap")} == set(QUICK)
    assert {model.kind for model in quick} == {model.kind for model in choose_models("all")}


def test_a_method_of_captum_ranks_like_the_same_method(folder: Path, in_this_process: None) -> None:
    pytest.importorskip("captum", reason="needs the extra explainers")
    choice = "captum:FeatureAblation,ablation_zero"
    columns = bench(choice, models="compiled/reverse", seeds=1, quick=True, savepath=folder).columns
    [column] = [column for column in columns if column.level == "inputs"]
    assert column.entries["captum:FeatureAblation"].values == column.entries["ablation_zero"].values
    assert list((folder / "results").rglob("captum-FeatureAblation-*.json"))


def test_a_method_whose_helper_changed_has_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bench_helper.py").write_text("SIGN = 1\n")
    (tmp_path / "bench_methods.py").write_text("import bench_helper\ndef mine(trial):\n    return bench_helper.SIGN\n")
    file = str(tmp_path / "bench_methods.py")
    first = choose_methods(file)[-1]
    assert choose_methods(file)[-1].digest == first.digest
    (tmp_path / "bench_helper.py").write_text("SIGN = -1\n")
    with pytest.raises(regard.InputError, match=r"bench_helper.py' has changed since this process imported it"):
        choose_methods(file)
    plugins._loaded.clear()  # as in another process
    sys.modules.pop("bench_helper")
    cells._load_file.cache_clear()
    assert choose_methods(file)[-1].digest != first.digest
