"""Config classes of the tasks have the defaults of the tasks, and train the same model."""

from pathlib import Path

import pytest

import regard
from regard.errors import InputError
from regard.tasks.all_tasks import TASKS, find_task
from regard.training.config import make_config, options_class


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_an_exported_class_with_its_options_and_defaults(task: str) -> None:
    name = f"{find_task(task).__name__}Config"
    config_class = getattr(regard, name)
    assert name in vars(regard)["NAMES"] and config_class is options_class(task)
    assert config_class().run_config() == make_config(task)
    assert {*config_class.flag_names(), "model"} == set(make_config(task).flags())


def test_options_reach_the_part_that_they_belong_to() -> None:
    config = regard.Signal2Config(steps=7, heads=2, max_len=4).run_config()
    assert config == make_config("signal2", {"steps": 7, "heads": 2, "max_len": 4})


def test_options_are_checked() -> None:
    with pytest.raises(InputError, match="steps 0 is out of range"):
        regard.CountingConfig(steps=0)
    with pytest.raises(InputError, match="flag 'patience' is unknown"):
        regard.CountingConfig(patience=3)
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
