"""Flags of a training that are given to another command: they can only agree with the run's own."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.cli.parsing import take_flag, take_flags
from regard.errors import InputError
from regard.runs import SAVEPATH
from regard.training import find_run


def contradiction(folder: str, name: str, trained: Mapping[str, Any], words: Sequence[str]) -> InputError | None:
    """Return an error that names the first flag in `words` whose value is not the run's, with both values.

    `trained`: the run's flags. Returns None where all agree.
    """
    for flag, value in _given(words):
        if flag in trained and not _same(trained[flag], value):
            return InputError(
                f"run {folder!r} was trained with {flag} {trained[flag]}, not {value}: train another one with "
                f"that, as in `{' '.join(['regard train', name, *words])} --savepath other`, and use it there"
            )
    return None


def explained(error: InputError, run: str, argv: list[str], own: set[str]) -> InputError:
    """Return what to say of flags that a command does not know, where they are those of the run's training.

    `own`: the command's flags. Returns `error` itself where they are not, or the run cannot be read.
    """
    folders, _ = take_flag(argv, "--savepath")
    with contextlib.suppress(InputError):
        found = find_run(run, Path(folders[-1] if folders else SAVEPATH))
        config = found.read_config()
        words, _ = take_flags(argv, set(config.flags()) - own)
        if words:
            agree = InputError(f"{' '.join(words)} is the run's own: leave it out")
            return contradiction(str(found.path), config.name, config.flags(), words) or agree
    return error


def _given(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each flag with its value, as they were said."""
    for place, word in enumerate(words):
        if not word.startswith("--"):
            continue
        flag, equals, value = word.removeprefix("--").partition("=")
        flag = flag.replace("-", "_")
        following = words[place + 1] if place + 1 < len(words) else "--"
        if equals or not following.startswith("--"):
            yield flag, value if equals else following
        else:
            yield flag.removeprefix("no_"), str(not flag.startswith("no_"))


def _same(trained: Any, said: str) -> bool:
    try:
        return float(trained) == float(said)
    except (TypeError, ValueError):
        return str(trained).lower() == said.lower()
