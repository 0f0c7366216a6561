"""All flags of all commands, as the commands declare them.

Each command is called with each possible subject until it calls the parser; the dataclass that the parser
receives is stored. New commands, flags, tasks and models are therefore included automatically.
"""

import contextlib
import dataclasses
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints
from unittest import mock

import tyro

from regard.cli import COMMANDS, main
from regard.data.datasets import DATA_SETS
from regard.interpret.figures import FIGURE_KINDS
from regard.tasks.all_tasks import TASKS, find_task
from regard.training.config import models_for

VARIED = ("--vary", "lr=0.1,0.2")


class SeenError(BaseException):
    """Raised when the parser is called, to end the command."""


@dataclass(frozen=True)
class Flag:
    """A flag, its type and its default."""

    name: str
    hint: Any
    default: Any


@dataclass(frozen=True)
class Form:
    """A command and its subject, with all flags."""

    command: str
    words: tuple[str, ...]
    """Arguments after the command: nothing, a task or a run, and the flags that other flags depend on."""
    flags: tuple[Flag, ...]

    def flag(self, name: str) -> Flag | None:
        """Return the flag `name`; None if it does not exist."""
        return next((each for each in self.flags if each.name == name), None)


def forms(runs: Sequence[str]) -> list[Form]:
    """Return every command with every subject; runs are in the working directory of this process."""
    return [form for command in COMMANDS for form in _forms_of(command, runs)]


def _forms_of(command: str, runs: Sequence[str]) -> Iterator[Form]:
    alone = _flags_of(command, ())
    if alone is not None:
        yield Form(command, (), alone)
        return
    for words in _subjects(command, runs):
        flags = _flags_of(command, words)
        if flags is not None:
            yield Form(command, words, flags)


def _subjects(command: str, runs: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the subjects of a command; the subjects of commands that are not listed here are runs."""
    if command in ("train", "compare"):
        for task in TASKS:
            for model in models_for(find_task(task)):
                yield task, "--model", model
    elif command == "plot":
        yield from ((kind, name) for kind in FIGURE_KINDS for name in runs)
    else:
        yield from ((name,) for name in (DATA_SETS if command == "data" else runs))


def _flags_of(command: str, words: tuple[str, ...]) -> tuple[Flag, ...] | None:
    """Return the flags of a command; None if the command does not accept this subject."""
    # Training and comparisons have separate flags, followed by the flags of the model and the task.
    parsers, extra = 1 + (command in ("train", "compare")), VARIED if command == "compare" else ()
    seen: list[Any] = []
    real = tyro.cli

    def note(kind: Any, **others: Any) -> Any:
        seen.append(others["default"])
        if len(seen) == parsers:
            raise SeenError
        return real(kind, **others)

    with (
        mock.patch.object(tyro, "cli", note),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(SeenError, SystemExit),
    ):
        main([command, *words, *extra])
    if len(seen) < parsers:
        return None
    flags = {flag.name: flag for default in seen for flag in _flat(default)}
    for flag in _flat(seen[0]):
        flags[flag.name] = flag
    return tuple(flags.values())


def _flat(default: Any) -> Iterator[Flag]:
    """Yield the flags of a dataclass, including nested dataclasses."""
    hints = get_type_hints(type(default))
    for each in dataclasses.fields(default):
        value = getattr(default, each.name)
        if dataclasses.is_dataclass(value):
            yield from _flat(value)
        else:
            yield Flag(each.name, hints[each.name], value)
