"""Texts decode in batches, and each answer is that of a search for its text alone."""

from typing import Any

import numpy as np
import pytest

import regard
from regard.decoding.controls import Controls
from regard.decoding.translation import Candidate
from tests.german import sentences

TEXTS = [source for source, _ in sentences()[:14]] + ["Hund", "", "Heute singt der alte Wolf. Oft singt der Wolf."]
PREFIXES = ["the", "", "a"] * 5 + ["the", "the"]


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
def test_answers_are_those_of_separate_searches(german: regard.TranslationRun, options: dict[str, Any]) -> None:
    together = german.search(TEXTS, batchsize=4, **options)
    for index, (text, found) in enumerate(zip(TEXTS, together, strict=True)):
        alone = dict(options)
        if "controls" in options:
            alone["controls"] = options["controls"].select([index], len(TEXTS))
        check_same([found], german.search([text], **alone))


def test_an_ensemble_of_equal_models_gives_the_answers_of_the_model(german: regard.TranslationRun) -> None:
    plain = german.search(TEXTS[:6], batchsize=2, beam=2)
    check_same(german.search(TEXTS[:6], batchsize=2, beam=2, ensemble=[german]), plain)
