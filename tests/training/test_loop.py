"""Training loop: exact resumption, reproducibility, interruption."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.training import trainer
from regard.training.checkpoint import Checkpoint
from regard.training.run_folder import RunFolder

FLAGS: dict[str, Any] = {"hidden": 8, "heads": 2, "steps": 60, "batchsize": 7, "progress": False}


def files(run: regard.Run) -> dict[str, bytes]:
    return {str(path.relative_to(run.folder)): path.read_bytes() for path in run.folder.rglob("*.*")}


def test_run_depends_on_the_seed_only(tmp_path: Path) -> None:
    runs = [
        regard.train("signal2", **FLAGS, seed=seed, savepath=tmp_path / name)
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert files(runs[0]) == files(runs[1])
    assert runs[0].metrics != runs[2].metrics


def test_training_keeps_the_global_random_state(tmp_path: Path) -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    regard.train("counting", steps=2, savepath=tmp_path, progress=False)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("recipe", ["regard", "seed"])
@pytest.mark.parametrize("stop_at", [1, 10, 33])
def test_resumed_training_equals_uninterrupted_bit_for_bit(
    tmp_path: Path, interrupt_at: Callable[..., None], recipe: str, stop_at: int
) -> None:
    flags = {**FLAGS, "recipe": recipe, "vary_len": True}
    whole = regard.train("signal2", **flags, savepath=tmp_path / "whole")
    interrupt_at(stop_at, "exact")
    with pytest.raises(KeyboardInterrupt):
        regard.train("signal2", **flags, savepath=tmp_path / "parts")
    step = Checkpoint.load(tmp_path / "parts" / "signal2").step
    assert step == stop_at
    parts = regard.train("signal2", resume=True, progress=False, savepath=tmp_path / "parts")
    assert files(parts) == files(whole)


def test_killed_process_resumes_at_its_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics after the last checkpoint remain after a crash, and the resumed run writes them again."""
    whole = regard.train("signal2", **FLAGS, savepath=tmp_path / "whole")
    monkeypatch.setattr(trainer, "CHECKPOINT_EVERY", 20)
    appended = RunFolder.append_metrics

    def dying(self: RunFolder, metrics: dict[str, float]) -> None:
        appended(self, metrics)
        if metrics["step"] == 50:
            raise SystemExit(137)

    monkeypatch.setattr(RunFolder, "append_metrics", dying)
    with pytest.raises(SystemExit):
        regard.train("signal2", **FLAGS, savepath=tmp_path / "parts")
    monkeypatch.undo()
    folder = RunFolder(tmp_path / "parts" / "signal2")
    assert Checkpoint.load(folder).step == 40 and folder.read_metrics()[-1]["step"] == 50
    parts = regard.train("signal2", resume=True, progress=False, savepath=tmp_path / "parts")
    assert files(parts) == files(whole)


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    run = regard.train("signal2", **FLAGS, savepath=tmp_path)
    before = files(run)
    assert files(regard.train("signal2", resume=True, progress=False, savepath=tmp_path)) == before


def test_nan_loss_stops_training_and_keeps_the_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(
        regard.InputError, match=r"loss is (nan|inf) at step \d+, with a learning rate of .*: lower --lr"
    ):
        regard.train("signal2", **{**FLAGS, "lr": 1e30}, savepath=tmp_path)
    kept = regard.load("signal2", savepath=tmp_path)
    assert all(parameter.isfinite().all() for parameter in kept.model.parameters())


def test_training_works_outside_the_main_thread(tmp_path: Path) -> None:
    runs: list[regard.Run] = []
    thread = threading.Thread(
        target=lambda: runs.append(regard.train("counting", steps=2, savepath=tmp_path, progress=False))
    )
    thread.start()
    thread.join()
    assert runs[0].step == 2


def test_signal_handlers_are_restored(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    regard.train("counting", steps=2, savepath=tmp_path, progress=False)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_metrics_file(tmp_path: Path) -> None:
    run = regard.train("counting", steps=25, savepath=tmp_path, progress=False)
    assert [each["step"] for each in run.metrics] == [10, 20, 25]
    assert all(each["loss"] > 0 and 0 <= each["exact_match"] <= 1 for each in run.metrics)
    assert run.metrics[0]["loss"] > run.metrics[-1]["loss"]
