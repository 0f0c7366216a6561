"""Progress of long work: a bar in a terminal or notebook, lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from regard.errors import escape_controls

if TYPE_CHECKING:
    from rich.console import Console

LINE_EVERY = 500
"""Steps between two lines where there is no terminal."""
LINE_AFTER = 10.0
"""Seconds between two lines of a preparation there."""


@contextmanager
def progress_bar(name: str, step: int, steps: int, *, show: bool) -> Iterator[Callable[[dict[str, float]], None]]:
    """Show a training that stands at `step` of `steps`; yields what to call with each line of metrics."""
    console = _screen() if show else None
    if console is None:
        yield lambda metrics: _line(name, steps, metrics) if show else None
    else:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console) as progress:
            task = progress.add_task(f"train {escape_controls(name)}", total=steps, completed=step, figures="")

            def show_metrics(metrics: dict[str, float]) -> None:
                progress.update(task, completed=metrics["step"], figures=_figures(metrics))
                if "bleu" in metrics:
                    console.print(f"step {metrics['step']:.0f}: {_figures(metrics)}", highlight=False)

            yield show_metrics


@contextmanager
def reading_bar(name: str, size: int | None, *, show: bool) -> Iterator[Callable[..., None]]:
    """Show the reading of `size` bytes; yields what to call with the bytes read so far, and, where `size` is not
    known before, then with all there are."""
    console = _screen() if show else None
    if console is None:
        print_status(name, show=show)
        yield lambda done, size=size: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(name, total=size)
        yield lambda done, size=size: progress.update(task, completed=done, total=size)


@contextmanager
def preparing_bar(name: str, size: int, *, show: bool) -> Iterator[Callable[[int, int, bool], None]]:
    """Show the preparation of text of `size` bytes; yields what to call with how many pairs more are there, of
    how many bytes, and whether they were there before."""
    console = _screen() if show else None
    begun = told = time.monotonic()
    pairs = fresh = read = 0

    def counted(count: int, done: int, before: bool) -> float:
        """Return pairs a second, of those that were not there before."""
        nonlocal pairs, fresh, read
        pairs, fresh, read = pairs + count, fresh + (0 if before else count), read + done
        return fresh / max(time.monotonic() - begun, 1e-3)

    if console is None:
        print_status(name, show=show)

        def say(count: int, done: int, before: bool) -> None:
            nonlocal told
            pace = counted(count, done, before)
            if time.monotonic() - told > LINE_AFTER:
                told = time.monotonic()
                print_status(
                    f"{name}: {pairs:,} pairs, {read / max(size, 1):.0%}, {pace:,.0f} pairs/s", show=show
                )

        yield say
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=10),
        DownloadColumn(),
        TextColumn("{task.fields[pairs]:,} pairs, {task.fields[pace]:,.0f}/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(name, total=size, pairs=0, pace=0.0)

        def more(count: int, done: int, before: bool) -> None:
            pace = counted(count, done, before)
            progress.update(task, advance=done, pairs=pairs, pace=pace)

        yield more


@contextmanager
def counting_bar(name: str, done: int, total: int, *, show: bool) -> Iterator[Callable[[], None]]:
    """Show work of `total` parts of which `done` are done; yields what to call after each one more."""
    console = _screen() if show else None
    if console is None:
        numbers = count(done + 1)
        yield lambda: print_status(f"{name}: {next(numbers)} of {total} done", show=show)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(name, total=total, completed=done)
        yield lambda: progress.advance(task)


def _screen() -> "Console | None":
    """Return the terminal or notebook in which a bar can be drawn; None where there is none."""
    from rich.console import Console

    console = Console(stderr=True)
    return console if console.is_terminal or console.is_jupyter else None


def print_status(message: str, *, show: bool) -> None:
    """Say something about the work, on standard error."""
    if show:
        sys.stderr.write(f"{escape_controls(message)}\n")


def _line(name: str, steps: int, metrics: dict[str, float]) -> None:
    if metrics["step"] % LINE_EVERY == 0 or metrics["step"] == steps or "bleu" in metrics:
        sys.stderr.write(
            f"train {escape_controls(name)}: step {metrics['step']:.0f} of {steps}, {_figures(metrics)}\n"
        )


def _figures(metrics: dict[str, float]) -> str:
    figures = f"loss {metrics['loss']:.4f}, exact match {metrics['exact_match']:.0%}"
    return figures + (f", BLEU {metrics['bleu']:.2f}" if "bleu" in metrics else "")
