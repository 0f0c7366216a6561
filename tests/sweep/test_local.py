"""The local backend: grouping of training jobs."""

from pathlib import Path

import pytest

from regard.sweep import local
from regard.sweep.job import Job, make_job, measure_together
from regard.training import make_config


def _job(folder: Path, task: str, **flags: object) -> Job:
    return make_job(make_config(task, flags), folder)


def test_a_gpu_trains_seeds_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is simulated only for the grouping, and training runs on the CPU."""
    jobs = [
        _job(tmp_path / f"{task}-{score}-{seed}", task, score=score, seed=seed)
        for task in ("counting", "reverse")
        for score in ("dot", "additive")
        for seed in range(3)
    ]
    assert local._group_jobs(jobs) == [[job] for job in jobs]
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    groups = local._group_jobs(jobs)
    assert sorted(map(len, groups)) == [1] * 9 + [3] and groups[-1] == jobs[:3]
    monkeypatch.undo()
    measured = measure_together(
        [_job(tmp_path / str(seed), "counting", steps=5, hidden=4, seed=seed) for seed in range(2)]
    )
    assert [seed.parameters for seed in measured] == [95, 95] and measured[0].loss != measured[1].loss
