"""Runs are loaded consistently while other processes write them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.training.config import RunConfig
from regard.training.run_folder import RunFolder

TINY: dict[str, Any] = {"steps": 2, "batchsize": 2, "progress": False}


@pytest.mark.parametrize("hidden", [4, 8])
def test_run_replaced_while_reading_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: int) -> None:
    regard.train("counting", savepath=tmp_path, hidden=4, **TINY)
    read = RunFolder.read_config

    def replaced_then(self: RunFolder, *, trust_code: bool = False) -> RunConfig:
        found = read(self, trust_code=trust_code)
        monkeypatch.setattr(RunFolder, "read_config", read)
        regard.train("counting", savepath=tmp_path, hidden=hidden, seed=1, overwrite=True, **TINY)
        return found

    monkeypatch.setattr(RunFolder, "read_config", replaced_then)
    found = regard.load("counting", savepath=tmp_path)
    assert found.config.training.seed == 1 and found.config.flags()["hidden"] == hidden


def test_run_in_training_is_locked_for_writers_and_readable(tmp_path: Path) -> None:
    words = ["train", "counting", "--steps", "1000000", "--multihead", "--savepath", str(tmp_path)]
    with subprocess.Popen([sys.executable, "-m", "regard", *words], stderr=subprocess.PIPE) as other:
        try:
            while not (tmp_path / "counting" / "metrics.jsonl").exists():
                assert other.poll() is None
            refusal = f"is being written by process {other.pid} on "
            with pytest.raises(regard.InputError, match=refusal):
                regard.train("counting", savepath=tmp_path, resume=True, progress=False)
            with pytest.raises(regard.InputError, match=refusal):
                regard.train("counting", savepath=tmp_path, overwrite=True, **TINY)
            run = regard.load("counting", savepath=tmp_path)
            with pytest.raises(regard.InputError, match=refusal):
                regard.prune(run, output=run.folder, overwrite=True)
            assert run.test(samples=5).samples == 5
        finally:
            other.kill()
