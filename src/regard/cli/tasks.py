"""`regard tasks`: list the tasks, with an example of each."""

from dataclasses import dataclass

from rich.table import Table

from regard.cli.parsing import read_command
from regard.cli.terminal import print_table
from regard.tasks.all_tasks import list_tasks


@dataclass(frozen=True)
class TasksFlags:
    """List the tasks, with an example of each."""


def run(argv: list[str]) -> None:
    """Print the table of tasks."""
    read_command(TasksFlags, argv, "regard tasks")
    table = Table("task", "summary", "example", "answer", box=None, pad_edge=False, header_style="bold")
    for example in list_tasks():
        table.add_row(example.task, example.summary, f"'{example.input}'", example.answer)
    print_table(table)
