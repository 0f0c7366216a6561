"""The sums that a page keeps are those that `explain` tells."""

import base64
import zlib
from typing import Any

import numpy as np
import pytest

import regard
from regard.interpret import intermediates as examined
from regard.viz.page import as_json

INPUT = "BCCCBAABACCCA"


@pytest.fixture(params=["trained", "translator"])
def run(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def _numbers(data: Any) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(data["numbers"])), "<f4").reshape(data["shape"])


def test_they_are_those_of_explain(run: Any) -> None:
    shown = run.with_sums(run.attend(seed=3))
    for name, layer in as_json(shown)["sums"]["layers"].items():
        heads, queries, keys = shown.layers[name].weights.shape
        found = {part: _numbers(data) for part, data in layer.items() if _packs(data)}
        for head, query, key in ((0, 0, 0), (heads - 1, queries - 1, keys - 1)):
            told = run.explain(shown.input, layer=name, head=head, output=query, key=key)
            for part in ("scores", "weights", "context", "may_see"):
                assert np.allclose(found[part][head, query], getattr(told, part), atol=1e-5), part
            assert np.allclose(found["values"][head], told.values, atol=1e-5)
            assert np.allclose(found["added"][query], told.added, atol=1e-5)
            if told.own_part is not None:
                assert np.allclose(found["own_part"][head, query], told.own_part, atol=1e-5)
            if told.after_norm is not None:
                assert np.allclose(found["before_norm"][query], told.before_norm, atol=1e-5)
                assert np.allclose(found["after_norm"][query], told.after_norm, atol=1e-5)
            assert np.allclose(_steps(layer["steps"], head, query, key), list(told.steps.values()), atol=1e-5)
            assert layer["scale"] == told.scale
            if told.answered is not None:
                assert shown.sums.answers[query].logits == pytest.approx(told.answered.logits, abs=1e-5)


def _packs(data: Any) -> bool:
    return isinstance(data, dict) and "numbers" in data


def _steps(steps: Any, head: int, query: int, key: int) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    for step in steps:
        if step["of"] == "product":
            one, other = step["factors"]
            found.append(found[one] * found[other])
        else:
            place = {"query": (query,), "key": (key,), "pair": (query, key)}[step["of"]]
            found.append(_numbers(step["numbers"])[(head, *place)])
    return found


def test_too_many_are_not_kept(trained: regard.AnswerRun, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = trained.attend(INPUT)
    monkeypatch.setattr(examined, "MOST_NUMBERS", 100)
    assert trained.with_sums(shown) is shown
    monkeypatch.setattr(examined, "MOST_WEIGHTS", 100)
    assert trained.with_sums(shown) is shown


def test_those_of_another_model_are_not_kept(trained: regard.AnswerRun) -> None:
    with regard.intervene(trained.model, "cross", heads=[0], to="uniform"):
        touched = trained.attend(INPUT)
    assert trained.with_sums(touched).sums is None
    assert "sums" not in as_json(trained.attend(INPUT))
