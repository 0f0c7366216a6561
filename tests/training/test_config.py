"""Configuration: defaults, flags, storage."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from regard.errors import InputError
from regard.tasks.all_tasks import TASKS, find_task
from regard.training.config import make_config as make_typed_config, models_for
from regard.training.run_folder import config_from_json


def make_config(*given: Any) -> Any:
    """Return a config whose parts have type Any."""
    return make_typed_config(*given)


def test_tasks_have_the_defaults_of_their_documents() -> None:
    assert make_config("counting").training.steps == 2000
    assert make_config("difference").training.steps == 1000
    signal, signal2 = make_config("signal"), make_config("signal2")
    assert (signal.training.steps, signal.model.enc_layers, signal.model.pos_enc) == (2000, 1, False)
    assert (signal2.model.pos_enc, signal2.model.multihead, signal2.model.heads) == (True, True, 4)
    for task in ("counting", "difference", "signal", "signal2"):
        config = make_config(task)
        assert (config.training.batchsize, config.model.hidden, config.task.max_len) == (100, 64, 10)
        assert (config.task.vocab_size, config.model.self_att) == (3, False)


@pytest.mark.parametrize(
    ("flags", "lr"),
    [
        ({}, 0.05),
        ({"enc_layers": 1}, 0.005),
        ({"recipe": "seed"}, 0.01),
        ({"recipe": "seed", "enc_layers": 2}, 0.001),
        ({"lr": 0.3}, 0.3),
        ({"lr": 1}, 1),
    ],
)
def test_recipe_sets_the_default_rate(flags: dict[str, Any], lr: float) -> None:
    assert make_config("counting", flags).resolved().training.lr == lr


@given(
    steps=st.integers(1, 10**9),
    lr=st.none() | st.floats(1e-9, 1e9),
    choice=st.sampled_from([(task, model) for task in TASKS for model in models_for(find_task(task))]),
)
def test_config_survives_json(steps: int, lr: float | None, choice: tuple[str, str]) -> None:
    config = make_config(choice[0], {"steps": steps, "lr": lr, "model": choice[1]})
    assert config_from_json(json.loads(json.dumps(config.json()))) == config


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"hiden": 3}, "flag 'hiden' is unknown: did you mean hidden?"),
        ({"steps": "many"}, "steps 'many' is of type str: give int"),
        ({"steps": True}, "steps True is of type bool: give int"),
        ({"pos_enc": 1}, "pos_enc 1 is of type int: give bool"),
        ({"lr": "fast"}, "lr 'fast' is of type str: give None or float"),
        ({"steps": 0}, "steps 0 is out of range: choose from 1 to 1000000000"),
        ({"batchsize": 0}, "batchsize 0 is out of range: choose from 1 to 1000000"),
        ({"seed": -1}, "seed -1 is out of range: choose from 0 to 4294967295"),
        ({"lr": 0.0}, "lr 0.0 is out of range: choose a finite number above 0"),
        ({"lr": float("nan")}, "lr nan is out of range: choose a finite number above 0"),
        ({"recipe": "secret"}, "recipe 'secret' is unknown: choose regard, seed; did you mean seed?"),
    ],
)
def test_bad_flags_are_refused(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        make_config("counting", flags)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    "spoil",
    [
        lambda stored: stored.pop("options"),
        lambda stored: stored.update(options=3),
        lambda stored: stored.update(extra=1),
        lambda stored: stored["options"].pop("heads"),
        lambda stored: stored["options"].update(wings=2),
        lambda stored: stored["options"].update(heads="4"),
        lambda stored: stored.update(options=[]),
        lambda stored: stored.update(kept_heads=3),
        lambda stored: stored.update(kind=[]),
    ],
)
def test_wrong_stored_config_is_refused(spoil: Any) -> None:
    stored = make_config("counting").json()
    spoil(stored)
    with pytest.raises(InputError):
        config_from_json(stored)


def test_a_mechanism_replaces_the_positions_of_a_preset() -> None:
    assert make_config("translation", {"attention": "sink"}).model.positions == "rotary"
    for flags in ({"attention": "alibi,sink"}, {"attention": "alibi", "positions": "none"}):
        assert make_config("translation", flags).model.embedding_positions == "bias"
    assert make_config("translation", {"attention": "learned"}).model.embedding_positions == "learned"
    with pytest.raises(
        InputError, match="--positions rotary and attention part alibi are both .* or --positions none"
    ):
        make_config("translation", {"attention": "alibi", "positions": "rotary"})
