"""Training loop: exact resumption, reproducibility, interruption."""

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard import machine
from regard.errors import InputError
from regard.streams import make_generator
from regard.training import trainer
from regard.training.checkpoint import Adam, Checkpoint, make_optimizer
from regard.training.config import TrainingConfig
from regard.training.run_folder import RunFolder
from regard.training.trainer import Learner
from tests.conftest import TINY, files
from tests.german import write
from tests.sweep.cluster import LostError, lose_at

FLAGS: dict[str, Any] = {"hidden": 8, "heads": 2, "steps": 60, "batchsize": 7, "progress": False}


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
    check_resumed: Callable[..., tuple[regard.AnyRun, int]], recipe: str, stop_at: int
) -> None:
    _, saved = check_resumed("signal2", stop_at, "exact", **FLAGS, recipe=recipe, vary_len=True)
    assert saved == stop_at


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


SIZES: dict[str, Any] = {"hidden": 16, "heads": 2, "inner": 16, "enc_layers": 1, "dec_layers": 1, "progress": False}


def _losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_resumed_run_keeps_the_library_of_its_products(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another choice of the machine in the meantime would change the last digits of the losses."""
    used, learn = list[str](), Learner.learn

    def noting(self: Learner, lr: float) -> Any:
        used.append(machine._CHOICES["float32-products"])
        return learn(self, lr)

    monkeypatch.setattr(Learner, "learn", noting)
    monkeypatch.setattr(machine, "_CHOICES", {"float32-products": "oneDNN"})
    run = regard.train("counting", steps=2, hidden=4, savepath=tmp_path, progress=False)
    assert run.config.measured["float32-products"] == "oneDNN"
    monkeypatch.setattr(machine, "_CHOICES", {"float32-products": "MKL"})
    regard.train("counting", steps=4, hidden=4, savepath=tmp_path, progress=False, resume=True)
    assert used == ["oneDNN"] * 4
    assert machine._CHOICES == {"float32-products": "MKL"}


@pytest.mark.parametrize("first", ["bfloat16", "float32"])
def test_a_resumed_run_keeps_its_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = {**write(tmp_path), **SIZES, "precision": "auto", "steps": 20, "savepath": tmp_path / "resumed"}

    def measured_as(dtype: str) -> None:
        """Let the measurement for auto choose a dtype."""
        real = trainer.product_type
        monkeypatch.setattr(
            trainer,
            "product_type",
            lambda name, *_: real(dtype if name == "auto" else name),  # type: ignore[arg-type]
        )

    measured_as(first)
    regard.train("translation", **{**flags, "savepath": tmp_path / "whole"})
    stop = KeyboardInterrupt()

    def stopping(self: Learner, lr: float) -> Any:
        if self.step == 12:
            raise stop
        return learn(self, lr)

    learn = Learner.learn
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "learn", stopping)
        with pytest.raises(KeyboardInterrupt):
            regard.train("translation", **flags)
    other = "float32" if first == "bfloat16" else "bfloat16"
    measured_as(other)
    regard.train("translation", **{**flags, "progress": True, "resume": True})
    assert f"Precision: {first}, as at the start of the run" in capsys.readouterr().err
    assert _losses(tmp_path / "resumed/translation") == _losses(tmp_path / "whole/translation")


TRANSLATION: dict[str, Any] = {**TINY, "hidden": 16, "inner": 16, "validate_every": 4, "progress": False}


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
    return regard.train("translation", **write(folder), **{**TRANSLATION, **flags}, savepath=folder)


def test_float16_learns_like_float32_and_resumes_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("half", "full", "cut"):
        (tmp_path / name).mkdir()
    half = train(tmp_path / "half", precision="float16", steps=12)
    full = train(tmp_path / "full", precision="float32", steps=12)
    assert half.metrics[-1]["valid_loss"] == pytest.approx(full.metrics[-1]["valid_loss"], rel=0.01)
    assert half.metrics[-1]["valid_loss"] < half.metrics[0]["valid_loss"]
    with monkeypatch.context() as patch, pytest.raises(LostError):
        lose_at(4, patch)
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


# Signals during training: the first signal is delayed, immediate repeats are ignored, a later signal takes effect.


def test_first_signal_is_delayed_and_a_later_one_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(trainer.time, "monotonic", lambda: now)
    before = signal.getsignal(signal.SIGINT)
    with trainer.delay_signals() as stopped:
        signal.raise_signal(signal.SIGTERM)
        now += trainer.DEBOUNCE / 2
        signal.raise_signal(signal.SIGINT)
        assert stopped == [signal.SIGTERM]
        now += trainer.DEBOUNCE
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_signal_within_the_handler_is_debounced(monkeypatch: pytest.MonkeyPatch) -> None:
    # Python can run a handler inside another handler. The second signal arrives while the first handler reads
    # the clock.
    clock = trainer.time.monotonic
    coming = [signal.SIGINT]

    def monotonic() -> float:
        while coming:
            signal.raise_signal(coming.pop())
        return clock()

    monkeypatch.setattr(trainer.time, "monotonic", monotonic)
    with trainer.delay_signals() as stopped:
        signal.raise_signal(signal.SIGTERM)
        assert stopped == [signal.SIGTERM]
    assert not coming
