"""Waiting texts refill the places of finished texts, and each answer is that of a search for its text alone."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.data import PAD
from regard.decoding import Candidate, Controls, Hypothesis, batches, translation
from regard.decoding.batches import Steps, run_batches
from regard.decoding.incremental import make_decoder
from regard.decoding.search import beam_steps, greedy_steps
from regard.fast.fast_transformer import FastTransformer
from tests.fast.test_fast_transformer import KINDS, make, same, sources
from tests.german import sentences

TEXTS = [source for source, _ in sentences()[:14]] + [
    "Hund",
    "",
    "Heute singt der alte Wolf. Oft singt der Wolf.",
]
PREFIXES = ["the", "", "a"] * 5 + ["the", "the"]


@pytest.fixture(autouse=True)
def joined(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Search in one thread; yield the number of batches in each step of a `FastTransformer`."""
    counts: list[int] = []
    step_together = FastTransformer.step_together

    def counting(decoder: FastTransformer, requests: Any) -> Any:
        counts.append(len(requests))
        return step_together(decoder, requests)

    monkeypatch.setattr(FastTransformer, "step_together", counting)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield counts
    torch.set_num_threads(before)


def check_same(found: list[list[Candidate]], expected: list[list[Candidate]]) -> None:
    for answers, others in zip(found, expected, strict=True):
        assert [answer.tokens for answer in answers] == [other.tokens for other in others]
        for answer, other in zip(answers, others, strict=True):
            assert answer.log_probability == pytest.approx(other.log_probability, abs=1e-4)
            assert (answer.trace is None) == (other.trace is None)
            if answer.trace is not None and other.trace is not None:
                for name in ("log_probabilities", "attention", "contribution"):
                    np.testing.assert_allclose(getattr(answer.trace, name), getattr(other.trace, name), atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"beam": 1},
        {"beam": 1, "traced": True},
        {"beam": 3, "n_best": 3},
        {"beam": 3, "traced": True},
        {"temperature": 0.8, "seed": 3},
        {"beam": 1, "controls": Controls(prefix=PREFIXES, no_repeat_ngram=2)},
        {"beam": 3, "controls": Controls(prefix=PREFIXES, repetition_penalty=1.5)},
        {"beam": 4, "controls": Controls(terms=["the"], min_length=4)},
    ],
)
def test_answers_are_those_of_separate_searches(
    german: regard.TranslationRun, options: dict[str, Any], joined: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    refilled = german.search(TEXTS, batchsize=4, **options)
    assert max(joined) > 1
    joined.clear()
    monkeypatch.setattr(batches, "MIN_FREE", 2.0)
    check_same(refilled, german.search(TEXTS, batchsize=4, **options))
    assert max(joined) == 1
    for index, (text, found) in enumerate(zip(TEXTS, refilled, strict=True)):
        alone = dict(options)
        if "controls" in options:
            alone["controls"] = options["controls"].select([index], len(TEXTS))
        check_same([found], german.search([text], **alone))


@pytest.mark.parametrize("kind", KINDS)
def test_batches_that_decode_together_equal_separate_batches(kind: str, joined: list[int]) -> None:
    model = make(**KINDS[kind])
    decoder, lengths = make_decoder(model), [(20, 3, 7), (5, 1), (0, 2), (70, 4)]
    found: list[list[Hypothesis]] = []

    def batch(number: int) -> Steps[None]:
        source = sources(*lengths[number])
        if number % 2:
            hypotheses = yield from greedy_steps(decoder, source, source != PAD, max_len=[3, 40])
            found.append(hypotheses)
        else:
            ranked = yield from beam_steps(decoder, source, source != PAD, width=3, max_len=25)
            found.append([best for best, *_ in ranked])

    order = iter([1, 0, 3, 2])  # the first batches have a short and a long answer
    run_batches(decoder, lambda _: next((batch(number) for number in order), None), 9)
    assert max(joined) > 1
    together, found = sorted(found, key=repr), []
    for number in range(4):
        separate = iter([batch(number)])
        run_batches(decoder, lambda _, separate=separate: next(separate, None), 9)  # type: ignore[misc]
    for some, others in zip(together, sorted(found, key=repr), strict=True):
        same(some, others)


def test_other_decoders_search_one_batch_at_a_time(german: regard.TranslationRun, joined: list[int]) -> None:
    plain = german.search(TEXTS[:6], batchsize=2, beam=2)
    joined.clear()
    ensemble = german.search(TEXTS[:6], batchsize=2, beam=2, ensemble=[german])
    check_same(ensemble, plain)
    assert max(joined, default=1) == 1


def test_no_batch_starts_after_an_error(german: regard.TranslationRun, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(2)
    begun: list[int] = []

    def failing(batch: Any) -> Any:
        begun.append(len(batch))
        raise regard.InputError("the batch")

    monkeypatch.setattr(translation, "collate", failing)
    with pytest.raises(regard.InputError, match="the batch"):
        german.translate(TEXTS * 20, batchsize=1)
    assert len(begun) <= 2
