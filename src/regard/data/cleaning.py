"""Clean a parallel corpus by removing pairs that are not translations. The corpus is read once, pair by pair.

OUT/NAME           the retained lines, unchanged, in files with the names of the input, without .gz
OUT/dropped.tsv    the dropped pairs: line, reason, score (empty if none was needed), source, target
"""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Annotated

from regard.arguments import Limits, check_fields
from regard.data.parallel import SKIP_REASONS, ParallelText
from regard.data.tokenization import find_script
from regard.errors import InputError, plural
from regard.io import check_folder, new_folder
from regard.progress import reading_bar
from regard.result import Result

PairScorer = Callable[[list[tuple[str, str]]], Sequence[float | None]]
"""Function that returns a score from 0 to 1 for each pair, or None for a pair that is too long."""
SCORED_PAIRS = 2000  # The number of pairs that are scored together
DROPPED = "dropped.tsv"
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75)
MAX_SHORT = 20
"""Number of characters up to which the lengths of both sides may have any ratio: "Ja." can mean "Yes, of course."."""
SCRIPT_PAIRS = 10_000  # The number of pairs from which the scripts of a corpus are detected
ANY = "any"
JOINT_SCRIPTS = {"hiragana": "cjk", "katakana": "cjk", "katakana-hiragana": "cjk", "fullwidth": "latin"}
"""Scripts that occur together in a text, such as the three scripts of Japanese."""


@dataclass(frozen=True, kw_only=True)
class CleaningRules:
    """Rules that a pair must satisfy."""

    most_characters: Annotated[int, Limits(1, 10**6)] = 500
    """Largest number of characters on each side of a pair."""
    most_ratio: Annotated[float, Limits(1, math.inf, "high")] = 3.0
    """Largest ratio of the two lengths in characters. Pairs of at most 20 characters each are exempt."""
    scripts: tuple[str, ...] = ()
    """Scripts of source and target by their Unicode names, such as: latin cyrillic. A pair is dropped if at
    least half of the letters on one side belong to a different script. The value any accepts all scripts.
    Default: the most frequent scripts of the first 10,000 pairs."""

    def __post_init__(self) -> None:
        check_fields(self)
        if len(self.scripts) not in (0, 2):
            raise InputError(f"{len(self.scripts)} scripts: give two, as in --scripts latin cyrillic, or none")
        for name in self.scripts:
            if name != ANY and name not in _script_names():
                raise InputError(f"script {name!r} is unknown: give latin, greek, cjk (Japanese too), any or another")


class PairFilter:
    """Filters pairs one by one. The filter stores 16 bytes for each retained pair to recognize duplicates.

    >>> pair_filter = PairFilter(CleaningRules(), ("latin", "latin"))
    >>> [pair_filter.reason(*pair) for pair in [("Hund", "dog"), ("dog", "dog"), ("Hund", "dog")]]
    [None, 'both sides the same', 'duplicate']
    """

    def __init__(self, rules: CleaningRules, scripts: tuple[str, ...]) -> None:
        self.rules, self.scripts = rules, scripts
        self.kept: set[bytes] = set()

    def reason(self, source: str, target: str) -> str | None:
        short, long = sorted((len(source), len(target)))
        if long > self.rules.most_characters:
            return "too long"
        if long > MAX_SHORT and long > self.rules.most_ratio * short:
            return "lengths too different"
        if source.casefold() == target.casefold():
            return "both sides the same"
        for text, script in zip((source, target), self.scripts, strict=True):
            letters = [] if script == ANY else _letter_scripts(text)
            if letters and 2 * letters.count(script) <= len(letters):
                return "other script"
        # A digest of 16 bytes instead of the text: a collision is practically impossible.
        digest = blake2b(f"{source}\t{target}".encode(), digest_size=16).digest()
        if digest in self.kept:
            return "duplicate"
        self.kept.add(digest)
        return None


