"""A parallel corpus without the pairs that are no translations: read once, pair by pair, and written anew.

OUT/NAME           what is kept: lines as they were, in files of the names that they came from, without .gz
OUT/dropped.tsv    what is not: line, reason, score (empty where none was needed), source, target
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from regard.data.parallel import SKIP_REASONS, ParallelText
from regard.data.rules import SEEN, CleaningRules, PairFilter, common_scripts
from regard.errors import InputError
from regard.io import check_folder, new_folder
from regard.progress import reading_bar
from regard.result import Result

PairScorer = Callable[[list[tuple[str, str]]], Sequence[float | None]]
"""Gives each pair a score from 0 to 1, None for one that is too long to be scored."""
CHUNK = 2000
"""Pairs that are scored together."""
DROPPED = "dropped.tsv"
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75)


@dataclass(frozen=True, kw_only=True, repr=False)
class CleaningReport(Result):
    """What was kept of a corpus, and why the rest was not."""

    files: list[Path]
    """The kept text."""
    dropped_file: Path
    kept: int
    """Pairs."""
    dropped: dict[str, int]
    """From reason to pairs."""
    scripts: tuple[str, ...]
    """Of source and target."""
    scores: dict[float, float]
    """From quantile to score, of all pairs that were scored; empty where none were."""

    def __str__(self) -> str:
        total = self.kept + sum(self.dropped.values())
        lines = [f"Kept {self.kept:,} of {total:,} pairs, in {' '.join(map(str, self.files))}"]
        lines += [f"{number:9,}  {reason}" for reason, number in self.dropped.items()]
        lines += [f"What was dropped, and why: {self.dropped_file}", f"Scripts: {' '.join(self.scripts)}"]
        if self.scores:
            told = ", ".join(f"{quantile:.0%} below {score:.3g}" for quantile, score in self.scores.items())
            lines.append(f"Scores: {told}")
        return "\n".join(lines)


@dataclass
class _Pair:
    """One pair of the corpus, and what becomes of it."""

    number: int
    lines: tuple[bytes | None, ...]
    texts: tuple[str, str]
    reason: str | None
    score: float | None = None


class _Watched(ParallelText):
    """A text that keeps what cannot be read, too."""

    def __init__(self, paths: Sequence[str | Path], *, lenient: bool) -> None:
        super().__init__(paths, lenient=lenient)
        self.unread: list[_Pair] = []

    def skip(self, reason: str, where: str) -> None:
        super().skip(reason, where)
        cells = self.lines if len(self.lines) == 2 else [*(self.lines[0] or b"").split(b"\t"), b""][:2]
        source, target = ((cell or b"").decode(errors="replace") for cell in cells)
        self.unread.append(_Pair(self.number, self.lines, (source, target), SKIP_REASONS[reason]))


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
    """Write into the new folder `savepath` what `rules` keep of a corpus and `scoring` gives `min_score` or more.

    `paths`: a source and a target file, or one of tab-separated pairs. Memory: 16 bytes, and what Python needs to
    hold them, for each pair, and 8 for each score. `lenient`: drop broken lines of files that would be refused
    otherwise. Raises `InputError` where a file cannot be read or is broken, or the folder is there already,
    `MachineError` where the disk is full; nothing is left then.
    """
    text, savepath = _Watched(paths, lenient=lenient), Path(savepath)
    names = [path.name.removesuffix(".gz") for path in text.paths]
    if len({*names, DROPPED}) <= len(names):
        raise InputError(f"files {' and '.join(names)} are to be written: give files of other names")
    if os.path.lexists(savepath):
        raise InputError(f"folder {str(savepath)!r} is there already: choose another --savepath")
    check_folder(savepath.parent)
    scripts = rules.scripts or common_scripts(islice(text, SEEN))
    text.unread.clear()
    dropped: Counter[str] = Counter()
    scores: list[float] = []
    kept = 0
    with new_folder(savepath) as folder, ExitStack() as stack:
        *files, refused = [stack.enter_context((folder / name).open("wb")) for name in (*names, DROPPED)]
        refused.write(b"line\treason\tscore\tsource\ttarget\n")
        text.on_bytes = stack.enter_context(reading_bar("clean", text.bytes, show=progress))
        for chunk in _chunks(text, PairFilter(rules, scripts)):
            if scoring is not None:
                scores += _score(chunk, scoring, min_score)
            for pair in chunk:
                if pair.reason is None:
                    kept += 1
                    _keep(pair, files)
                else:
                    dropped[pair.reason] += 1
                    refused.write(_row(pair))
    return CleaningReport(
        files=[savepath / name for name in names],
        dropped_file=savepath / DROPPED,
        kept=kept,
        dropped=dict(dropped.most_common()),
        scripts=scripts,
        scores=_quantiles(scores),
    )


def _chunks(text: _Watched, sieve: PairFilter) -> Iterator[list[_Pair]]:
    """Yield a corpus in the order of its lines, what cannot be read included."""
    chunk: list[_Pair] = []
    for texts in text:
        chunk += text.unread
        text.unread.clear()
        chunk.append(_Pair(text.number, text.lines, texts, sieve.reason(*texts)))
        if len(chunk) >= CHUNK:
            yield chunk
            chunk = []
    yield chunk + text.unread


def _score(chunk: list[_Pair], scoring: PairScorer, min_score: float) -> list[float]:
    """Score what no rule has dropped, and drop what has too little; returns the scores."""
    asked = [pair for pair in chunk if pair.reason is None]
    for pair, score in zip(asked, scoring([pair.texts for pair in asked]), strict=True):
        pair.score = score
        if score is None:
            pair.reason = "too long to be scored"
        elif not score >= min_score:  # so is what is no number
            pair.reason = "low score"
    return [pair.score for pair in asked if pair.score is not None]


def _keep(pair: _Pair, files: Sequence[BinaryIO]) -> None:
    for file, line in zip(files, pair.lines, strict=True):
        file.write((line or b"") + b"\n")


def _row(pair: _Pair) -> bytes:
    score = "" if pair.score is None else f"{pair.score:.6g}"
    cells = (str(pair.number), str(pair.reason), score, *pair.texts)
    return "\t".join(cell.replace("\t", " ").replace("\r", " ") for cell in cells).encode() + b"\n"


def _quantiles(scores: list[float]) -> dict[float, float]:
    ordered = sorted(scores)
    return {each: ordered[int(each * len(ordered))] for each in QUANTILES} if ordered else {}
