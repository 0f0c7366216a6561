"""Runs on parallel text: translate, and measure the quality of the translations."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.arguments import public
from regard.data.bleu_tokenizer import check_bleu_tokenizer
from regard.data.parallel import ParallelText
from regard.data.prepare import check_pairs, describe_learned, read_pairs
from regard.data.unknown_tokens import UnknownShares, read_unknown, unknown_in_pairs
from regard.errors import InputError, plural
from regard.result import Result, percent
from regard.runs.run import Figures
from regard.runs.sequence_run import SequenceRun
from regard.training.config import ModelPart, TaskPart

if TYPE_CHECKING:
    from regard.data.parallel import PairSource
    from regard.evaluation.bleu import Quality
    from regard.tasks.translation import Translation

MOST_DRAWN = 1000
"""Number of pairs at the beginning of the text from which `draw` selects a pair."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class TranslationReport(Result):
    """Result of a test on parallel text."""

    translations: list[str]
    """Translations of the scored pairs."""
    lines: list[int]
    """Line number (from 1) of each pair in the text."""
    total_lines: int
    """Number of lines of the text, including omitted lines."""
    counts: str
    """Number of pairs and of omitted lines."""
    unknown: UnknownShares
    """Fractions of unknown tokens in the text."""
    learned: str
    """How many pairs are in the training text of the run; empty if few are."""
    quality: Quality
    seconds: float
    """Duration of the translation in seconds."""

    def __str__(self) -> str:
        sentences = len(self.translations)
        return "\n".join(
            [
                *self.quality.lines(),
                f"Exact match: {percent(self.quality.exact_match, 2)} of {plural(sentences, 'sentence')}, "
                f"translated in {self.seconds:.1f} seconds, {sentences / self.seconds:.0f} a second",
                *([f"Text: {self.counts}"] if "left out" in self.counts else []),
            ]
        )

    @property
    def warnings(self) -> list[str]:
        """Warnings about the reliability of the scores."""
        learned = self.learned and f"{self.learned} of the run, so that it translates them better than other text"
        return [*self.unknown.warnings, *filter(None, [learned, self.quality.warning])]

    @property
    def output(self) -> str:
        """The translations as text, each on the line of its source. Omitted lines are empty."""
        by_line = dict(zip(self.lines, self.translations, strict=True))
        return "".join(f"{by_line.get(line, '')}\n" for line in range(1, self.total_lines + 1))


@public
@dataclass(frozen=True, repr=False)
class TranslationRun(SequenceRun[TaskPart, ModelPart]):
    """A run on parallel text."""

    task: Translation
    usual_beam: ClassVar[int] = 5
    usual_length_penalty: ClassVar[float] = 1.0

    @property
    def longest_seen(self) -> int:
        return self.task.config.max_len

    def test(
        self,
        text: Sequence[str | Path] | None = None,
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        batchsize: int = 64,
        bleu_tokenize: str | None = None,
        lenient: bool = False,
    ) -> TranslationReport:
        """Translate the sources of a text, and score the translations against its targets.

        `text`: a source and a target file, or a file of tab-separated pairs. None: the run's test text.
        `bleu_tokenize`: tokenizer for BLEU. None: the tokenizer of the run, or else a tokenizer for the writing
        system of the targets. `lenient`: omit invalid lines of a file, instead of refusing the file. Other
        options as in `search`. Raises `InputError` if there is no text, or if the text cannot be read.
        """
        from regard.evaluation.bleu import quality

        search: dict[str, Any] = {"beam": beam, "length_penalty": length_penalty, "batchsize": batchsize}
        self.search([], **search)  # checks the options before the text is read
        task = self.task
        config = dataclasses.replace(task.config, lenient=True, strict=False) if lenient else task.config
        test_text = config.text("test") if text is None else ParallelText(text, lenient=lenient)
        if test_text is None:
            raise InputError(f"run {str(self.folder)!r} has no test text: give one with --data")
        tokenize = bleu_tokenize or self.config.bleu_tokenizer or config.bleu_tokenize
        if tokenize is not None:
            check_bleu_tokenizer(tokenize)
        pairs, lines = [], []
        for pair in test_text:
            pairs.append(pair)
            lines.append(test_text.number)
        check_pairs(pairs, test_text, "test")
        begin = time.perf_counter()
        translations = self.translate([source for source, _ in pairs], **search)
        seconds = time.perf_counter() - begin
        scores = quality(translations, [target for _, target in pairs], lowercase=config.lowercase, tokenize=tokenize)
        return TranslationReport(
            translations=translations,
            lines=lines,
            total_lines=test_text.number,
            counts=str(test_text.counts),
            unknown=unknown_in_pairs("test", pairs, (task.source_vocabulary, task.target_vocabulary)),
            learned=self._describe_learned(pairs),
            quality=scores,
            seconds=seconds,
        )

    def _describe_learned(self, pairs: Sequence[tuple[str, str]]) -> str:
        try:
            return describe_learned(pairs, self.task.config.text("train") or ())
        except InputError:  # the text was moved
            return ""

    def about(self) -> dict[str, Any]:
        shares = [str(share) for share in read_unknown(self.folder)]
        return {**super().about(), "bleu_tokenizer": self.config.bleu_tokenizer, "unknown": shares}

    def unseen(self, samples: int, seed: int, *, purpose: str = "examine") -> Sequence[tuple[str, str]]:
        """Return the first pairs of the validation text, or else of the test text. `seed` is not used.

        Raises `InputError` if the run has neither validation text nor test text.
        """
        del seed
        text = self._unseen_text()
        if text is None:
            way_out = "give --data SOURCE TARGET" if purpose == "calibrate" else "train or import it with --valid"
            raise InputError(f"run {str(self.folder)!r} has no validation or test text: {way_out}")
        return self.short_enough(read_pairs(text, "validation"))[:samples]

    def short_enough(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        return [pair for pair in pairs if self.too_long(pair[0]) is None]

    @property
    def guided(self) -> bool:
        return self.task.config.guide is not None

    def trained_on(self, most: int) -> list[tuple[str, str]]:
        text = self.task.config.text("train")
        return [] if text is None else list(islice(text, most))

    @property
    def draws(self) -> bool:
        try:
            return self.task.config.hub is None and self._unseen_text() is not None
        except InputError:
            return False  # the file was removed

    def draw(self, *, seed: int = 0) -> str:
        """Return a source that is not in the training text. Raises `InputError` if there is no such source."""
        sources = self.unseen(MOST_DRAWN, seed)
        if not sources:
            raise InputError(f"run {str(self.folder)!r} has no text that is short enough for the model: type an input")
        return sources[seed % len(sources)][0]

    def _unseen_text(self) -> PairSource | None:
        return self.task.config.text("valid") or self.task.config.text("test")

    def figures(self, *, seed: int = 0) -> Figures:
        del seed
        config = self.task.config
        report = self.test(config.test or config.valid or None)
        quality = report.quality
        return Figures(exact_match=quality.exact_match, bleu=quality.main, bleu_tokenizer=quality.tokenizer)