def common_scripts(pairs: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """Return the most frequent script of each side, or "any" for a side without letters.

    >>> common_scripts([("Ein Hund", "Собака")])
    ('latin', 'cyrillic')
    """
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for pair in pairs:
        for count, text in zip(counts, pair, strict=True):
            count.update(_letter_scripts(text))
    source, target = (count.most_common(1)[0][0] if count else ANY for count in counts)
    return source, target


def _letter_scripts(text: str) -> list[str]:
    return [script for script in map(_script, text) if script]


@lru_cache(maxsize=1 << 16)
def _script(character: str) -> str:
    script = find_script(character) if character.isalpha() else ""
    return JOINT_SCRIPTS.get(script, script)


@lru_cache(maxsize=1)
def _script_names() -> frozenset[str]:
    return frozenset(_script(chr(code)) for code in range(0x20000)) - {""}


@dataclass(frozen=True, kw_only=True, repr=False)
class CleaningReport(Result):
    """The retained pairs of a corpus, and the reasons for dropped pairs."""

    files: list[Path]  # The files of the retained pairs
    dropped_file: Path
    kept: int  # The number of retained pairs
    dropped: dict[str, int]  # The number of dropped pairs, by reason
    scripts: tuple[str, ...]  # The scripts of source and target
    scores: dict[float, float]  # Quantiles of the scores of all scored pairs; empty without scored pairs

    def __str__(self) -> str:
        total = self.kept + sum(self.dropped.values())
        lines = [f"Kept {self.kept:,} of {plural(total, 'pair')}, in {' '.join(map(str, self.files))}"]
        lines += [f"{number:9,}  {reason}" for reason, number in self.dropped.items()]
        lines += [f"Dropped pairs with reasons: {self.dropped_file}", f"Scripts: {' '.join(self.scripts)}"]
        if self.scores:
            quantiles = (f"{quantile:.0%} below {score:.3g}" for quantile, score in self.scores.items())
            lines.append(f"Scores: {', '.join(quantiles)}")
        return "\n".join(lines)


@dataclass
class _Pair:
    """A pair of the corpus with the reason for dropping it."""

    number: int
    lines: tuple[bytes | None, ...]
    texts: tuple[str, str]
    reason: str | None
    score: float | None = None


class _RecordingText(ParallelText):
    """A text that also records the skipped pairs."""

    skipped: list[_Pair]

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
    """Write the pairs that satisfy `rules` and have a score of at least `min_score` to a new folder `savepath`.

    `paths`: a source and a target file, or one file of tab-separated pairs. `lenient`: drop broken lines
    instead of raising an error. Memory: 16 bytes per pair for a digest, and 8 bytes per score, plus Python's
    overhead. Raises `InputError` if a file cannot be read or is broken, or if the folder exists, and
    `MachineError` if the disk is full. No files remain after an error.
    """
    text, savepath = _RecordingText(paths, lenient=lenient), Path(savepath)
    names = [path.name.removesuffix(".gz") for path in text.paths]
    if len({*names, DROPPED}) <= len(names):
        raise InputError(f"files {' and '.join(names)} have names that the output files need: rename the input files")
    if os.path.lexists(savepath):
        raise InputError(f"folder {str(savepath)!r} exists: choose another --savepath")
    check_folder(savepath.parent)
    text.skipped = []
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
                    for file, line in zip(files, pair.lines, strict=True):
                        file.write((line or b"") + b"\n")
                else:
                    dropped[pair.reason] += 1
                    score = "" if pair.score is None else f"{pair.score:.6g}"
                    cells = (str(pair.number), pair.reason, score, *pair.texts)
                    row = "\t".join(cell.replace("\t", " ").replace("\r", " ") for cell in cells)
                    dropped_file.write(row.encode() + b"\n")
    scores.sort()
    return CleaningReport(
        files=[savepath / name for name in names],
        dropped_file=savepath / DROPPED,
        kept=kept,
        dropped=dict(dropped.most_common()),
        scripts=scripts,
        scores={share: scores[int(share * len(scores))] for share in QUANTILES} if scores else {},
    )


def _filter_pairs(text: _RecordingText, pair_filter: PairFilter) -> Iterator[list[_Pair]]:
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
    """Score the pairs that satisfy the rules, set the reason of pairs with a low score, and return the scores."""
    passed = [pair for pair in batch if pair.reason is None]
    for pair, score in zip(passed, scoring([pair.texts for pair in passed]), strict=True):
        pair.score = score
        if score is None:
            pair.reason = "too long to be scored"
        elif not score >= min_score:  # also true for NaN
            pair.reason = "low score"
    return [pair.score for pair in passed if pair.score is not None]
