"""A run from sequence to sequence: translate with it, test it, and see what it attends to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from regard.api.run import Run
from regard.decoding import Search, Translation, translate
from regard.errors import InputError, check_range
from regard.evaluation import Alignment, alignment
from regard.inspection import AttentionMap, attend_pair
from regard.models import Seq2Seq
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
class PairRun(Run):
    """A run on a task from sequence to sequence."""

    task: PairTask
    model: Seq2Seq

    def translate(
        self, texts: Iterable[str], *, beam: int = 1, length_penalty: float = 0.0, batchsize: int = 64
    ) -> list[str]:
        """Return the most likely answer to each text, in order; see `search`."""
        found = self.search(texts, beam=beam, length_penalty=length_penalty, batchsize=batchsize)
        return [best.text for best, *_ in found]

    def search(
        self,
        texts: Iterable[str],
        *,
        beam: int = 1,
        length_penalty: float = 0.0,
        n_best: int = 1,
        batchsize: int = 64,
    ) -> list[list[Translation]]:
        """Return the `n_best` answers to each text, best first, with their log-probabilities and scores.

        `beam`: prefixes kept side by side, 1 for greedy search; `length_penalty`: exponent, 0 for none.
        Characters that training never saw are read as one unknown symbol. Raises `InputError` where a text is
        too long, or numbers do not fit.
        """
        check_range("beam", beam, 1, 1000)
        check_range("n_best", n_best, 1, beam)
        check_range("batchsize", batchsize, 1, 10**6)
        texts = self._checked([texts] if isinstance(texts, str) else list(texts))
        settings = Search(beam=beam, length_penalty=length_penalty, n_best=n_best)
        return translate(
            self.model,
            self.task.source_vocabulary,
            self.task.target_vocabulary,
            texts,
            settings,
            max_len=self.task.longest_target,
            batchsize=batchsize,
        )

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

    def attend(
        self,
        input: str | None = None,
        *,
        sample_len: int | None = None,
        seed: int = 0,
        beam: int = 1,
        length_penalty: float = 0.0,
    ) -> AttentionMap:
        """Answer one input, such as `"3. Mai 1979"`, and keep what each character of the answer attended to.

        Without `input`, draw an unseen one, with `sample_len` characters, by `seed`. The rest is as in `search`.
        """
        if input is None:
            generator = generator_of(seed, "sample")
            input = self.task.pairs(1, generator, sample_len=sample_len, unseen=True)[0].source
        elif sample_len is not None:
            raise InputError("input is given: leave out sample_len, which is for drawn samples")
        [[best, *_]] = self.search([input], beam=beam, length_penalty=length_penalty)
        return attend_pair(self.model, self.task, input, best.tokens)

    def _checked(self, texts: Sequence[str]) -> Sequence[str]:
        most = self.task.longest_source
        for index, text in enumerate(texts):
            if len(text) > most:
                raise InputError(
                    f"text {index} has {len(text)} characters: {self.task.name} takes at most {most}"
                )
        return texts
