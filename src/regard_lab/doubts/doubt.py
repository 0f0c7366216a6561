"""The doubt of single translations, with a reason; and doubts as files."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table
from rich.text import Text

from regard.arguments import public
from regard.data.vocabulary import is_blank
from regard.decoding.search import SearchTrace
from regard.errors import InputError
from regard.io import write_file, write_json
from regard.result import Result, percent
from regard.runs.loading import load_translator
from regard.runs.run import add_note
from regard.runs.sequence_run import SequenceRun
from regard.viz.page import write_page
from regard.viz.report_page import Part, Plot, render_page
from regard_lab.doubts.calibration import Origin, read_calibration
from regard_lab.doubts.features import MEANINGS, FeatureReader, encode_pairs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNLIKE = (0.3, 4.0)
"""A text of N sentences is unlike the calibration text of M pairs if the mean of a feature is further from the
mean of good translations than UNLIKE[0] + UNLIKE[1] * sqrt(1/N + 1/M) standard deviations. Of text from the same
source as the calibration text, about 1 of 100 samples is."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Doubt(Result):
    """The doubt of one translation."""

    source: str
    translation: str
    doubt: float
    """Probability (0 to 1) of a fault, if faults of equally frequent kinds were as frequent as good translations."""
    log_odds: float
    """The doubt as log-odds, which still order doubts near 1."""
    warned: bool
    """Whether the log-odds are above the threshold of the calibration."""
    reason: str
    """The most likely kind of fault, see `regard_lab.doubts.faults`."""
    evidence: str
    """The feature that speaks most for this kind of fault, with its usual values."""

    def __str__(self) -> str:
        warning = "" if self.warned else "no warning; most likely "
        return f"doubt {self.doubt:.3f}, {warning}{self.reason}: {self.evidence}"


@public
class Doubter:
    """Measures the doubt of translations of a run by its stored calibration.

    Raises `InputError` if the run is not calibrated, or the run of the opposite direction is missing.
    """

    def __init__(self, run: SequenceRun) -> None:
        self.run = run
        self.calibration = read_calibration(run)
        opposite = self.calibration.reverse
        reverse = None if opposite is None else load_translator(opposite)
        self._reader = FeatureReader(run, self.calibration.frequencies, reverse)
        self._measured: dict[Origin, tuple[int, np.ndarray]] = {}
        """Number of measured translations, and the sum of their shifts (F,)."""

    def measure(
        self,
        pairs: Sequence[tuple[str, str]],
        origin: Origin = "translations",
        traces: Sequence[SearchTrace | None] | None = None,
    ) -> list[Doubt | None]:
        """Return the doubt of translations, given as pairs of source and translation.

        `origin`: "translations" for the run's own translations, "references" for translations from elsewhere,
        whose threshold is higher. `traces`: traces of the search, which save a pass over its translations. A pair
        with a blank source has no doubt (None).
        """
        rows = [row for row, (source, _) in enumerate(pairs) if not is_blank(source)]
        doubts: list[Doubt | None] = [None] * len(pairs)
        if not rows:
            return doubts
        features = self._reader.measure(
            [pairs[row] for row in rows], None if traces is None else [traces[row] for row in rows]
        )
        classifier, threshold = self.calibration.classifiers[origin], self.calibration.report.thresholds[origin]
        count, shifts = self._measured.get(origin, (0, np.zeros(features.shape[1])))
        self._measured[origin] = count + len(features), shifts + classifier.shifts(features).sum(0)
        totals, kinds = classifier.log_odds(features), classifier.kind_odds(features).argmax(1)
        evidence = classifier.contributions(features, kinds).argmax(1)
        for index, row in enumerate(rows):
            total, most = float(totals[index]), int(evidence[index])
            low, _, high = classifier.usual[:, most]
            doubts[row] = Doubt(
                source=pairs[row][0],
                translation=pairs[row][1],
                doubt=1 / (1 + math.exp(-total)) if total > -700 else 0.0,
                log_odds=total,
                warned=total > threshold,
                reason=classifier.kinds[kinds[index]],
                evidence=f"{describe_feature(self._reader.names[most])} {features[index, most]:.2f}, usually "
                f"{low:.2f} to {high:.2f}",
            )
        return doubts

    def notes(self, origin: Origin = "translations") -> list[str]:
        """Return the share of false alarms that the calibration promises, and what speaks against it: few pairs,
        or measured translations that are unlike the text of the calibration."""
        notes = self.calibration.report.alarms()
        if origin in self._measured:
            count, shifts = self._measured[origin]
            mean = np.abs(shifts / count)
            if mean.max() > UNLIKE[0] + UNLIKE[1] * math.sqrt(1 / count + 1 / self.calibration.report.pairs):
                feature = describe_feature(self._reader.names[int(mean.argmax())])
                apart = f"{mean.max():.1f} standard deviations apart" if mean.max() < 1000 else "always equal there"
                notes.append(
                    f"warning: this text is unlike {self.calibration.report.text}, so that the share of false "
                    f"alarms is unknown ({feature}: {apart})"
                )
        return notes


