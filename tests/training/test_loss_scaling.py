"""Training in float16 with a scaled loss."""

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.errors import InputError
from regard.streams import make_generator
from regard.training.adam import Adam, make_optimizer
from regard.training.checkpoint import Checkpoint, TrainingState
from regard.training.settings import TrainingConfig
from tests.conftest import TINY
from tests.german import write

FLAGS: dict[str, Any] = {**TINY, "hidden": 16, "inner": 16, "validate_every": 4, "progress": False}


def optimizer() -> tuple[torch.nn.Linear, Adam]:
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 2)
    return layer, make_optimizer(layer, TrainingConfig().optimization)


def test_a_scaled_step_equals_a_plain_step() -> None:
    inputs = torch.ones(4, 3)
    (plain, own), (scaled, adam) = optimizer(), optimizer()
    scaler = torch.amp.GradScaler("cpu")
    plain(inputs).square().sum().backward()
    own.step(0.1)
    scaler.scale(scaled(inputs).square().sum()).backward()
    passed: Any = adam
    scaler.unscale_(passed)
    scaler.step(passed, 0.1)
    scaler.update()
    assert torch.equal(plain.weight, scaled.weight)  # the scale is a power of two


def test_a_step_with_a_gradient_that_is_not_finite_is_left_out() -> None:
    layer, adam = optimizer()
    before, scaler = layer.weight.detach().clone(), torch.amp.GradScaler("cpu")
    passed: Any = adam
    scaler.scale(layer(torch.full((1, 3), float("inf"))).sum()).backward()
    scaler.unscale_(passed)
    scaler.step(passed, 0.1)
    scaler.update()
    assert torch.equal(layer.weight, before) and scaler.get_scale() == 2.0**15
    assert adam.moments["weight"]["step"].item() == 0


def train(folder: Path, **flags: Any) -> regard.AnyRun:
    return regard.train("translation", **write(folder), **{**FLAGS, **flags}, savepath=folder)


def test_float16_learns_like_float32_and_resumes_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("half", "full", "cut"):
        (tmp_path / name).mkdir()
    half = train(tmp_path / "half", precision="float16", steps=12)
    full = train(tmp_path / "full", precision="float32", steps=12)
    assert half.metrics[-1]["valid_loss"] == pytest.approx(full.metrics[-1]["valid_loss"], rel=0.01)
    assert half.metrics[-1]["valid_loss"] < half.metrics[0]["valid_loss"]
    save = TrainingState.save

    def stop(state: TrainingState, *args: Any, **options: Any) -> None:
        save(state, *args, **options)
        if state.step == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TrainingState, "save", stop)
        train(tmp_path / "cut", precision="float16", steps=12)
    cut = regard.train("translation", resume=True, savepath=tmp_path / "cut", progress=False)
    for name, value in half.model.state_dict().items():
        assert torch.equal(value, cut.model.state_dict()[name])
    state = Checkpoint.load(cut.folder, training={}).training
    assert state is not None and state["scaler/scale"].item() >= 1
    assert state["scaler/finite_steps"].item() == 12


def test_other_precisions_store_no_scale(tmp_path: Path) -> None:
    state = Checkpoint.load(train(tmp_path, steps=1).folder, training={}).training
    assert state is not None and not any(name.startswith("scaler") for name in state)


def test_float16_is_refused_for_sharded_parameters() -> None:
    with pytest.raises(InputError, match="precision float16 does not work with sharded: choose bfloat16"):
        TrainingConfig(precision="float16", sharded=True)


def test_cross_entropy_is_computed_in_float32() -> None:
    from regard.training.objective import cross_entropy

    generator = make_generator(0, "states")
    states, weight = torch.randn(1, 50, 8, generator=generator) * 10, torch.randn(3000, 8, generator=generator)
    target = torch.randint(3000, (50,), generator=generator)
    exact, _ = cross_entropy(states, (weight, None), target, 0.1)
    with torch.autocast("cpu", torch.float16):
        half, _ = cross_entropy(states, (weight, None), target, 0.1)
    assert half.item() == exact.item()
