"""Freezing of model parts."""

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.attention.names import short_name
from regard.errors import InputError
from regard.models.base import TaskModel
from regard.tasks.all_tasks import find_task
from regard.training.adam import trained_parameters
from regard.training.building import build_model, freeze, parts_of, start
from regard.training.checkpoint import Checkpoint
from regard.training.config import make_config
from tests.german import write

FEW: dict[str, Any] = {
    "vocab_size": 60,
    "hidden": 16,
    "heads": 2,
    "inner": 16,
    "enc_layers": 2,
    "dec_layers": 2,
    "tokens": 400,
    "steps": 6,
    "progress": False,
}


def model(task: str, **flags: object) -> TaskModel:
    config = make_config(task, flags)
    return build_model(config, find_task(task).restore(config.task, {}))


def test_parts_have_the_names_of_layers() -> None:
    small = model("reverse", model="transformer", enc_layers=2, dec_layers=1, positions="learned")
    assert parts_of(small) == [
        *("embedding", "positions"),
        *("encoder", "encoder.0", "encoder.1"),
        *("decoder", "decoder.0"),
    ]
    assert parts_of(model("signal2", enc_layers=1)) == [
        *("queries", "embedding", "positions", "encoder", "encoder.0", "cross", "cross_norm", "output")
    ]
    assert parts_of(model("reverse")) == ["embedding", "encoder", "decoder", "output"]


@pytest.mark.parametrize(
    ("parts", "frozen"),
    [
        (("embedding",), ("source_embedding.", "target_embedding.")),
        (("target_embedding",), ("target_embedding.",)),
        (("encoder.1",), ("encoder.1.",)),
        (("encoder.1", "decoder.0.cross"), ("encoder.1.", "decoder.0.cross.")),
        (("encoder.norm.weight",), ("encoder.norm.weight",)),
    ],
)
def test_part_contains_its_inner_parts(parts: tuple[str, ...], frozen: tuple[str, ...]) -> None:
    small = model("reverse", model="transformer", enc_layers=12, dec_layers=2)
    freeze(small, parts)
    for name, parameter in small.named_parameters():
        assert parameter.requires_grad is not short_name(name).startswith(frozen), name


@pytest.mark.parametrize("part", ["encode", "encoder.2", "encoder.", "", ".", "cross", "layers"])
def test_unknown_part_is_refused_with_the_known_ones(part: str) -> None:
    small = model("reverse", model="transformer", enc_layers=2, dec_layers=1)
    there = "embedding, encoder, encoder.0, encoder.1, decoder, decoder.0, or a part of these parts"
    with pytest.raises(InputError) as raised:
        freeze(small, [part])
    assert str(raised.value) == f"freeze {part!r}: the model has no part with this name; choose {there}"


@pytest.mark.parametrize(
    ("kind", "parts", "left"),
    [
        ("transformer", ("embedding", "encoder"), ("decoder.",)),
        ("transformer", ("encoder.0", "decoder"), ("target_embedding.", "encoder.1.", "encoder.norm.")),
        ("recurrent", ("embedding", "decoder.cross"), ("encoder.", "decoder.", "output.")),
    ],
)
@pytest.mark.parametrize("average", [0.0, 0.95])
def test_only_unfrozen_parameters_change(
    tmp_path: Path, kind: str, parts: tuple[str, ...], left: tuple[str, ...], average: float
) -> None:
    few = {name: value for name, value in FEW.items() if kind == "transformer" or name not in NOT_RECURRENT}
    flags: dict[str, Any] = {**few, **write(tmp_path), "model": kind, "average": average, "freeze": parts}
    run = regard.train("translation", **flags, savepath=tmp_path)
    before = dict(start(run.config, run.task).model.named_parameters())
    after, moments = dict(run.model.named_parameters()), Checkpoint.load(run.folder, training={}).training or {}
    trained = set(trained_parameters(start(run.config, run.task).model))
    assert {short_name(name).startswith(left) for name in trained} == {True} and 0 < len(trained) < len(after)
    for name, parameter in after.items():
        moved = not torch.equal(parameter.cpu(), before[name].cpu())
        assert moved == (name in trained), name
        assert (f"adam/{name}:mean" in moments) == (name in trained)
        assert (f"average/{name}" in moments) == (name in trained and average > 0)
        assert f"model/{name}" in moments


NOT_RECURRENT = ("heads", "inner", "dec_layers")


def test_freezing_the_whole_model_is_refused() -> None:
    small = model("reverse")
    with pytest.raises(InputError, match="freeze embedding encoder decoder output freezes the whole model"):
        freeze(small, ("embedding", "encoder", "decoder", "output"))


def test_freezing_works_for_every_model(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"steps": 3, "hidden": 8, "progress": False}
    run = regard.train("signal2", **flags, enc_layers=1, freeze=["embedding", "encoder"], savepath=tmp_path)
    before = start(run.config, run.task).model.state_dict()
    for name, value in run.model.state_dict().items():
        assert torch.equal(value, before[name]) == name.startswith(("embedding.", "encoder.")), name
