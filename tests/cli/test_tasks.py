"""`regard tasks`."""

from collections.abc import Callable

import pytest

from regard.tasks.all_tasks import list_tasks


def test_lists_every_task_with_an_example(
    command: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "480")
    status, out, _ = command("tasks")
    assert status == 0
    for example in list_tasks():
        assert example.task in out and f"'{example.input}'" in out


def test_unknown_commands_are_refused(command: Callable[..., tuple[int, str, str]]) -> None:
    status, _, err = command("trian")
    assert status == 2 and err.startswith("regard: command 'trian' is unknown: ") and err.count("\n") == 1
    assert "did you mean train?" in err
