"""Runs of synthetic sequence tasks: test a run, and compare its attention with the known alignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.arguments import public
from regard.attention.names import short_name
from regard.data.word_alignment import WordAlignment
from regard.errors import InputError, check_range, plural
from regard.result import Result, percent
from regard.runs.run import Figures
from regard.runs.sequence_run import SequenceRun
from regard.statistics import Interval
from regard.streams import make_generator
from regard.training.config import ModelPart, TaskPart

if TYPE_CHECKING:
    from regard.decoding.translation import Candidate
    from regard.interpret.alignment import Alignment
    from regard.tasks.pairs import Pair, PairTask
    from regard.viz.attention_map import AttentionMap

CHUNK = 500
"""Number of samples per batch in a test."""
MOST_DRAWN = 5000
"""Maximum number of pairs that `trained_on` generates."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class PairReport(Result):
    """Result of a test on unseen samples."""

    samples: int
    exact_match: float
    """Fraction of samples (0 to 1) whose answer by greedy search is entirely correct."""
    alignments: dict[str, Alignment]
    """Alignment of each layer in which the target attends to the source. Empty for a model without attention."""

    def __str__(self) -> str:
        lines = [f"Exact match: {percent(self.exact_match, 2)} of {plural(self.samples, 'unseen sample')}"]
        for name, alignment in self.alignments.items():
            share = f"{percent(alignment.share)} of the attention is on"
            lines.append(f"{short_name(name)}: alignment error rate {alignment.error_text}, {share}")
            lines.append(f"  the source of each symbol (uniform attention: {percent(alignment.uniform)})")
        return "\n".join(lines)


@public
@dataclass(frozen=True, repr=False)
class PairRun(SequenceRun[TaskPart, ModelPart]):
    """A run of a task that generates pairs of source and target."""

    task: PairTask
    drawn_by = ("sample_len",)

    def test(self, *, samples: int = 2000, sample_len: int | None = None, seed: int = 0) -> PairReport:
        """Test on unseen samples: exact match, and agreement of the attention with the known alignment.

        `sample_len`: number of characters per sample, if the task has this option; by default as in training. The
        samples are generated with `seed`. Raises `InputError` for invalid options.
        """
        from regard.interpret.alignment import alignment

        check_range("samples", samples, 1, 10**7)
        generator = make_generator(seed, "test")
        pairs = self.task.pairs(samples, generator, sample_len=sample_len, unseen=True)
        answers = self.translate([pair.source for pair in pairs])
        right = [answer == pair.target for answer, pair in zip(answers, pairs, strict=True)]
        chunks = [pairs[begin : begin + CHUNK] for begin in range(0, len(pairs), CHUNK)]
        return PairReport(
            samples=samples,
            exact_match=sum(right) / len(right),
            alignments=alignment(self.model, self.task, chunks),
        )

    def attend(
        self,
        input: str | None = None,
        *,
        sample_len: int | None = None,
        answer: Candidate | None = None,
        seed: int = 0,
        beam: int | None = None,
        length_penalty: float | None = None,
    ) -> AttentionMap:
        """Answer an input such as `"3. Mai 1979"`, and return the attention of each character of the answer.

        If `input` is None, an unseen input with `sample_len` characters is generated with `seed`. `answer`: a
        result of `search` to use instead of the best answer. Other options as in `search`.
        """
        if input is None:
            input = self.draw(sample_len=sample_len, seed=seed)
        elif sample_len is not None:
            raise InputError("input is given: leave out sample_len, only for random inputs")
        return super().attend(input, answer=answer, beam=beam, length_penalty=length_penalty)

    @property
    def longest_seen(self) -> int:
        return self.task.max_source

    def draw(self, *, sample_len: int | None = None, seed: int = 0) -> str:
        """Return a random input that is not in the training data; options as in `attend`."""
        return self.task.pairs(1, make_generator(seed, "sample"), sample_len=sample_len, unseen=True)[0].source

    def unseen(self, samples: int, seed: int, *, purpose: str = "examine") -> Sequence[Pair]:
        """Return pairs that are not in the training data. The pairs are the same for every purpose."""
        del purpose
        return self.task.pairs(samples, make_generator(seed, "examine"), unseen=True)

    def known_links(self, samples: int) -> tuple[list[tuple[str, str]], list[WordAlignment]]:
        """Return pairs that are not in the training data, with their links.

        A target symbol that depends on a single source symbol has a sure link. A target symbol that depends on
        several source symbols has possible links.
        """
        pairs = self.unseen(samples, 0)
        return [(pair.source, pair.target) for pair in pairs], [_links(pair) for pair in pairs]

    def trained_on(self, most: int) -> list[tuple[str, str]]:
        drawn = self.task.pairs(min(most, MOST_DRAWN), make_generator(0, "align"))
        return [(pair.source, pair.target) for pair in drawn]

    def alignment_error(self, inputs: Sequence[Pair]) -> dict[str, Interval]:
        from regard.interpret.alignment import alignment as alignment_

        alignments = alignment_(self.model, self.task, [list(inputs)])
        return {short_name(name): alignment.interval for name, alignment in alignments.items()}

    def figures(self, *, seed: int = 0) -> Figures:
        """Return the measurements for a comparison. The alignment is measured in the last layer that attends to
        the source."""
        report = self.test(seed=seed)
        if not report.alignments:
            return Figures(exact_match=report.exact_match)
        last = list(report.alignments.values())[-1]
        return Figures(
            exact_match=report.exact_match,
            relevance=last.share,
            uniform=last.uniform,
            alignment_error=last.error_rate,
        )


def _links(pair: Pair) -> WordAlignment:
    links = [[(source, target) for source in sources] for target, sources in enumerate(pair.alignment)]
    sure = [symbol_links[0] for symbol_links in links if len(symbol_links) == 1]
    return WordAlignment.of(sure, [link for symbol_links in links for link in symbol_links])
