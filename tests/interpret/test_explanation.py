"""Each step of an explanation follows from the previous step, and the last step is the model's answer."""

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.attention.layer import find_layer
from regard.attention.multihead import MultiHeadAttention
from regard.interpret import explanation
from regard.interpret.explanation import Explanation
from regard.viz.page import map_data
from tests.conftest import Command
from tests.german import write

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "query": ("counting", {}),
    "query, heads, encoder, positions": ("signal2", {"pos_enc": True, "enc_layers": 1}),
    "query, self-attention": ("difference", {"self_att": True, "multihead": True}),
    "query, all lengths": ("counting", {"vary_len": True}),
    "dot": ("counting", {"score": "dot"}),
    "general": ("counting", {"score": "general"}),
    "concat": ("counting", {"score": "concat"}),
    "additive": ("counting", {"score": "additive"}),
    "pooling": ("recall", {}),
    "luong": ("reverse", {"max_len": 6}),
    "bahdanau": ("reverse", {"max_len": 6, "score": "additive", "context": "cell", "query": "previous"}),
    "input feeding": ("reverse", {"max_len": 6, "input_feeding": True, "context": "output", "query": "current"}),
    "transformer": ("reverse", {"max_len": 6, "model": "transformer", "heads": 2}),
    "transformer, rotary, pre-norm": (
        "reverse",
        {"max_len": 6, "model": "transformer", "heads": 2, "positions": "rotary", "pre_norm": True},
    ),
}
TINY: dict[str, Any] = {"hidden": 8, "steps": 5, "batchsize": 4, "progress": False}


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of every kind of model."""
    task, flags = RUNS[request.param]
    return regard.train(task, savepath=tmp_path_factory.mktemp("runs"), **{**TINY, **flags})


def assert_close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, atol=1e-6, rtol=1e-6)


def check_steps(result: Explanation) -> None:
    """Recompute every step from the previous step."""
    assert_close(sum(list(result.steps.values())[-1]) * result.scale, result.score)
    scores = np.where(result.may_see, result.scores, -np.inf) / result.temperature
    shares = np.exp(scores - scores.max())
    assert_close(shares / shares.sum(), result.weights)
    assert_close(np.array(result.weights) @ np.array(result.values), result.context)
    if result.before_norm is not None:
        before = np.array(result.before_norm)
        normed = (before - before.mean()) / np.sqrt(before.var() + 1e-5)
        assert np.corrcoef(normed, result.after_norm)[0, 1] > 0.95  # the gain is hardly trained
    if result.answered is not None:
        logits, shares = np.array(result.answered.logits), np.array(result.answered.probabilities)
        assert_close(np.exp(logits - logits[0]), shares / shares[0])


def test_every_step_follows_from_the_one_before(run: Any) -> None:
    input = run.draw(seed=1)
    shown = run.attend(input)
    for layer in run.layers:
        mapped = shown.layers[layer.name]
        for head in range(layer.heads):
            for output in {0, mapped.weights.shape[1] - 1}:
                result = run.explain(input, layer=layer.name, head=head, output=output)
                check_steps(result)
                assert_close(result.weights, mapped.weights[head, output, : len(result.weights)])
                assert result.key == int(np.argmax(result.weights))


def test_the_last_step_is_the_models_answer(run: Any) -> None:
    input = run.draw(seed=1)
    shown = run.attend(input)
    for output in range(shown.cross.weights.shape[1]):
        result = run.explain(input, output=output).answered
        assert result is not None
        if result.answer in result.classes:  # a search that is cut short may end with an unlikely symbol
            assert_close(result.probabilities[result.classes.index(result.answer)], result.probability)
        if not isinstance(shown.prediction, str):
            assert result.answer == result.classes[0]


@torch.no_grad()
def test_records_keep_the_values_behind_the_weights(run: Any) -> None:
    inputs = run.unseen(3, seed=1)
    with regard.record(run.model) as records, regard.record(run.model, "*") as cache:
        run.loss(inputs)
    for layer in run.layers:
        record, score = records[layer.name], find_layer(run.model, layer.name).score
        query, key, value, context = (cache[f"{layer.name}.{kind}"].transpose(1, 2) for kind in ("q", "k", "v", "z"))
        torch.testing.assert_close(cache[f"{layer.name}.weights"], record.weights)
        recorded = cache[f"{layer.name}.scores"]
        scores = recorded if record.mask is None else recorded.masked_fill(~record.mask, -torch.inf)
        torch.testing.assert_close(scores.softmax(-1), record.weights)
        torch.testing.assert_close(context, record.weights @ value)
        own = score(query, key).where(recorded != -torch.inf, -torch.inf)
        torch.testing.assert_close(own, recorded, atol=1e-5, rtol=1e-5)


def test_parts_of_heads_sum_to_the_output(run: Any) -> None:
    layer = run.layers[0]
    module = find_layer(run.model, layer.name)
    if not isinstance(module, MultiHeadAttention):
        pytest.skip("the layer has one head")
    result = [run.explain(run.draw(), layer=layer.name, head=head) for head in range(layer.heads)]
    assert_close(np.sum([head.own_part for head in result], axis=0), result[0].added)


def test_the_last_matrix_product_gives_the_logits(trained: regard.AnswerRun) -> None:
    result = trained.explain(seed=3).answered
    assert result is not None
    output = trained.model.output
    assert isinstance(output, torch.nn.Linear)
    logits = output(torch.tensor(result.state, dtype=torch.float32)).detach()
    assert_close(result.logits, logits.sort(descending=True).values[: len(result.logits)])


def test_explains_the_weights_of_an_intervention(trained: regard.AnswerRun) -> None:
    with regard.intervene(trained.model, "cross", heads=[0], to="uniform"):
        result = trained.explain(seed=1)
    assert_close(result.weights, [1 / len(result.weights)] * len(result.weights))
    assert find_layer(trained.model, "cross").hook is None


@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_a_temperature_divides_the_scores(trained: regard.AnswerRun, temperature: float) -> None:
    plain = trained.explain(seed=1, head=1)
    result = trained.explain(seed=1, head=1, key=plain.key, temperature=temperature)
    check_steps(result)
    assert result.scores == plain.scores and result.answered != plain.answered
    assert (result.weight > plain.weight) == (temperature < 1)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(regard.InputError, match="temperature .* is out of range: (give|choose) a"):
            trained.explain(seed=1, temperature=wrong)


def test_refuses_unknown_heads_layers_and_steps(trained: regard.AnswerRun, tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"head": 2}, "head 2 is out of range: choose from 0 to 1"),
        ({"output": 3}, "output 3 is out of range: choose from 0 to 2"),
        ({"key": 50}, "key 50 is out of range"),
        ({"layer": "no"}, "layer 'no' is not in the model: choose "),
    ]
    for flags, message in wrong:
        with pytest.raises(regard.InputError, match=message):
            trained.explain(**flags)
    run = regard.train("recall", pooling="last", savepath=tmp_path, **TINY)
    with pytest.raises(regard.InputError, match="no attention to explain"):
        run.explain()


def test_explain_command(command: Command, trained: regard.AnswerRun, tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    status, out, err = command("explain", trained.folder, "--head", "1", "--output", "2", "--json", file)
    assert (status, err) == (0, "")
    for part in ("1. The score", "2. The weights", "3. The context", "4. The answer", "sum to 1.0000"):
        assert part in out
    assert max(map(len, out.splitlines()[1:])) <= 80
    stored = json.loads(file.read_text())
    assert stored["head"] == 1 and stored["query"] == 2 and len(stored["weights"]) == len(stored["key_labels"])


def test_explains_a_translation(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"vocab_size": 60, "hidden": 16, "heads": 2, "inner": 16, "steps": 3, "tokens": 200}
    run = regard.train("translation", **write(tmp_path), **flags, savepath=tmp_path, progress=False)
    result = run.explain("Heute läuft der alte Hund.", layer="decoder.0.cross", head=1)
    check_steps(result)
    assert result.answered is not None and len(result.answered.classes) == 20
    encoder = run.explain("Heute läuft der alte Hund.", layer="encoder.0.self_attention")
    assert encoder.answered is None and encoder.query_label == encoder.key_labels[0]


# The intermediate values of a page equal those of `explain`.


INPUT = "BCCCBAABACCCA"


@pytest.fixture(params=["trained", "translator"])
def viewed(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def _numbers(data: Any) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(data["numbers"])), "<f4").reshape(data["shape"])


def test_values_of_a_page_equal_those_of_explain(viewed: Any) -> None:
    shown = viewed.with_sums(viewed.attend(seed=3))
    for name, layer in map_data(shown)["sums"]["layers"].items():
        heads, queries, keys = shown.layers[name].weights.shape
        result = {part: _numbers(data) for part, data in layer.items() if isinstance(data, dict) and "numbers" in data}
        for head, query, key in ((0, 0, 0), (heads - 1, queries - 1, keys - 1)):
            own = viewed.explain(shown.input, layer=name, head=head, output=query, key=key)
            for part in ("scores", "weights", "context", "may_see"):
                assert np.allclose(result[part][head, query], getattr(own, part), atol=1e-5), part
            assert np.allclose(result["values"][head], own.values, atol=1e-5)
            assert np.allclose(result["added"][query], own.added, atol=1e-5)
            if own.own_part is not None:
                assert np.allclose(result["own_part"][head, query], own.own_part, atol=1e-5)
            if own.after_norm is not None:
                assert np.allclose(result["before_norm"][query], own.before_norm, atol=1e-5)
                assert np.allclose(result["after_norm"][query], own.after_norm, atol=1e-5)
            assert np.allclose(_steps(layer["steps"], head, query, key), list(own.steps.values()), atol=1e-5)
            assert layer["scale"] == own.scale
            if own.answered is not None:
                assert shown.sums.answers[query].logits == pytest.approx(own.answered.logits, abs=1e-5)


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
