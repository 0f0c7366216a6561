"""Write the pages of `regard COMMAND --help` that need no import of PyTorch: make build-help."""

import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO

from regard.cli import COMMANDS, find_command
from regard.cli.help import PAGES, Flag, ShownHelpError
from regard.tasks.all_tasks import TASKS, find_task
from regard.training.config import PRESETS, models_for


def command_lines() -> Iterator[list[str]]:
    """Yield the command lines whose pages are stored: all commands, and the tasks and models of training."""
    yield from ([name] for name in COMMANDS)
    yield ["test", "translation"]
    for task in TASKS:
        yield ["train", task]
        yield from (["train", task, "--model", model] for model in models_for(find_task(task)))
    yield from (["train", "translation", "--preset", preset] for preset in PRESETS)


def make_pages() -> str:
    """Return the content of help.json."""
    numbers: dict[Flag, int] = {}
    pages = {}
    for command, *words in command_lines():
        try:
            with redirect_stdout(StringIO()):
                find_command(command)([*words, "--help"])
        except ShownHelpError as shown:
            usage, description, flags = shown.page
            indices = [numbers.setdefault(flag, len(numbers)) for flag in flags]
            pages[" ".join([command, *words])] = (usage, description, indices)
    rows = ",\n".join(json.dumps(flag) for flag in numbers)
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(page)}" for key, page in pages.items())
    return f'{{"flags": [\n{rows}\n],\n"pages": {{\n{lines}\n}}}}\n'


if __name__ == "__main__":
    PAGES.write_text(make_pages(), encoding="utf-8")
