"""Findings of a campaign: a table of counts, and instructions to repeat each fault."""

import json
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Each = TypeVar("Each")
EXAMPLES = 3
"""Trials listed for each kind of fault."""


SECONDS = 20
"""Seconds between two progress messages."""


def counted(name: str, total: int, tries: Iterable[Each]) -> Iterator[Each]:
    """Yield the trials, and report progress at intervals."""
    told = time.monotonic()
    for done, each in enumerate(tries):
        if time.monotonic() - told > SECONDS:
            told = time.monotonic()
            sys.stderr.write(f"{name}: {done:,} of {total:,} done\n")
        yield each


@dataclass(frozen=True)
class Trial:
    """One trial, and the faults of its outcome."""

    index: int
    kind: str
    outcome: str
    faults: tuple[str, ...]
    what: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """All trials of one campaign."""

    name: str
    seed: int
    trials: list[Trial]
    again: str
    """Command that repeats a trial; {index} is its number."""

    @property
    def counts(self) -> dict[str, int]:
        """Return the count of each outcome."""
        found = Counter("a fault" if trial.faults else trial.outcome for trial in self.trials)
        return dict(sorted(found.items()))

    @property
    def faults(self) -> dict[str, list[Trial]]:
        """Return trials by fault; faults that differ only in names and numbers are counted as one fault."""
        found = defaultdict(list)
        for trial in self.trials:
            for fault in trial.faults:
                found[alike(fault)].append(trial)
        return dict(sorted(found.items(), key=lambda each: -len(each[1])))

    def told(self) -> str:
        """Return the counts, and some trials of each kind of fault with the commands that repeat the trials."""
        lines = [f"{len(self.trials)} {self.name}, seed {self.seed}"]
        lines += [f"  {number:6d}  {outcome}" for outcome, number in self.counts.items()]
        for fault, trials in self.faults.items():
            lines.append(f"\n{len(trials)} x {fault}")
            for trial in trials[:EXAMPLES]:
                what = " ".join(word if len(word) < 60 else f"{word[:50]}[...]" for word in trial.what)
                lines.append(f"    {self.again.format(index=trial.index)}    # {repr(what)[1:-1][:300]}")
        return "\n".join(lines) + "\n"

    def json(self) -> dict[str, Any]:
        """Return plain data."""
        faults = {
            fault: [self.again.format(index=each.index) for each in trials[:EXAMPLES]]
            for fault, trials in self.faults.items()
        }
        return {
            "name": self.name,
            "seed": self.seed,
            "tried": len(self.trials),
            "counts": self.counts,
            "faults": faults,
        }


def campaign(
    title: str,
    name: str,
    seed: int,
    numbers: int | Sequence[int],
    only: int | None,
    attempt: Callable[[int], tuple[Trial, str]],
) -> Report:
    """Run the trials of some numbers; or only one, whose messages are printed. `name`: as on the command line."""
    indices = [only] if only is not None else range(numbers) if isinstance(numbers, int) else numbers
    trials = []
    for index in counted(title, len(indices), indices):
        trial, messages = attempt(index)
        trials.append(trial)
        if only is not None:
            sys.stderr.write(f"{trial}\n{messages}")
    return Report(title, seed, trials, f"python -m tests.faults {name} --seed {seed} --only {{index}}")


def alike(fault: str) -> str:
    """Return a fault without the details that differ between trials."""
    return re.sub(r"\d+", "#", re.sub(r"'[^']*'|\"[^\"]*\"", "'...'", fault))[:160]


def table(reports: list[dict[str, Any]]) -> str:
    """Return the Markdown table of several campaigns, from the data of `json`."""
    rows = ["| what | seed | tried | faults | how they ended |", "| --- | ---: | ---: | ---: | --- |"]
    for report in reports:
        counts = dict(report["counts"])
        faults = counts.pop("a fault", 0)
        ended = ", ".join(f"{outcome} {number:,}" for outcome, number in counts.items())
        rows.append(f"| {report['name']} | {report['seed']} | {report['tried']:,} | {faults:,} | {ended} |")
    return "\n".join(rows)


def write_table(page: Path, reports: list[dict[str, Any]], name: str = "campaign") -> None:
    """Write the table between its markers on a page."""
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- table: {name} -->\n", "<!-- end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}{table(reports)}\n{end}{after}", encoding="utf-8")


def read_json(path: Path) -> list[dict[str, Any]]:
    """Return the stored findings; empty if no findings are stored."""
    return list(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []


def write_json(path: Path, reports: list[dict[str, Any]]) -> None:
    """Store the findings as data."""
    path.write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")
