"""Doubts as files: JSON, tab-separated values, or a page with the most doubtful translations first."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.table import Table
from rich.text import Text

from regard.arguments import public
from regard.errors import InputError
from regard.io.writing import write_file, write_json
from regard.result import percent
from regard.runs.attention_maps import add_note
from regard.runs.sequence_run import SequenceRun
from regard.viz.page import write_page
from regard.viz.report_page import Part, render_page
from regard_lab.doubts.sentence_doubt import Doubt
from regard_lab.doubts.traces import encode_pairs

EXTENSIONS = (".html", ".json", ".tsv")
MOST_SHOWN = 200
"""Largest number of translations on a page."""
MOST_MAPS = 20
"""Largest number of attention maps beside a page."""
COLUMNS = ("line", "doubt", "warning", "reason", "source", "translation", "evidence")


@public
def check_doubt_file(path: Path) -> None:
    """Raise `InputError` unless the extension is one of `EXTENSIONS`."""
    if path.suffix.lower() not in EXTENSIONS:
        raise InputError(f"{str(path)!r} must end in {', '.join(EXTENSIONS)}")


@public
def write_doubts(
    run: SequenceRun, doubts: Sequence[Doubt | None], path: Path, notes: Sequence[str] = ()
) -> list[Path]:
    """Write the doubts of the lines of a text, in order, and return the paths.

    `notes`: what the page and the .json file say about the calibration, see `Doubter.notes`.

    None: a line without a translation. The page shows at most 200 translations, with the attention of the 20 most
    doubtful. The other files contain all lines, in the order of the text. Raises `InputError` for an unknown
    extension, and `MachineError` if a file cannot be written.
    """
    check_doubt_file(path)
    if path.suffix.lower() == ".json":
        lines = [None if doubt is None else _without_reason(doubt).json() for doubt in doubts]
        write_json(path, {"run": str(run.folder), "notes": list(notes), "lines": lines}, indent=1)
        return [path]
    if path.suffix.lower() == ".tsv":
        rows = [
            "\t".join(COLUMNS),
            *("\t".join(_cells(line, doubt)) for line, doubt in enumerate(doubts, start=1)),
        ]
        write_file(path, "".join(f"{row}\n" for row in rows).encode())
        return [path]
    return _write_page(run, doubts, path, notes)


def _without_reason(doubt: Doubt) -> Doubt:
    """Return a doubt with its reason and evidence only if it has a warning."""
    return doubt if doubt.warned else replace(doubt, reason="", evidence="")


def _cells(line: int, doubt: Doubt | None) -> list[str]:
    if doubt is None:
        return [str(line), *[""] * (len(COLUMNS) - 1)]
    doubt = _without_reason(doubt)
    texts = (doubt.reason, doubt.source, doubt.translation, doubt.evidence)
    warning = "yes" if doubt.warned else "no"
    return [str(line), f"{doubt.doubt:.4f}", warning, *(text.replace("\t", " ") for text in texts)]


def _write_page(run: SequenceRun, doubts: Sequence[Doubt | None], path: Path, notes: Sequence[str]) -> list[Path]:
    ranked = sorted(
        ((doubt, line) for line, doubt in enumerate(doubts, start=1) if doubt is not None),
        key=lambda pair: (-pair[0].log_odds, pair[1]),
    )
    warned = sum(doubt.warned for doubt, _ in ranked)
    maps_path = path.with_name(f"{path.stem}-attention.html")
    shown, drawn = ranked[:MOST_SHOWN], ranked[:MOST_MAPS]
    table = Table(*COLUMNS, box=None)
    for number, (doubt, line) in enumerate(shown):
        cells: list[str | Text] = list(_cells(line, doubt))
        if number < len(drawn):
            cells[1] = Text(f"{doubt.doubt:.4f}", style=f"link {maps_path.name}#map={number}")
        table.add_row(*cells)
    parts: list[Part] = [
        f"Translations with a warning: {warned} of {len(ranked):,} ({percent(warned / max(len(ranked), 1))}). "
        "The most doubtful come first. The doubt is calibrated "
        "on planted faults (regard trust): the probability of a fault if planted faults of equally "
        "frequent kinds were as frequent as good translations.",
        *notes,
        "The reason of a warning is the most likely kind of fault. "
        f"The doubts of the first {len(drawn)} link to the attention of the translation.",
        table,
    ]
    if len(ranked) > len(shown):
        parts.append(
            f"{len(ranked) - len(shown):,} less doubtful translations are not shown; a .tsv file has all."
        )
    write_file(path, render_page(f"Doubtful translations of {run.folder}", parts).encode())
    paths = [path]
    if drawn:
        _, targets = encode_pairs(run, [(doubt.source, doubt.translation) for doubt, _ in drawn])
        maps = [
            add_note(run.attend_tokens(doubt.source, tokens), str(doubt))
            for (doubt, _), tokens in zip(drawn, targets, strict=True)
        ]
        write_page(maps_path, maps)
        paths.append(maps_path)
    return paths
