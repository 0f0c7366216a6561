"""Progress of long operations: a bar in a terminal or notebook, lines in all other cases."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from regard.errors import escape_controls

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LINE_SHARE, LINE_PAUSE, LONGEST_PAUSE = 0.1, 1.0, 60.0
"""Without a terminal, a line is printed after this share of the training steps, if at least `LINE_PAUSE` seconds
have passed since the last line, and after `LONGEST_PAUSE` seconds."""
VALIDATIONS = {
    "bleu": "BLEU {:.2f}",
    "chrf": "chrF {:.2f}",
    "valid_loss": "validation loss {:.4f}",
    "valid_perplexity": "perplexity {:.2f}",
}
"""Metrics of a validation, and how they are printed. Metrics of a text with a name end with /NAME."""
TASK = cast("TaskID", 0)  # Number of the only task of a progress bar
LINE_SECONDS = 10.0  # Seconds between two printed lines of a preparation without a terminal


@contextmanager
def progress_bar(name: str, step: int, steps: int, *, show: bool) -> Iterator[Callable[[dict[str, float]], None]]:
    """Show the progress of a training run. Yields a function to call with the metrics of each step. `step`:
    current training step. `steps`: last training step."""
    title, column = f"train {name}", "{task.fields[figures]}"
    with _bar(title, step, steps, column, show=show, figures="") as bar:
        if bar is None:
            yield _metrics_writer(name, step, steps) if show else lambda metrics: None
            return

        def show_metrics(metrics: dict[str, float]) -> None:
            bar.update(TASK, completed=metrics["step"], figures=_format_metrics(metrics))
            if metrics.keys() & VALIDATIONS.keys():
                bar.console.print(f"step {metrics['step']:.0f}: {_format_metrics(metrics)}", highlight=False)

        yield show_metrics


@contextmanager
def reading_bar(name: str, size: int, *, show: bool) -> Iterator[Callable[[int], None]]:
    """Show the progress of reading `size` bytes. Yields a function to call with the number of bytes read."""
    with _bar(name, 0, size, show=show, in_bytes=True) as bar:
        if bar is None:
            print_status(name, show=show)
            yield lambda done: None
        else:
            yield lambda done: bar.update(TASK, completed=done)


@contextmanager
def preparing_bar(name: str, size: int, *, show: bool) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of preparing a text of `size` bytes. Yields a function to call for each finished part
    with its number of pairs and bytes."""
    start = last_line = time.monotonic()
    pairs = read = 0
    column = "{task.fields[pairs]:,} pairs, {task.fields[rate]:,.0f}/s"
    with _bar(name, 0, size, column, show=show, in_bytes=True, pairs=0, rate=0.0) as bar:
        if bar is None:
            print_status(name, show=show)

        def advance(count: int, part: int) -> None:
            nonlocal pairs, read, last_line
            pairs, read = pairs + count, read + part
            rate = pairs / max(time.monotonic() - start, 1e-3)
            if bar is not None:
                bar.update(TASK, advance=part, pairs=pairs, rate=rate)
            elif time.monotonic() - last_line > LINE_SECONDS:
                last_line = time.monotonic()
                share = read / max(size, 1)
                print_status(f"{name}: {pairs:,} pairs, {share:.0%}, {rate:,.0f} pairs/s", show=show)

        yield advance


@contextmanager
def counting_bar(name: str, done: int, total: int, *, show: bool, every: int = 1) -> Iterator[Callable[[], None]]:
    """Show the progress of work in `total` parts, of which `done` are finished. Yields a function to call after
    each part. Without a terminal, every `every`th part is printed."""
    with _bar(name, done, total, show=show) as bar:
        numbers = count(done + 1)

        def write() -> None:
            number = next(numbers)
            print_status(f"{name}: {number} of {total} done", show=show and not number % every)

        yield write if bar is None else lambda: bar.advance(TASK)


@contextmanager
def _bar(
    name: str, done: int, total: int, text: str = "", *, show: bool, in_bytes: bool = False, **fields: Any
) -> "Iterator[Progress | None]":
    """Yield a progress bar with the task `TASK`, or None without a terminal or notebook. `text`: an additional
    column, with the values in `fields`."""
    if not show:
        yield None
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=10 if in_bytes and text else 40),
        DownloadColumn() if in_bytes else MofNCompleteColumn(),
        *([TextColumn(text)] if text else []),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        progress.add_task(escape_controls(name), total=total, completed=done, **fields)
        yield progress


def print_status(message: str, *, show: bool) -> None:
    """Write a status message to standard error if `show`."""
    if show:
        sys.stderr.write(f"{escape_controls(message)}\n")


def _metrics_writer(name: str, first: int, steps: int) -> Callable[[dict[str, float]], None]:
    """Return a function that prints some of the metrics and all validations, with the speed and the time left."""
    start = last = time.monotonic()
    printed = first

    def write(metrics: dict[str, float]) -> None:
        nonlocal last, printed
        now, step = time.monotonic(), int(metrics["step"])
        pause = LINE_PAUSE if step - printed >= LINE_SHARE * (steps - first) else LONGEST_PAUSE
        if now - last < pause and step != steps and not metrics.keys() & VALIDATIONS.keys():
            return
        last, printed, rate = now, step, max(now - start, 1e-3) / max(step - first, 1)
        left = f", {timedelta(seconds=round((steps - step) * rate))} left" if step < steps else ""
        speed = f", {metrics['tokens'] / max(now - start, 1e-3):,.0f} tokens/s" if metrics.get("tokens") else ""
        position = f"step {step} of {steps}"
        sys.stderr.write(f"train {escape_controls(name)}: {position}, {_format_metrics(metrics)}{speed}{left}\n")

    return write


def _format_metrics(metrics: dict[str, float]) -> str:
    figures = f"loss {metrics['loss']:.4f}, exact match {metrics['exact_match']:.0%}"
    texts: dict[str, list[str]] = {}
    for metric, value in metrics.items():
        name, _, text = metric.partition("/")
        if name in VALIDATIONS:
            texts.setdefault(text, []).append(VALIDATIONS[name].format(value))
    return figures + "".join(f"{f'; {text}:' if text else ','} {', '.join(numbers)}" for text, numbers in texts.items())
