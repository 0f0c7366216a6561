"""Unseen inputs are searched for the largest weights of a head."""

from pathlib import Path

import numpy as np
import pytest

import regard
from regard.errors import InputError


def test_the_largest_weights_come_first(trained: regard.AnswerRun) -> None:
    result = trained.samples("cross", 1, samples=30)
    weights = [sample.weight for sample in result.samples]
    assert weights == sorted(weights, reverse=True) and result.looked_at == 30
    for sample in result.samples:
        shown = trained.attend(sample.input)
        assert sample.weight == pytest.approx(shown.cross.weights[1].max(), abs=1e-6)
        assert shown.cross.weights[1, sample.query, sample.key] == pytest.approx(sample.weight, abs=1e-6)
        assert sample.right == (shown.prediction == shown.truth)


def test_searches_for_a_token(trained: regard.AnswerRun) -> None:
    result = trained.samples("cross", 0, token="B", samples=30)
    assert {sample.key_label for sample in result.samples} == {"B"}
    for sample in result.samples[:3]:
        columns = [index for index, letter in enumerate(sample.input) if letter == "B"]
        assert sample.weight == pytest.approx(
            np.max(trained.attend(sample.input).cross.weights[0][:, columns]), abs=1e-6
        )
    with pytest.raises(InputError, match="token 'Q' is in none of 30 inputs: choose another token, such as"):
        trained.samples("cross", 0, token="Q", samples=30)


def test_wrong_answers_come_first(tmp_path: Path) -> None:
    run = regard.train("counting", steps=150, hidden=8, progress=False, savepath=tmp_path)
    result = run.samples("cross", 0, wrong_first=True, samples=20)
    assert result.wrong is not None and 0 < result.wrong < 20, "the test needs correct and incorrect answers"
    assert [sample.right for sample in result.samples] == [False] * result.wrong + [True] * (20 - result.wrong)
    assert f"{result.wrong} answered wrongly" in result.summary()


def test_refuses_unknown_layers_and_heads(trained: regard.AnswerRun) -> None:
    with pytest.raises(InputError, match="layer 'croos' is unknown"):
        trained.samples("croos", 0)
    with pytest.raises(InputError, match="head 9 is out of range"):
        trained.samples("cross", 9)


def test_compares_answers_with_their_targets(tmp_path: Path) -> None:
    run = regard.train("reverse", steps=5, hidden=8, batchsize=4, progress=False, savepath=tmp_path)
    result = run.samples(run.layers[0].name, 0, samples=12, wrong_first=True)
    assert result.wrong == 12
    assert all(sample.right is False for sample in result.samples)
