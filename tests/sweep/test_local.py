"""Comparing on this machine: which trainings go together."""

from pathlib import Path

import pytest

from regard.sweep import here
from regard.sweep.job import Job, make_job, measure_together
from regard.training import make_config


def _job(folder: Path, task: str, **flags: object) -> Job:
    return make_job(make_config(task, flags), folder)


def test_on_a_gpu_seeds_are_trained_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here as if there were one, for which jobs go together; the training itself asks again, and stays here."""
    jobs = [
        _job(tmp_path / f"{task}-{score}-{seed}", task, score=score, seed=seed)
        for task in ("counting", "reverse")
        for score in ("dot", "additive")
        for seed in range(3)
    ]
    assert here._groups(jobs) == [[job] for job in jobs]
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    groups = here._groups(jobs)
    assert sorted(map(len, groups)) == [1] * 9 + [3] and groups[-1] == jobs[:3]
    monkeypatch.undo()
    found = measure_together(
        [_job(tmp_path / str(seed), "counting", steps=5, hidden=4, seed=seed) for seed in range(2)]
    )
    assert [each.parameters for each in found] == [95, 95] and found[0].loss != found[1].loss
