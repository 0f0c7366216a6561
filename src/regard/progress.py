"""Progress of long operations: a bar in a terminal or notebook, lines in all other cases."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from regard.errors import escape_controls

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LINE_SHARE, LINE_PAUSE, LONGEST_PAUSE = 0.1, 1.0, 30.0
"""Without a terminal, a line is printed after this share of the work, if at least `LINE_PAUSE` seconds have passed
since the last line, and after `LONGEST_PAUSE` seconds."""
VALIDATIONS = {
    "bleu": "BLEU {:.2f}",
    "chrf": "chrF {:.2f}",
    "valid_loss": "validation loss {:.4f}",
    "valid_perplexity": "perplexity {:.2f}",
}
"""Metrics of a validation, and how they are printed. Metrics of a text with a name end with /NAME."""
TASK = cast("TaskID", 0)  # Number of the only task of a progress bar
_setitimer: Any = getattr(signal, "setitimer", None)  # Windows has none, and prints no such lines
_last_line = [0.0]  # time of the last line
_states: list[Callable[[], str]] = []  # descriptions of the work in progress, innermost last


@contextmanager
def progress_bar(name: str, step: int, steps: int, *, show: bool) -> Iterator[Callable[[dict[str, float]], None]]:
    """Show the progress of a training run. Yields a function to call with the metrics of each step. `step`:
    current training step. `steps`: last training step."""
    title, column = f"train {name}", "{task.fields[figures]}"
    with _bar(title, step, steps, column, show=show, figures="") as bar:
        if bar is None:
            with _metrics_writer(name, step, steps) if show else nullcontext(lambda metrics: None) as write:
                yield write
            return

        def show_metrics(metrics: dict[str, float]) -> None:
            bar.update(TASK, completed=metrics["step"], figures=_format_metrics(metrics)[2:])
            if metrics.keys() & VALIDATIONS.keys():
                bar.console.print(f"step {metrics['step']:.0f}{_format_metrics(metrics)}", highlight=False)

        yield show_metrics


@contextmanager
def reading_bar(name: str, size: int, *, show: bool) -> Iterator[Callable[[int], None]]:
    """Show the progress of reading `size` bytes. Yields a function to call with the number of bytes read."""
    read = [0]
    with _bar(name, 0, size, show=show, in_bytes=True) as bar:
        if bar is None:
            print_status(name, show=show)
            with _described(lambda: f"{name}: {read[0] / max(size, 1):.0%}"):
                yield lambda done: read.__setitem__(0, done)
        else:
            yield lambda done: bar.update(TASK, completed=done)


@contextmanager
def preparing_bar(name: str, size: int, *, show: bool) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of preparing a text of `size` bytes. Yields a function to call for each finished part
    with its number of pairs and bytes."""
    start = time.monotonic()
    pairs = read = 0
    column = "{task.fields[pairs]:,} pairs, {task.fields[rate]:,.0f}/s"
    with _bar(name, 0, size, column, show=show, in_bytes=True, pairs=0, rate=0.0) as bar:
        if bar is None:
            print_status(name, show=show)

        def advance(count: int, part: int) -> None:
            nonlocal pairs, read
            pairs, read = pairs + count, read + part
            rate = pairs / max(time.monotonic() - start, 1e-3)
            if bar is not None:
                bar.update(TASK, advance=part, pairs=pairs, rate=rate)
            elif time.monotonic() - _last_line[0] > LONGEST_PAUSE:
                share = read / max(size, 1)
                print_status(f"{name}: {pairs:,} pairs, {share:.0%}, {rate:,.0f} pairs/s", show=show)

        yield advance


