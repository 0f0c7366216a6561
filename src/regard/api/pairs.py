"""A run on a task that draws its pairs: test it, and see how its attention agrees with the known alignment."""

from dataclasses import dataclass

from regard.api.sequences import SequenceRun
from regard.attention import short_name
from regard.errors import InputError, check_range
from regard.evaluation import Alignment, alignment
from regard.inspection import AttentionMap
from regard.tasks import PairTask
from regard.training import generator_of

CHUNK = 500
"""Samples that are tested at once."""


@dataclass(frozen=True, kw_only=True)
class PairReport:
    """What a test over fresh samples found."""

    samples: int
    exact_match: float
    """Share of samples (0 to 1) whose answer, by greedy search, is right to the last character."""
    alignments: dict[str, Alignment]
    """For each layer in which the target attends to the source; empty for a model without attention."""

    def __str__(self) -> str:
        lines = [f"Exact match: {self.exact_match:.2%} of {self.samples:,} unseen samples"]
        lines += [
            f"{name}: alignment error rate {each.error_rate:.1%}, {each.share:.1%} of the attention is on what "
            f"each character was made from (uniform attention: {each.uniform:.1%})"
            for name, each in self.alignments.items()
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class PairRun(SequenceRun):
    """A run on a task that draws its pairs."""

    task: PairTask

    def test(self, *, samples: int = 2000, sample_len: int | None = None, seed: int = 0) -> PairReport:
        """Test on unseen samples: exact match, and how the attention agrees with the known alignment.

        `sample_len` characters each, where the task leaves the choice (default: as in training); `seed` chooses
        the samples. Raises `InputError` where a value does not fit.
        """
        check_range("samples", samples, 1, 10**7)
        check_range("seed", seed, 0, 2**32 - 1)
        generator = generator_of(seed, "test")
        pairs = self.task.pairs(samples, generator, sample_len=sample_len, unseen=True)
        answers = self.translate([pair.source for pair in pairs])
        right = [answer == pair.target for answer, pair in zip(answers, pairs, strict=True)]
        chunks = [pairs[begin : begin + CHUNK] for begin in range(0, len(pairs), CHUNK)]
        return PairReport(
            samples=samples,
            exact_match=sum(right) / len(right),
            alignments=alignment(self.model, self.task, chunks),
        )

    def unseen(self, samples: int, seed: int) -> list[tuple[str, str]]:
        """Return pairs that are drawn apart from those of training."""
        pairs = self.task.pairs(samples, generator_of(seed, "examine"), unseen=True)
        return [(pair.source, pair.target) for pair in pairs]

    def _alignment_error(self, samples: int, seed: int) -> dict[str, float]:
        """Return the alignment error rate of each layer."""
        pairs = self.task.pairs(samples, generator_of(seed, "examine"), unseen=True)
        return {
            short_name(name): each.error_rate for name, each in alignment(self.model, self.task, [pairs]).items()
        }

    def draw(self, *, sample_len: int | None = None, seed: int = 0) -> str:
        """Return a drawn input, unseen in training; the rest is as in `attend`."""
        return self.task.pairs(1, generator_of(seed, "sample"), sample_len=sample_len, unseen=True)[0].source

    def attend(
        self,
        input: str | None = None,
        *,
        sample_len: int | None = None,
        seed: int = 0,
        beam: int | None = None,
        length_penalty: float | None = None,
    ) -> AttentionMap:
        """Answer one input, such as `"3. Mai 1979"`, and keep what each character of the answer attended to.

        Without `input`, draw an unseen one, with `sample_len` characters, by `seed`. The rest is as in `search`.
        """
        if input is None:
            input = self.draw(sample_len=sample_len, seed=seed)
        elif sample_len is not None:
            raise InputError("input is given: leave out sample_len, which is for drawn samples")
        return self.attend_to(input, beam=beam, length_penalty=length_penalty)
