"""Clean a parallel corpus: remove the pairs that are not translations. The corpus is read once, pair by pair.

OUT/NAME           the kept lines, unchanged, in files with the names of the input, without .gz
OUT/dropped.tsv    the dropped pairs: line, reason, score (empty if none was needed), source, target
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from regard.data.cleaning_rules import SCRIPT_PAIRS, CleaningRules, PairFilter, common_scripts
from regard.data.parallel import SKIP_REASONS, ParallelText
from regard.errors import InputError
from regard.io import check_folder, new_folder
from regard.progress import reading_bar
from regard.result import Result

PairScorer = Callable[[list[tuple[str, str]]], Sequence[float | None]]
"""Scores pairs from 0 to 1. The score of a pair that is too long is None."""
SCORED_PAIRS = 2000
"""The number of pairs that are scored together."""
DROPPED = "dropped.tsv"
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75)


@dataclass(frozen=True, kw_only=True, repr=False)
class CleaningReport(Result):
    """The kept pairs of a corpus, and the reasons for the dropped ones."""

    files: list[Path]
    """The files of the kept pairs."""
    dropped_file: Path
    kept: int
    """The number of kept pairs."""
    dropped: dict[str, int]
    """The number of dropped pairs, by reason."""
    scripts: tuple[str, ...]
    """The scripts of source and target."""
    scores: dict[float, float]
    """Quantiles of the scores of all scored pairs; empty if none were scored."""

    def __str__(self) -> str:
        total = self.kept + sum(self.dropped.values())
        lines = [f"Kept {self.kept:,} of {total:,} pairs, in {' '.join(map(str, self.files))}"]
        lines += [f"{number:9,}  {reason}" for reason, number in self.dropped.items()]
        lines += [f"Dropped pairs with reasons: {self.dropped_file}", f"Scripts: {' '.join(self.scripts)}"]
        if self.scores:
            quantiles = (f"{quantile:.0%} below {score:.3g}" for quantile, score in self.scores.items())
            lines.append(f"Scores: {', '.join(quantiles)}")
        return "\n".join(lines)


@dataclass
class _Pair:
    """One pair of the corpus with the reason to drop it."""

    number: int
    lines: tuple[bytes | None, ...]
    texts: tuple[str, str]
    reason: str | None
    score: float | None = None


class _RecordingText(ParallelText):
    """A text that also records the pairs that it skips."""

    def __init__(self, paths: Sequence[str | Path], *, lenient: bool) -> None:
        super().__init__(paths, lenient=lenient)
        self.skipped: list[_Pair] = []

    def skip(self, reason: str, where: str) -> None:
        super().skip(reason, where)
        cells = self.lines if len(self.lines) == 2 else [*(self.lines[0] or b"").split(b"\t"), b""][:2]
        source, target = ((cell or b"").decode(errors="replace") for cell in cells)
        self.skipped.append(_Pair(self.number, self.lines, (source, target), SKIP_REASONS[reason]))


def clean_corpus(
    paths: Sequence[str | Path],
    savepath: str | Path,
    rules: CleaningRules,
    *,
    scoring: PairScorer | None = None,
    min_score: float = 0.0,
    lenient: bool = False,
    progress: bool = True,
) -> CleaningReport:
    """Write the pairs that pass `rules` and score at least `min_score` into the new folder `savepath`.

    `paths`: a source and a target file, or one file of tab-separated pairs. `lenient`: drop broken lines of files
    that would be refused otherwise. Memory: a digest of 16 bytes per pair, and 8 bytes per score, plus Python's
    overhead. Raises `InputError` if a file cannot be read or is broken, or if the folder exists, and
    `MachineError` if the disk is full; then nothing is left behind.
    """
    text, savepath = _RecordingText(paths, lenient=lenient), Path(savepath)
    names = [path.name.removesuffix(".gz") for path in text.paths]
    if len({*names, DROPPED}) <= len(names):
        raise InputError(f"files {' and '.join(names)} have names that the output needs: rename them")
    if os.path.lexists(savepath):
        raise InputError(f"folder {str(savepath)!r} exists: choose another --savepath")
    check_folder(savepath.parent)
    scripts = rules.scripts or common_scripts(islice(text, SCRIPT_PAIRS))
    text.skipped.clear()
    dropped: Counter[str] = Counter()
    scores: list[float] = []
    kept = 0
    with new_folder(savepath) as folder, ExitStack() as stack:
        *files, dropped_file = [stack.enter_context((folder / name).open("wb")) for name in (*names, DROPPED)]
        dropped_file.write(b"line\treason\tscore\tsource\ttarget\n")
        text.on_bytes = stack.enter_context(reading_bar("clean", text.bytes, show=progress))
        for batch in _filter_pairs(text, PairFilter(rules, scripts)):
            if scoring is not None:
                scores += _score(batch, scoring, min_score)
            for pair in batch:
                if pair.reason is None:
                    kept += 1
                    _write_pair(pair, files)
                else:
                    dropped[pair.reason] += 1
                    dropped_file.write(_dropped_row(pair))
    return CleaningReport(
        files=[savepath / name for name in names],
        dropped_file=savepath / DROPPED,
        kept=kept,
        dropped=dict(dropped.most_common()),
        scripts=scripts,
        scores=_quantiles(scores),
    )


def _filter_pairs(text: _RecordingText, pair_filter: PairFilter) -> Iterator[list[_Pair]]:
    """Yield the pairs of a corpus in batches, in the order of their lines, including skipped ones."""
    batch: list[_Pair] = []
    for texts in text:
        batch += text.skipped
        text.skipped.clear()
        batch.append(_Pair(text.number, text.lines, texts, pair_filter.reason(*texts)))
        if len(batch) >= SCORED_PAIRS:
            yield batch
            batch = []
    yield batch + text.skipped


def _score(batch: list[_Pair], scoring: PairScorer, min_score: float) -> list[float]:
    """Score the pairs that pass the rules, mark those with a low score, and return the scores."""
    passed = [pair for pair in batch if pair.reason is None]
    for pair, score in zip(passed, scoring([pair.texts for pair in passed]), strict=True):
        pair.score = score
        if score is None:
            pair.reason = "too long to be scored"
        elif not score >= min_score:  # true for NaN, too
            pair.reason = "low score"
    return [pair.score for pair in passed if pair.score is not None]


def _write_pair(pair: _Pair, files: Sequence[BinaryIO]) -> None:
    for file, line in zip(files, pair.lines, strict=True):
        file.write((line or b"") + b"\n")


def _dropped_row(pair: _Pair) -> bytes:
    score = "" if pair.score is None else f"{pair.score:.6g}"
    cells = (str(pair.number), str(pair.reason), score, *pair.texts)
    return "\t".join(cell.replace("\t", " ").replace("\r", " ") for cell in cells).encode() + b"\n"


def _quantiles(scores: list[float]) -> dict[float, float]:
    ordered = sorted(scores)
    return {share: ordered[int(share * len(ordered))] for share in QUANTILES} if ordered else {}
