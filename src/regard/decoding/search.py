"""Translating texts: into batches of like length, through a search, and back into the order they came in."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from regard.data import PAD, Vocabulary, collate
from regard.decoding.beam import beam_search
from regard.decoding.greedy import greedy_search, sample
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.stepper import Stepper, stepper_of
from regard.decoding.threads import in_threads
from regard.errors import InputError
from regard.models import Seq2Seq
from regard.result import Result
from regard.streams import derive_seed

SLACK = 50
"""Tokens that an answer may have beyond twice those of its source."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Candidate(Result):
    """One answer to one text."""

    text: str
    tokens: list[int]
    """Target vocabulary indices, without the end of sequence."""
    log_probability: float
    """Of the whole answer: natural logarithm."""
    score: float
    """What ranks answers: the log-probability over the length penalty."""
    finished: bool
    """Whether the model ended it, before it was cut."""

    def __str__(self) -> str:
        return self.text

    def summary(self) -> str:
        """Say what it is, and how likely."""
        return f"{self.text!r}, log-probability {self.log_probability:.4f}"


@dataclass(frozen=True, kw_only=True)
class Search:
    """How to look for the best answer."""

    beam: int = 1
    """Prefixes kept side by side; 1 is greedy search."""
    length_penalty: float = 0.0
    """Exponent of the length penalty (Wu et al. 2016): 0 compares log-probabilities, above it longer answers are
    preferred."""
    n_best: int = 1
    """Answers for each text; at most beam."""
    temperature: float = 0.0
    """Above 0: draw each token from the model's distribution at this temperature, instead of searching."""
    seed: int = 0
    """Of what is drawn. Each text has random numbers of its own: the same text and seed give the same answer,
    whatever other texts there are."""


def translate(
    model: Seq2Seq,
    source_vocabulary: Vocabulary,
    target_vocabulary: Vocabulary,
    texts: Sequence[str],
    search: Search,
    *,
    max_len: int,
    batchsize: int = 64,
    scored: bool = True,
) -> list[list[Candidate]]:
    """Return the `n_best` answers to each text, best first, each of at most `longest_answer` tokens.

    Texts of like length go through the model together, `batchsize` at once, and on a CPU such batches side by
    side, in as many threads as PyTorch may use; the order of the answers is that of the texts. Each answer is
    that of its text alone, but for rounding. `scored` False: log-probabilities are not wanted, and NaN where that
    saves time. Raises `InputError` where the search does not fit.
    """
    if search.temperature and search.beam > 1:
        raise InputError(f"temperature {search.temperature} and beam {search.beam} are given: draw, or search")
    model.eval()
    steps, device = stepper_of(model, search.beam), next(model.parameters()).device
    sources = [source_vocabulary.encode(text) for text in texts]
    batches = in_batches(sources, batchsize)

    def answer(indices: list[int]) -> list[list[Hypothesis]]:
        batch = [sources[index] for index in indices]
        most = [longest_answer(each, max_len) for each in batch]
        seeds = (
            [derive_seed(search.seed, f"draw/{texts[index]}") for index in indices] if search.temperature else []
        )
        return search_batch(steps, collate(batch).to(device), search, most=most, seeds=seeds, scored=scored)

    answers: list[list[Candidate]] = [[] for _ in texts]
    for indices, batch in zip(batches, in_threads(model, answer, batches), strict=True):
        for index, hypotheses in zip(indices, batch, strict=True):
            answers[index] = candidates(hypotheses, target_vocabulary)
    return answers


def in_batches(sources: Sequence[Sequence[int]], batchsize: int) -> list[list[int]]:
    """Return which sources go through the model together: those of like length, `batchsize` at once."""
    # The longest first: what is left at the end is short.
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]), reverse=True)
    return [order[begin : begin + batchsize] for begin in range(0, len(order), batchsize)]


def longest_answer(source: Sequence[int], max_len: int) -> int:
    """Return how many tokens an answer to a source may have: twice its own and `SLACK`, at most `max_len`."""
    return min(max_len, 2 * (len(source) + 1) + SLACK)  # its end counts too


def search_batch(
    model: Seq2Seq | Stepper,
    source: Tensor,
    search: Search,
    *,
    most: int | Sequence[int],
    seeds: Sequence[int] = (),
    scored: bool = True,
) -> list[list[Hypothesis]]:
    """Return the `n_best` hypotheses for each source (B, Ts), of at most `most` tokens, one limit or one for each
    source; `seeds` draw where there is a temperature. `scored`: as in `translate`."""
    mask = source != PAD
    if search.temperature:
        drawn = sample(model, source, mask, max_len=most, temperature=search.temperature, seeds=seeds)
        return [[best] for best in drawn]
    if search.beam == 1 and search.n_best == 1:
        return [[best] for best in greedy_search(model, source, mask, max_len=most, scored=scored)]
    return beam_search(
        model,
        source,
        mask,
        width=search.beam,
        max_len=most,
        alpha=search.length_penalty,
        n_best=search.n_best,
    )


def candidates(hypotheses: Sequence[Hypothesis], vocabulary: Vocabulary) -> list[Candidate]:
    """Return hypotheses as answers in text."""
    return [Candidate(text=vocabulary.decode(each.tokens), **vars(each)) for each in hypotheses]
