"""`regard examine RUN...`: test whether the attention of a run, or of several seeds, is meaningful."""

import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regard.cli.parsing import check_needed, read_command
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import EXPLORER, print_table, resumable
from regard.interpret.examination import Examination
from regard.interpret.examined_runs import ExaminedRuns
from regard.interpret.saved_examination import FILE
from regard.io.writing import check_writable, write_json
from regard.runs.examined_runs import examine_runs

MAX_WIDTH = 110
"""Maximum width of the report in characters."""


@dataclass(frozen=True, kw_only=True)
class ExamineFlags:
    """Test whether the attention of a run is meaningful. Is the attention on the inputs that the answer
    depends on? Does the attention rank the inputs like the effect of replacing them? Which heads does the
    model need? The result is printed and saved as examined.json in the run's folder. Several runs that differ
    only in their seed are compared: how many heads of each layer get each sentence, and on how many runs.
    RUN: a task's name, or the folder of a run."""

    samples: int = 200
    """Number of unseen samples (2 or more; confidence intervals need 50)."""
    html: Path | None = None
    """Write the report to this HTML file: tables and text, and for one run plots and links into the explorer."""
    json: Path | None = None
    """Write all measurements and sentences to this JSON file."""
    explorer: str = EXPLORER
    """Address of `regard show` for the links in the HTML report."""
    seed: int = 0
    """Random seed of the samples (0 or more)."""
    storage: RunFlags = field(default_factory=RunFlags)


def run(argv: list[str]) -> None:
    """Examine the runs, then print and save the report."""
    names, flags = read_command(ExamineFlags, argv, "regard examine RUN...")
    check_needed(flags, {"explorer": "html"})
    for path in (flags.html, flags.json):
        if path is not None:
            check_writable(path)
    result, saved = _examine(names, flags)
    width = min(MAX_WIDTH, shutil.get_terminal_size((MAX_WIDTH, 24)).columns)
    print_table(result.table(), width)
    sys.stdout.write("\n")
    for sentence in result.sentences:
        sys.stdout.write(textwrap.fill(sentence, width, subsequent_indent="  ") + "\n")
    if flags.json is not None:
        write_json(flags.json, result.json())
        saved.append(flags.json)
    if flags.html is not None:
        if isinstance(result, ExaminedRuns):
            saved.append(result.to_html(flags.html))
        else:
            saved.append(result.to_html(flags.html, explorer=flags.explorer))
    sys.stdout.write("\n" + "".join(f"Saved {path}\n" for path in saved))


def _examine(names: Sequence[str], flags: ExamineFlags) -> tuple[Examination | ExaminedRuns, list[Path]]:
    """Return the result for one run or several, and the files that were saved in their folders."""
    storage = flags.storage
    if len(names) == 1:
        run = storage.load(names[0])
        examination = run.examine(samples=flags.samples, seed=flags.seed)
        return examination, [examination.save(run.folder / FILE)]
    with resumable():
        result = examine_runs(
            names,
            samples=flags.samples,
            seed=flags.seed,
            **vars(storage),
        )
    return result, [Path(folder) / FILE for folder in result.runs]
