"""Traces of a search equal a pass over its answers."""

from typing import Any

import numpy as np
import pytest

import regard
from regard.decoding.controls import Controls
from regard_lab.doubts.features import read_traces
from tests.conftest import train_german
from tests.german import sentences

SOURCES = [source for source, _ in sentences()[:20]] + ["Hund", "Heute singt der alte Wolf. Oft singt der Wolf."]


@pytest.fixture(scope="module", params=["default", "imported"])
def run(
    request: pytest.FixtureRequest, german: regard.TranslationRun, tmp_path_factory: pytest.TempPathFactory
) -> regard.TranslationRun:
    """Return a default run, and a run with the layers of imported models."""
    if request.param == "default":
        return german
    layers: dict[str, Any] = {"pre_norm": False, "bias": True, "output_bias": True, "activation": "swish"}
    return train_german(tmp_path_factory, **layers, tied=False, dec_layers=2, steps=150)


@pytest.mark.parametrize("options", [{"beam": 5}, {"beam": 1}, {"beam": 3, "length_penalty": 0.0}, {"batchsize": 3}])
def test_traces_equal_a_pass_over_the_answers(run: regard.TranslationRun, options: dict[str, Any]) -> None:
    answers = [best for best, *_ in run.search(SOURCES, traced=True, **options)]
    plain = [best for best, *_ in run.search(SOURCES, **options)]
    assert [answer.tokens for answer in answers] == [answer.tokens for answer in plain]
    assert "trace" not in answers[0].json()
    pairs = [(source, answer.text) for source, answer in zip(SOURCES, answers, strict=True)]
    for answer, read in zip(answers, read_traces(run, pairs), strict=True):
        trace = answer.trace
        assert trace is not None and answer.finished
        assert (trace.source, trace.tokens) == (read.source, read.tokens)
        assert trace.log_probabilities.sum() == pytest.approx(answer.log_probability, abs=1e-4)
        for name in ("log_probabilities", "attention", "contribution"):
            found, expected = getattr(trace, name), getattr(read, name)
            assert found.shape == expected.shape, name
            assert np.abs(found - expected).max() < 1e-4 * max(1, np.abs(expected).max()), name


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.0},
        {"n_best": 2},
        {"controls": Controls(min_length=9)},
        {"controls": Controls(max_length=2)},
        {"ensemble": True},
    ],
)
def test_other_answers_have_no_trace(german: regard.TranslationRun, options: dict[str, Any]) -> None:
    if "ensemble" in options:
        options = {"ensemble": [german]}
    for ranked in german.search(SOURCES[:2], traced=True, **options):
        assert all(answer.trace is None for answer in ranked)


def test_a_blank_text_and_a_recorded_model_have_no_trace(german: regard.TranslationRun) -> None:
    [[blank]] = german.search([" "], traced=True)
    with regard.record(german.model):
        [[recorded]] = german.search(SOURCES[:1], traced=True)
    assert blank.trace is None and recorded.trace is None
