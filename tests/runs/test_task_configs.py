"""Config classes of the tasks have the defaults of the tasks, and train the same model."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import InputError
from regard.runs import task_configs
from regard.tasks.all_tasks import TASKS, find_task
from regard.training.config import make_config

CLASSES: dict[str, Any] = {
    config_class.on: config_class
    for config_class in vars(task_configs).values()
    if isinstance(config_class, type)
    and issubclass(config_class, task_configs.FlatConfig)
    and hasattr(config_class, "on")
}


def test_every_task_has_an_exported_class() -> None:
    assert set(CLASSES) == set(TASKS)
    for task, config_class in CLASSES.items():
        name = f"{find_task(task).__name__}Config"
        assert getattr(regard, name) is config_class and name in vars(regard)["__all__"]


@pytest.mark.parametrize("task", TASKS)
def test_a_class_has_the_options_and_defaults_of_its_task(task: str) -> None:
    expected = make_config(task)
    assert CLASSES[task]().run_config() == expected
    names = {option.name for option in dataclasses.fields(CLASSES[task])}
    assert names | {"model"} == set(expected.flags())


def test_options_reach_the_part_that_they_belong_to() -> None:
    config = regard.Signal2Config(steps=7, heads=2, max_len=4).run_config()
    assert config == make_config("signal2", {"steps": 7, "heads": 2, "max_len": 4})


def test_options_are_checked() -> None:
    with pytest.raises(InputError, match="steps 0 is out of range"):
        regard.CountingConfig(steps=0)
    with pytest.raises(TypeError, match="step"):
        regard.CountingConfig(step=3)  # type: ignore[call-arg]


def test_training_from_a_class_is_training_by_name(tmp_path: Path) -> None:
    config = regard.CountingConfig(steps=3, batchsize=4, hidden=8)
    run = regard.train(config, savepath=tmp_path / "class", progress=False)
    named = regard.train("counting", steps=3, batchsize=4, hidden=8, savepath=tmp_path / "name", progress=False)
    assert run.config == named.config and run.config.model.hidden == 8
    for file in ("config.json", "model.safetensors", "metrics.jsonl"):
        assert (run.folder / file).read_bytes() == (named.folder / file).read_bytes()
    with pytest.raises(InputError, match="a config is given: leave out steps"):
        regard.train(config, steps=3, savepath=tmp_path / "x")  # type: ignore[call-overload]
