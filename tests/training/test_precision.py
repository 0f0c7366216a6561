"""Measured choices are stored in the run, and a resumed run keeps them."""

import json
from pathlib import Path
from typing import Any

import pytest

import regard
from regard import machine
from regard.training import precision
from regard.training.trainer import Learner
from tests.german import write

SIZES: dict[str, Any] = {
    "hidden": 16,
    "heads": 2,
    "inner": 16,
    "enc_layers": 1,
    "dec_layers": 1,
    "progress": False,
}


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
    monkeypatch.setattr(precision, "product_type", lambda *_: getattr(regard.training.precision.torch, first))
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
    monkeypatch.setattr(precision, "product_type", lambda *_: getattr(regard.training.precision.torch, other))
    regard.train("translation", **{**flags, "progress": True, "resume": True})
    assert f"Precision: {first}, as at the start of the run" in capsys.readouterr().err
    assert _losses(tmp_path / "resumed/translation") == _losses(tmp_path / "whole/translation")