@contextmanager
def counting_bar(name: str, done: int, total: int, *, show: bool, every: int = 1) -> Iterator[Callable[[], None]]:
    """Show the progress of work in `total` parts, of which `done` are finished. Yields a function to call after
    each part. Without a terminal, a line is printed after each tenth of the parts, a multiple of `every`."""
    start, number = time.monotonic(), done
    _last_line[0] = start
    tenth = every * -(-total // (10 * every))

    def describe() -> str:
        rate = (time.monotonic() - start) / max(number - done, 1)
        left = f", {timedelta(seconds=round((total - number) * rate))} left" if done < number < total else ""
        return f"{name}: {number} of {total} done{left}"

    def write() -> None:
        nonlocal number
        number += 1
        due = not number % tenth or number == total or time.monotonic() - _last_line[0] > LONGEST_PAUSE
        print_status(describe(), show=show and due)

    with _bar(name, done, total, show=show) as bar, _described(describe):
        yield write if bar is None else lambda: bar.advance(TASK)


@contextmanager
def _described(describe: Callable[[], str]) -> Iterator[None]:
    """Describe the work of the block in the lines of `status_lines`."""
    _states.append(describe)
    try:
        yield
    finally:
        _states.remove(describe)


@contextmanager
def status_lines(command: str) -> Iterator[None]:
    """Print a line when the block has printed none for `LONGEST_PAUSE` seconds, unless standard error is a terminal.

    `stop_status_lines` ends the lines of a command that serves a page. A timer prints them, because with a second
    thread, searches would not fork, and messages of libraries could not be hidden. Runs in the main thread.
    """
    start = _last_line[0] = time.monotonic()

    def watch(*_: object) -> None:
        if time.monotonic() - _last_line[0] > 1.05 * LONGEST_PAUSE:  # so that lines of the work itself come first
            state = f", {_states[-1]()}" if _states else ""
            passed = timedelta(seconds=round(time.monotonic() - start))
            with suppress(Exception):  # the work itself is writing
                print_status(f"regard {command}: {passed} so far{state}", show=True)

    if not sys.stderr.isatty() and _setitimer is not None:
        signal.signal(signal.SIGALRM, watch)
        signal.siginterrupt(signal.SIGALRM, False)
        _setitimer(signal.ITIMER_REAL, LONGEST_PAUSE / 10, LONGEST_PAUSE / 10)
    try:
        yield
    finally:
        stop_status_lines()


def stop_status_lines() -> None:
    if _setitimer is not None:
        _setitimer(signal.ITIMER_REAL, 0)


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
        _last_line[0] = time.monotonic()
        sys.stderr.write(f"{escape_controls(message)}\n")


@contextmanager
def _metrics_writer(name: str, first: int, steps: int) -> Iterator[Callable[[dict[str, float]], None]]:
    """Yield a function that prints some of the metrics and all validations, with the speed and the time left."""
    start = _last_line[0] = time.monotonic()
    printed, latest = first, dict[str, float]()

    def describe() -> str:
        step, passed = int(latest.get("step", first)), max(time.monotonic() - start, 1e-3)
        rate = passed / max(step - first, 1)
        left = f", {timedelta(seconds=round((steps - step) * rate))} left" if first < step < steps else ""
        speed = f", {latest['tokens'] / passed:,.0f} tokens/s" if latest.get("tokens") else ""
        return f"train {name}: step {step} of {steps}{_format_metrics(latest)}{speed}{left}"

    def write(metrics: dict[str, float]) -> None:
        nonlocal printed, latest
        step, latest = int(metrics["step"]), metrics
        pause = LINE_PAUSE if step - printed >= LINE_SHARE * (steps - first) else LONGEST_PAUSE
        if time.monotonic() - _last_line[0] >= pause or step == steps or metrics.keys() & VALIDATIONS.keys():
            printed = step
            print_status(describe(), show=True)

    with _described(describe):
        yield write


def _format_metrics(metrics: dict[str, float]) -> str:
    figures = f", loss {metrics['loss']:.4f}, exact match {metrics['exact_match']:.0%}" if metrics else ""
    texts: dict[str, list[str]] = {}
    for metric, value in metrics.items():
        name, _, text = metric.partition("/")
        if name in VALIDATIONS:
            texts.setdefault(text, []).append(VALIDATIONS[name].format(value))
    return figures + "".join(f"{f'; {text}:' if text else ','} {', '.join(numbers)}" for text, numbers in texts.items())