def describe_feature(name: str) -> str:
    layer, _, measure = name.rpartition(" ")
    return f"{MEANINGS[measure]} ({layer})" if layer else MEANINGS[measure]


@public
def doubt(run: SequenceRun, pairs: Sequence[tuple[str, str]], *, origin: Origin = "translations") -> list[Doubt | None]:
    """Return the doubt of translations of a calibrated run, given as pairs of source and translation.

    `origin`: "translations" if the run wrote them, "references" if they come from elsewhere. A pair with a blank
    source has no doubt (None).

    >>> sources = ["ein Hund rennt .", "zwei Kinder spielen ."]    # doctest: +SKIP
    >>> regard.doubt(run, list(zip(sources, run.translate(sources))))    # doctest: +SKIP
    [<Doubt: doubt 0.012, no warning; most likely looped: ...>, <Doubt: doubt 0.998, omitted: ...>]

    Warns if the calibration has few pairs, or if the pairs are unlike its text. Raises `InputError` if the run is
    not calibrated (`regard.calibrate_doubt`).
    """
    doubter = Doubter(run)
    doubts = doubter.measure(pairs, origin)
    for note in doubter.notes(origin)[1:]:
        warnings.warn(note.removeprefix("warning: "), stacklevel=2)
    return doubts


EXTENSIONS = (".html", ".json", ".tsv")
MOST_SHOWN = 200  # Largest number of translations on a page
MOST_MAPS = 20  # Largest number of attention maps beside a page
COLUMNS = ("line", "doubt", "warning", "reason", "source", "translation", "evidence")


@public
def check_doubt_file(path: Path) -> None:
    """Raise `InputError` unless the extension is one of `EXTENSIONS`."""
    if path.suffix.lower() not in EXTENSIONS:
        raise InputError(f"{str(path)!r} must end in {', '.join(EXTENSIONS)}")


@public
def write_doubts(run: SequenceRun, doubts: Sequence[Doubt | None], path: Path, notes: Sequence[str] = ()) -> list[Path]:
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
        rows = ["\t".join(COLUMNS), *("\t".join(_cells(line, doubt)) for line, doubt in enumerate(doubts, start=1))]
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
        Plot(lambda width: _draw_doubts(doubts, width), "Points: doubt of each translation, in the order of the text"),
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
        parts.append(f"{len(ranked) - len(shown):,} less doubtful translations are not shown; a .tsv file has all.")
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


def _draw_doubts(doubts: Sequence[Doubt | None], width: float) -> Figure:
    from regard.viz.plots import make_panels  # matplotlib is slow to import

    figure, [axes] = make_panels(1, width, 2.8)
    for warned, colour, label in ((False, "C0", "no warning"), (True, "C1", "warning")):
        points = [(line, doubt.doubt) for line, doubt in enumerate(doubts, 1) if doubt and doubt.warned == warned]
        axes.plot(*np.reshape(points, (-1, 2)).T, "o", markersize=4, color=colour, label=f"{label} ({len(points):,})")
    axes.set(xlabel="line of the text", ylabel="doubt", ylim=(-0.03, 1.03))
    axes.locator_params(axis="x", integer=True)
    axes.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside upper left", ncols=2)
    return figure
