"""The intermediate values of a page equal those of `explain`."""

import base64
import zlib
from typing import Any

import numpy as np
import pytest

import regard
from regard.interpret import explanation
from regard.viz.page import map_data

INPUT = "BCCCBAABACCCA"


@pytest.fixture(params=["trained", "translator"])
def run(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def _numbers(data: Any) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(data["numbers"])), "<f4").reshape(data["shape"])


def test_equal_to_those_of_explain(run: Any) -> None:
    shown = run.with_sums(run.attend(seed=3))
    for name, layer in map_data(shown)["sums"]["layers"].items():
        heads, queries, keys = shown.layers[name].weights.shape
        result = {part: _numbers(data) for part, data in layer.items() if _packs(data)}
        for head, query, key in ((0, 0, 0), (heads - 1, queries - 1, keys - 1)):
            explanation = run.explain(shown.input, layer=name, head=head, output=query, key=key)
            for part in ("scores", "weights", "context", "may_see"):
                assert np.allclose(result[part][head, query], getattr(explanation, part), atol=1e-5), part
            assert np.allclose(result["values"][head], explanation.values, atol=1e-5)
            assert np.allclose(result["added"][query], explanation.added, atol=1e-5)
            if explanation.own_part is not None:
                assert np.allclose(result["own_part"][head, query], explanation.own_part, atol=1e-5)
            if explanation.after_norm is not None:
                assert np.allclose(result["before_norm"][query], explanation.before_norm, atol=1e-5)
                assert np.allclose(result["after_norm"][query], explanation.after_norm, atol=1e-5)
            assert np.allclose(_steps(layer["steps"], head, query, key), list(explanation.steps.values()), atol=1e-5)
            assert layer["scale"] == explanation.scale
            if explanation.answered is not None:
                assert shown.sums.answers[query].logits == pytest.approx(explanation.answered.logits, abs=1e-5)


def _packs(data: Any) -> bool:
    return isinstance(data, dict) and "numbers" in data


def _steps(steps: Any, head: int, query: int, key: int) -> list[np.ndarray]:
    result: list[np.ndarray] = []
    for step in steps:
        if step["of"] == "product":
            first, second = step["factors"]
            result.append(result[first] * result[second])
        else:
            place = {"query": (query,), "key": (key,), "pair": (query, key)}[step["of"]]
            result.append(_numbers(step["numbers"])[(head, *place)])
    return result


def test_large_maps_get_no_intermediate_values(trained: regard.AnswerRun, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = trained.attend(INPUT)
    monkeypatch.setattr(explanation, "MAX_NUMBERS", 100)
    assert trained.with_sums(shown) is shown
    monkeypatch.setattr(explanation, "MAX_WEIGHTS", 100)
    assert trained.with_sums(shown) is shown


def test_changed_models_get_no_intermediate_values(trained: regard.AnswerRun) -> None:
    with regard.intervene(trained.model, "cross", heads=[0], to="uniform"):
        touched = trained.attend(INPUT)
    assert trained.with_sums(touched).sums is None
    assert "sums" not in map_data(trained.attend(INPUT))
