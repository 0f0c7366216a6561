"""A run on a task that draws its pairs: test it, and see how its attention agrees with the known alignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard import interpret
from regard.attention import short_name
from regard.data.word_alignment import WordAlignment
from regard.errors import InputError, check_range
from regard.result import Result
from regard.runs.run import Figures
from regard.runs.sequences import SequenceRun
from regard.streams import make_generator
from regard.training import ModelPart, TaskPart, TrainingPart

if TYPE_CHECKING:
    from rich.table import Table

    from regard.decoding import Candidate
    from regard.interpret import Alignment
    from regard.tasks import Pair, PairTask
    from regard.viz import AttentionMap

CHUNK = 500
"""Samples that are tested at once."""
DRAWN = 5000
"""Pairs that are drawn for others to learn from, at most."""


@dataclass(frozen=True, kw_only=True, repr=False)
class PairReport(Result):
    """What a test over fresh samples found."""

    samples: int
    exact_match: float
    """Share of samples (0 to 1) whose answer, by greedy search, is right to the last character."""
    alignments: dict[str, Alignment]
    """For each layer in which the target attends to the source; empty for a model without attention."""

    def __str__(self) -> str:
        lines = [f"Exact match: {self.exact_match:.2%} of {self.samples:,} unseen samples"]
        for name, each in self.alignments.items():
            on = f"{each.share:.1%} of the attention is on"
            lines.append(f"{short_name(name)}: alignment error rate {each.error_rate:.1%}, {on}")
            lines.append(f"  what each symbol was made from (uniform attention: {each.uniform:.1%})")
        return "\n".join(lines)

    def table(self) -> Table:
        """Return the figures as a table."""
        from rich.table import Table

        table = Table("", "exact match", "alignment error", "share", "uniform", box=None, pad_edge=False)
        table.add_row(f"{self.samples:,} unseen samples", f"{self.exact_match:.2%}")
        for name, each in self.alignments.items():
            table.add_row(name, "", f"{each.error_rate:.1%}", f"{each.share:.1%}", f"{each.uniform:.1%}")
        return table


@dataclass(frozen=True, repr=False)
class PairRun(SequenceRun[TaskPart, ModelPart, TrainingPart]):
    """A run on a task that draws its pairs."""

    task: PairTask
    drawn_by = ("sample_len",)

    def test(self, *, samples: int = 2000, sample_len: int | None = None, seed: int = 0) -> PairReport:
        """Test on unseen samples: exact match, and how the attention agrees with the known alignment.

        `sample_len` characters each, where the task leaves the choice (default: as in training); `seed` chooses
        the samples. Raises `InputError` where a value does not fit.
        """
        check_range("samples", samples, 1, 10**7)
        check_range("seed", seed, 0, 2**32 - 1)
        generator = make_generator(seed, "test")
        pairs = self.task.pairs(samples, generator, sample_len=sample_len, unseen=True)
        answers = self.translate([pair.source for pair in pairs])
        right = [answer == pair.target for answer, pair in zip(answers, pairs, strict=True)]
        chunks = [pairs[begin : begin + CHUNK] for begin in range(0, len(pairs), CHUNK)]
        return PairReport(
            samples=samples,
            exact_match=sum(right) / len(right),
            alignments=interpret.alignment(self.model, self.task, chunks),
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
        """Answer one input, such as `"3. Mai 1979"`, and keep what each character of the answer attended to.

        Without `input`, draw an unseen one, with `sample_len` characters, by `seed`. `answer`: one that `search`
        has found, instead of the best. The rest is as in `search`.
        """
        if input is None:
            input = self.draw(sample_len=sample_len, seed=seed)
        elif sample_len is not None:
            raise InputError("input is given: leave out sample_len, which is for drawn samples")
        return super().attend(input, answer=answer, beam=beam, length_penalty=length_penalty)

    @property
    def longest_seen(self) -> int:
        """The longest source of the task."""
        return self.task.max_source

    def draw(self, *, sample_len: int | None = None, seed: int = 0) -> str:
        """Return a drawn input, unseen in training; the rest is as in `attend`."""
        return self.task.pairs(1, make_generator(seed, "sample"), sample_len=sample_len, unseen=True)[0].source

    def unseen(self, samples: int, seed: int, *, purpose: str = "examine") -> Sequence[Pair]:
        """Return pairs that are drawn apart from those of training, the same for every purpose."""
        del purpose
        return self.task.pairs(samples, make_generator(seed, "examine"), unseen=True)

    def known_links(self, samples: int) -> tuple[list[tuple[str, str]], list[WordAlignment]]:
        """Return drawn pairs that training has not seen, with their links: sure ones of what was made from one
        symbol alone, and possible ones of what was made from several."""
        pairs = self.unseen(samples, 0)
        return [(pair.source, pair.target) for pair in pairs], [_links(pair) for pair in pairs]

    def trained_on(self, most: int) -> list[tuple[str, str]]:
        """Return pairs that are drawn like those of training."""
        drawn = self.task.pairs(min(most, DRAWN), make_generator(0, "align"))
        return [(pair.source, pair.target) for pair in drawn]

    def alignment_error(self, inputs: Sequence[Pair]) -> dict[str, float]:
        """Return the alignment error rate of each layer."""
        found = interpret.alignment(self.model, self.task, [list(inputs)])
        return {short_name(name): each.error_rate for name, each in found.items()}

    def figures(self, *, seed: int = 0) -> Figures:
        """Test on unseen samples; where several layers read the source, the last one is told of."""
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
    found = [[(source, target) for source in sources] for target, sources in enumerate(pair.alignment)]
    return WordAlignment.of(
        [each[0] for each in found if len(each) == 1], [link for each in found for link in each]
    )
