"""Samples that a head weighs most: found among unseen ones, where it looks, with what was answered."""

from pathlib import Path

import numpy as np
import pytest

import regard
from regard.errors import InputError


def test_the_largest_weights_come_first(trained: regard.AnswerRun) -> None:
    found = trained.samples("cross", 1, samples=30)
    weights = [each.weight for each in found.samples]
    assert weights == sorted(weights, reverse=True)
    assert found.looked_at == 30
    for each in found.samples:
        shown = trained.attend(each.input)
        assert each.weight == pytest.approx(shown.cross.weights[1].max(), abs=1e-6)
        assert shown.cross.weights[1, each.query, each.key] == pytest.approx(each.weight, abs=1e-6)
        assert each.right == (shown.prediction == shown.truth)


def test_a_token_is_looked_for(trained: regard.AnswerRun) -> None:
    found = trained.samples("cross", 0, token="B", samples=30)
    assert {each.key_label for each in found.samples} == {"B"}
    for each in found.samples[:3]:
        columns = [place for place, letter in enumerate(each.input) if letter == "B"]
        assert each.weight == pytest.approx(
            np.max(trained.attend(each.input).cross.weights[0][:, columns]), abs=1e-6
        )
    with pytest.raises(InputError, match="token 'Q' is in none of 30 inputs: choose one such as"):
        trained.samples("cross", 0, token="Q", samples=30)


def test_wrong_answers_stand_first(tmp_path: Path) -> None:
    run = regard.train("counting", steps=150, hidden=8, progress=False, savepath=tmp_path)
    found = run.samples("cross", 0, wrong_first=True, samples=20)
    assert found.wrong is not None and 0 < found.wrong < 20, "some of both, or nothing is told"
    assert [each.right for each in found.samples] == [False] * found.wrong + [True] * (20 - found.wrong)
    assert f"{found.wrong} answered wrongly" in found.summary()


def test_what_is_not_there_is_refused(trained: regard.AnswerRun) -> None:
    with pytest.raises(InputError, match="layer 'croos' is unknown"):
        trained.samples("croos", 0)
    with pytest.raises(InputError, match="head 9 is out of range"):
        trained.samples("cross", 9)


def test_a_translation_is_measured_by_the_target_that_it_was_given(tmp_path: Path) -> None:
    run = regard.train("reverse", steps=5, hidden=8, batchsize=4, progress=False, savepath=tmp_path)
    found = run.samples(run.layers[0].name, 0, samples=12, wrong_first=True)
    assert found.wrong == 12
    assert all(each.right is False for each in found.samples)
