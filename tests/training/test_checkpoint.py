"""Checkpoints: weights and training state are saved, replaced and loaded with their steps."""

from pathlib import Path

import pytest
import torch

from regard.errors import InputError
from regard.training.checkpoint import Checkpoint
from regard.training.config import make_config
from regard.training.run_folder import RunFolder, create_run
from regard.training.tensor_file import tensor_specs

WEIGHTS = {"weight": torch.arange(6.0).view(2, 3)}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Return a run folder that contains only a config."""
    with create_run(tmp_path / "counting", make_config("counting"), overwrite=False):
        pass
    return RunFolder(tmp_path / "counting")


def test_saved_tensors_are_loaded(folder: RunFolder) -> None:
    state = {"generator": torch.tensor([7])}
    Checkpoint(step=5, weights=WEIGHTS, training=state).save(folder)
    loaded = Checkpoint.load(folder.path, tensor_specs(WEIGHTS), training=tensor_specs(state))
    assert loaded.step == 5 and loaded.weights and loaded.training
    assert torch.equal(loaded.weights["weight"], WEIGHTS["weight"])
    assert torch.equal(loaded.training["generator"], state["generator"])


def test_checkpoint_without_weights_keeps_the_stored_ones(folder: RunFolder) -> None:
    Checkpoint(step=5, weights=WEIGHTS, training={"generator": torch.tensor([7])}).save(folder)
    Checkpoint(step=9, training={"generator": torch.tensor([8])}).save(folder)
    assert Checkpoint.load(folder).step == 5  # steps of the weights
    assert Checkpoint.load(folder, training={}).step == 9
    assert [path.name for path in (folder.path / "trainer").iterdir()] == ["step-9.safetensors"]


def test_snapshots_have_half_precision(folder: RunFolder) -> None:
    Checkpoint(step=3, weights={**WEIGHTS, "count": torch.tensor([1])}).save_weights(folder, "snapshots")
    [path] = folder.snapshots
    snapshot = Checkpoint.load_weights(folder, path)
    assert snapshot.step == 3 and snapshot.weights
    assert snapshot.weights["weight"].dtype == torch.float32 and snapshot.weights["count"].dtype == torch.int64
    assert path.stat().st_size < 24 + 1000 + len(folder.config_text)


def test_other_tensors_and_other_runs_are_refused(folder: RunFolder, tmp_path: Path) -> None:
    Checkpoint(step=5, weights=WEIGHTS).save(folder)
    with pytest.raises(InputError, match="tensor 'bias' is missing"):
        Checkpoint.load(folder, tensor_specs({**WEIGHTS, "bias": torch.zeros(3)}))
    with pytest.raises(InputError, match="is incomplete: its training state is missing"):
        Checkpoint.load(folder, training={})
    with create_run(tmp_path / "other", make_config("counting", {"steps": 7}), overwrite=False):
        pass
    (tmp_path / "other" / "model.safetensors").write_bytes(folder.model_file.read_bytes())
    with pytest.raises(InputError, match="steps is 7 in config.json, 2000 in model.safetensors"):
        Checkpoint.load(tmp_path / "other")
