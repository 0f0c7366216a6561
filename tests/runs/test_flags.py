"""The types of flags, held against the dataclasses whose fields they are."""

import dataclasses
import typing
from pathlib import Path
from typing import Any

import pytest

from regard.runs import flags
from regard.runs.flags import AnyFlags, Numbers, Paths
from regard.tasks import TASKS
from regard.training import make_config, models_for
from regard.training.config import RunConfig

OF: dict[tuple[str, str], Any] = {
    ("counting", "query"): flags.CountQueryFlags,
    ("counting", "pooling"): flags.CountPoolingFlags,
    ("recall", "query"): flags.RecallQueryFlags,
    ("recall", "pooling"): flags.RecallPoolingFlags,
    ("sort", "recurrent"): flags.ReorderRecurrentFlags,
    ("sort", "transformer"): flags.ReorderTransformerFlags,
    ("dates", "recurrent"): flags.DatesRecurrentFlags,
    ("dates", "transformer"): flags.DatesTransformerFlags,
    ("translation", "recurrent"): flags.TranslationRecurrentFlags,
    ("translation", "transformer"): flags.TranslationFlags,
}


def _fields(config: RunConfig) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in config.parts().values():
        hints = typing.get_type_hints(type(part))
        found |= {each.name: hints[each.name] for each in dataclasses.fields(part)}
    return found


@pytest.mark.parametrize("choice", OF, ids="-".join)
def test_flags_have_the_names_and_types_of_the_fields(choice: tuple[str, str]) -> None:
    expected = _fields(make_config(choice[0], {"model": choice[1]}))
    found = typing.get_type_hints(OF[choice])
    assert all(found.pop(name) == hint for name, hint in typing.get_type_hints(flags.WhereFlags).items())
    if choice[1] == "transformer" and choice[0] == "translation":
        assert found.pop("preset")
    assert set(found) == set(expected)
    for name, hint in expected.items():
        if typing.get_origin(hint) is tuple:
            hint = Numbers if float in typing.get_args(hint) else Paths
        assert found[name] == hint or found[name] == hint | None, name


def test_any_flag_of_any_task_is_known() -> None:
    every = {"model", "preset"}
    for task in TASKS:
        for kind in models_for(make_config(task).task_class):
            every |= set(_fields(make_config(task, {"model": kind})))
    assert set(typing.get_type_hints(AnyFlags)) == every
    assert Path in typing.get_args(Paths)
