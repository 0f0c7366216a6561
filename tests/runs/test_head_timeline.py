"""`regard.timeline` and `regard timeline` on trained runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard

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
    other = regard.train("induction", **(flags | {"hidden": 12}), seed=2, savepath=tmp_path / "a").folder
    none = regard.train("induction", **(flags | {"snapshots": 0}), savepath=tmp_path / "b").folder
    task: Any = regard.train("counting", hidden=8, steps=4, snapshots=3, savepath=tmp_path, progress=False)
    for runs, message in (
        ([], "there are no runs"),
        ([none], "has no snapshots: train it with --snapshots 50"),
        ([folders[0], task.folder], "is a run of induction, .* of counting: give runs of one task"),
        ([folders[0], other], "hidden is 8 in .* and 12 in .*: give runs that differ only in their seed"),
        ([folders[0], folders[0]], "seed 0 is that of .*: give each seed once"),
        ([tmp_path / "missing"], "no run"),
    ):
        with pytest.raises(regard.InputError, match=message):
            regard.timeline(runs, progress=False)
    with pytest.raises(regard.InputError, match="threshold 1.5 is out of range"):
        regard.timeline(folders, threshold=1.5)


def test_the_command_prints_and_writes(
    command: Callable[..., tuple[int, str, str]], folders: list[Path], tmp_path: Path
) -> None:
    page, data = tmp_path / "page.html", tmp_path / "timeline.json"
    status, out, err = command("timeline", *folders, "--samples", "20", "--html", page, "--json", data)
    assert status == 0, err
    assert "Order over seeds" in out and "Roles of the heads of induction, 2 seeds, 4 snapshots" in out
    assert "4 of 8 done" in err and page.exists()
    assert json.loads(data.read_text())["samples"] == 20
    status, out, _ = command("timeline", "--help")
    assert status == 0 and "--threshold" in out and "RUN..." in out
    assert command("timeline")[0] == 2
