"""The doubt of translations in the output of `regard translate`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import regard
from regard.cli.aligned_output import Answers
from regard.cli.parsing import take_flags
from regard.cli.terminal import print_message
from regard.errors import InputError
from regard.io.writing import check_writable, refuse_input
from regard.runs.sequence_run import SequenceRun

NO_WARNING = "-"


@dataclass(frozen=True, kw_only=True)
class DoubtFlags:
    """Doubt of the translations."""

    doubt: bool = False
    """Write before each translation its doubt (0 to 1) and the reason for a warning (or -), with tabs.
    Calibrate the run first with `regard trust`."""
    doubt_file: Path | None = None
    """Write the doubts to this file: .html (the most doubtful first, with their attention), .json or .tsv."""

    def check(self, n_best: int, inputs: Sequence[Path | None], argv: list[str]) -> None:
        """Raise `InputError` for flags in `argv` that exclude each other, and for an output file that is an
        input."""
        if n_best > 1 and self.wanted:
            raise InputError("--doubt judges one answer per text: leave out --n_best")
        if self.doubt_file is not None:
            if not self.doubt and take_flags(argv, ["doubt"])[0]:
                raise InputError("--doubt_file writes doubts, which --no_doubt rules out: leave out one of them")
            regard.check_doubt_file(self.doubt_file)
            check_writable(self.doubt_file)
            refuse_input(self.doubt_file, inputs)

    @property
    def wanted(self) -> bool:
        return self.doubt or self.doubt_file is not None


class DoubtOutput:
    """Measures the doubts of answers as they are written, and writes them to a file at the end."""

    def __init__(self, run: SequenceRun, flags: DoubtFlags) -> None:
        self.flags = flags
        self.doubter = regard.Doubter(run) if flags.wanted else None
        self.doubts: list[regard.Doubt | None] = []

    def prefixes(self, texts: Sequence[str | None], answers: Sequence[Answers]) -> list[str]:
        """Return what precedes each answer in the output: its doubt, or nothing."""
        if self.doubter is None:
            return [""] * len(answers)
        # A text without an answer counts as blank, which has no doubt.
        pairs = [
            (text or "", ranked[0].text if ranked else "") for text, ranked in zip(texts, answers, strict=True)
        ]
        doubts = self.doubter.measure(pairs, traces=[ranked[0].trace if ranked else None for ranked in answers])
        self.doubts += doubts
        if not self.flags.doubt:
            return [""] * len(answers)
        return [
            "" if doubt is None else f"{doubt.doubt:.4f}\t{doubt.reason if doubt.warned else NO_WARNING}\t"
            for doubt in doubts
        ]

    def finish(self) -> None:
        """Write the file, and print how many translations have a warning."""
        if self.doubter is None:
            return
        known = [doubt for doubt in self.doubts if doubt is not None]
        print_message(f"translations with a warning: {sum(doubt.warned for doubt in known)} of {len(known):,}")
        for note in (notes := self.doubter.notes()):
            print_message(note)
        if self.flags.doubt_file is not None:
            for path in regard.write_doubts(self.doubter.run, self.doubts, self.flags.doubt_file, notes):
                print_message(f"saved {path}")
