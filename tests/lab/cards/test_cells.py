"""Cells of cards on clusters, and `regard card`: tables, files, resuming, a user's own mechanism."""

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regard.cli import main
from regard.sweep.backends import Ray
from regard_lab.cards import cells
from regard_lab.cards.cells import CardCell, CardJob, ProbeResult, Results, measure_cells

PAIRS = [("softmax", "copy"), ("sink", "copy")]
SMALL: dict[str, Any] = {"steps": 2}


def without_times(results: Results) -> dict[tuple[str, str], list[ProbeResult]]:
    return {pair: [replace(result, seconds=0.0) for result in seeds] for pair, seeds in results.items()}


class Cluster:
    """A backend that pickles each job, as clusters do."""

    def __init__(self) -> None:
        self.jobs: list[CardJob] = []

    def run(self, jobs: Sequence[Any], tell: Callable[[str], None]) -> Iterator[tuple[Any, Any]]:
        for job in jobs:
            there = pickle.loads(pickle.dumps(job.absolute()))
            self.jobs.append(there)
            yield job, there.measure(trust_code=True)


def test_a_cluster_job_has_all_seeds_of_a_mechanism_and_a_probe(
    small_probes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster = Cluster()
    results = measure_cells(PAIRS, 3, Path("cards"), on=cluster, **SMALL)
    assert [(job.label, len(job.cells)) for job in cluster.jobs] == [("softmax, copy", 3), ("sink, copy", 3)]
    assert {job.folder.parent.parent for job in cluster.jobs} == {tmp_path / "cards"}
    assert without_times(results) == without_times(measure_cells(PAIRS, 3, Path("here"), **SMALL))


def test_a_job_measures_only_missing_seeds(small_probes: None, tmp_path: Path) -> None:
    measure_cells(PAIRS[:1], 1, tmp_path, **SMALL)
    cluster = Cluster()
    measure_cells(PAIRS[:1], 3, tmp_path, on=cluster, **SMALL)
    assert [cell.seed for cell in cluster.jobs[0].cells] == [1, 2]
    job = CardJob(tuple(CardCell("softmax", "copy", seed, tmp_path, 2) for seed in range(4)))
    assert job.saved_state == "seed 3 of 4" and job.stored == {"model": {"attention": "softmax"}}


@pytest.mark.slow
def test_ray_measures_the_same(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        results = measure_cells(PAIRS, 2, tmp_path / "ray", on=Ray(), **SMALL)
    finally:
        ray.shutdown()
    assert without_times(results) == without_times(measure_cells(PAIRS, 2, tmp_path / "here", **SMALL))


def test_a_cell_of_changed_code_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "card_helper.py").write_text("")
    (tmp_path / "card_part.py").write_text("import card_helper\n")
    cell = CardCell("card_part:Part", "copy", 0, tmp_path)
    before = cell.path
    assert cell.path == before != CardCell("sink", "copy", 0, tmp_path).path
    (tmp_path / "card_helper.py").write_text("# changed\n")
    assert cell.path != before


OWN = """
from regard.attention.normalizers import Softmax


class Halved(Softmax):
    normalized = False

    def forward(self, scores, mask):
        return super().forward(scores, mask) / 2
"""


def test_card_of_own_mechanism_resumes(
    small_probes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("halved.py").write_text(OWN)
    arguments = ["card", "halved:Halved", "--seeds", "2", "--steps", "2", "--savepath", "cards"]
    assert main([*arguments, "--json", "first.json"]) == 0
    printed = capsys.readouterr().out
    assert "halved:Halved beside softmax" in printed
    assert "absolute weights" in printed
    stored = sorted(path for path in Path("cards").rglob("*.json") if "seed" in path.name)
    assert len(stored) == 2 * 2 * 9  # mechanisms, seeds, probes

    def fail(*arguments: object, **options: object) -> None:
        raise AssertionError("a stored result is measured again")

    monkeypatch.setattr(cells, "measure_cell", fail)
    assert main([*arguments, "--json", "second.json"]) == 0
    first, second = (Path(f"{name}.json").read_text() for name in ("first", "second"))
    assert first == second
    card = json.loads(first)
    assert card["mechanism"] == "halved:Halved"
    assert not card["normalized"]
    assert [row["test"] for row in card["rows"]][3:6] == ["copy", "copy x2", "copy x4"]
    assert all(0.45 < shares["total"][0] < 0.55 for shares in card["shares"])
    stored[0].write_text("{")
    assert main(arguments) == 2
    assert "delete it" in capsys.readouterr().err


def test_a_new_process_loads_an_own_mechanism(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("halved_too.py").write_text(OWN)
    pair = ("halved_too:Halved", "sort")
    [result] = cells.measure_cells([pair], 1, Path("cards"), steps=2)[pair]
    assert not result.normalized and len(list(Path("cards").rglob("sort-seed-0-*.json"))) == 1
