"""Regard's exceptions can be sent to other processes."""

import pickle
from pathlib import Path

import pytest

from regard.errors import EditedError, InputError, MachineError, RegardError
from regard.io import BusyError
from regard.plugins import PluginError

ERRORS = [
    InputError("a"),
    MachineError("a"),
    PluginError("a"),
    EditedError("a", "b"),
    BusyError(Path("a"), "process 7"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_can_be_sent_to_another_process(error: RegardError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == str(error) and vars(copy) == vars(error)
