"""The calibration of a run's doubt, as stored in trust.json in the folder of the run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from regard.arguments import public
from regard.errors import InputError
from regard.io.reading import damaged_file
from regard.result import Result, percent
from regard.runs.sequence_run import SequenceRun
from regard.statistics import count_interval
from regard_lab.doubts.classifier import Classifier

if TYPE_CHECKING:
    from rich.console import RenderableType

FILE = "trust.json"
FORMAT = "regard-trust/3"
MEND = "delete it, and run `regard trust` again"
FEWEST_ALARMS = 5
"""Smallest number of good translations with a warning for a certain threshold."""
HARDLY = 0.1
"""A kind of fault of which a smaller share gets a warning is hardly visible."""
Origin = Literal["translations", "references"]
"""Translations of the run, or references of a text."""


@public
@dataclass(frozen=True, kw_only=True)
class FaultResult:
    """How well the doubt finds one kind of fault, on sentences that were not used for fitting."""

    kind: str
    """Kind of fault, see `regard_lab.doubts.faults`."""
    origin: Origin
    """What the faults were planted in."""
    count: int
    """Number of planted faults."""
    auroc: float
    """Probability that the doubt of a fault is above that of a good translation (0 to 1)."""
    log_probability_auroc: float
    """The same for the negative log-probability per token."""
    found: float
    """Share (0 to 1) of the faults that get a warning."""
    named: float
    """Share (0 to 1) of the faults whose kind is the stated reason."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class TrustReport(Result):
    """Result of a calibration."""

    text: str
    """Name of the text."""
    pairs: int
    """Number of sentences."""
    false_alarms: float
    """Share of good translations for which the thresholds are set."""
    thresholds: dict[Origin, float]
    """Log-odds above which a translation gets a warning: translations of the run, and other translations."""
    features: list[str]
    """Names of the features."""
    left_out: dict[str, str]
    """Features that could not be measured, and faults that could not be planted, with the reason."""
    faults: list[FaultResult]

    def table(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table("fault", "planted in", "count", "AUROC", "log-prob.", "found", "named", box=None)
        table.pad_edge = False
        for fault in self.faults:
            table.add_row(
                fault.kind,
                fault.origin,
                f"{fault.count:,}",
                f"{fault.auroc:.3f}",
                f"{fault.log_probability_auroc:.3f}",
                percent(fault.found, 0),
                percent(fault.named, 0),
            )
        hardly = [f"{fault.kind} ({fault.origin})" for fault in self.faults if fault.found < HARDLY]
        notes = [
            f"Faults planted in {self.pairs:,} sentences; each sentence was tested by a classifier fitted to "
            "other sentences. AUROC: probability that a fault has more doubt than a good translation, beside the "
            f"log-probability alone. found: share of faults with a warning if {percent(self.false_alarms)} of "
            "good translations have one. named: share with the right reason. Planted faults are clearer than "
            "most real ones.",
            f"Hardly visible, less than {percent(HARDLY, 0)} found: {', '.join(hardly) or 'none'}",
            *self.alarms(),
            *(f"Left out: {name} ({reason})" for name, reason in self.left_out.items()),
        ]
        return Group(table, Text(""), Text("\n".join(notes)))

    def alarms(self) -> list[str]:
        """Return which share of false alarms the calibration promises, and a warning if it has few pairs."""
        share = count_interval(self.false_alarms * self.pairs, self.pairs)
        notes = [
            f"false alarms: {percent(self.false_alarms)} of good translations in text like {self.text} "
            f"({self.pairs:,} pairs: {percent(share.low or 0)} to {percent(share.high or 0)})"
        ]
        if self.false_alarms * self.pairs < FEWEST_ALARMS:
            notes.append(
                f"warning: the doubt is calibrated on few pairs ({self.pairs:,}), so that its threshold is "
                f"uncertain: run `regard trust` with {math.ceil(FEWEST_ALARMS / self.false_alarms):,} or more"
            )
        return notes


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What is stored with a run: the classifiers, their thresholds and the basis of their features."""

    step: int
    """Training step of the model."""
    report: TrustReport
    classifiers: dict[Origin, Classifier]
    frequencies: np.ndarray
    """(V,): see `read_frequencies`."""
    reverse: str | None
    """Folder of the run of the opposite direction."""


def store_calibration(run: SequenceRun, calibration: Calibration) -> None:
    content = msgspec.to_builtins(calibration, enc_hook=lambda array: array.tolist())
    run.files.write_derived(FILE, {"format": FORMAT, "calibration": content})


def read_calibration(run: SequenceRun) -> Calibration:
    """Return the calibration that is stored with a run.

    Raises `InputError` if there is none, if it has an earlier format, if the model has been trained further, or
    if the file is damaged.
    """
    content, remedy = run.files.read_derived(FILE, MEND), f"run `regard trust {run.folder}`"
    if content is not None and content.get("format") != FORMAT:
        raise InputError(
            f"the doubt of run {str(run.folder)!r} was calibrated by another version of Regard "
            f"({content.get('format')}, not {FORMAT}): {remedy} to calibrate it again"
        )
    if content is not None:
        try:
            calibration = msgspec.convert(
                content.get("calibration"), Calibration, dec_hook=lambda _, value: np.array(value)
            )
        except (msgspec.ValidationError, ValueError) as error:
            raise damaged_file(run.files.path / FILE, error, MEND) from error
        if calibration.step == run.step:
            return calibration
    raise InputError(f"the doubt of run {str(run.folder)!r} is not calibrated: {remedy} first")
