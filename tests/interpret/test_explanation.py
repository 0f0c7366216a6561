"""How a weight comes about: every line follows from the one before, and the last is the model's own answer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.attention import MultiHeadAttention, find_layer
from regard.interpret import Explanation
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
    "luong": ("reverse", {}),
    "bahdanau": ("reverse", {"score": "additive", "context": "cell", "query": "previous"}),
    "input feeding": ("reverse", {"input_feeding": True, "context": "output", "query": "current"}),
    "transformer": ("reverse", {"model": "transformer", "heads": 2}),
    "transformer, rotary, pre-norm": (
        "reverse",
        {"model": "transformer", "heads": 2, "positions": "rotary", "pre_norm": True},
    ),
}
TINY: dict[str, Any] = {"hidden": 8, "steps": 5, "batchsize": 4, "progress": False}


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of every kind of model."""
    task, flags = RUNS[request.param]
    return regard.train(task, savepath=tmp_path_factory.mktemp("runs"), **{**TINY, **flags})


def close(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one, other, atol=1e-6, rtol=1e-6)


def check_sum(found: Explanation) -> None:
    """Work out every line anew, from the one before it."""
    close(sum(list(found.steps.values())[-1]) * found.scale, found.score)
    scores = np.where(found.may_see, found.scores, -np.inf) / found.temperature
    shares = np.exp(scores - scores.max())
    close(shares / shares.sum(), found.weights)
    close(np.array(found.weights) @ np.array(found.values), found.context)
    if found.before_norm is not None:
        before = np.array(found.before_norm)
        normed = (before - before.mean()) / np.sqrt(before.var() + 1e-5)
        assert np.corrcoef(normed, found.after_norm)[0, 1] > 0.95  # the gain is hardly trained
    if found.answered is not None:
        logits, shares = np.array(found.answered.logits), np.array(found.answered.probabilities)
        close(np.exp(logits - logits[0]), shares / shares[0])


def test_every_line_follows_from_the_one_before(run: Any) -> None:
    input = run.draw(seed=1)
    shown = run.attend(input)
    for layer in run.layers:
        mapped = shown.layers[layer.name]
        for head in range(layer.heads):
            for output in {0, mapped.weights.shape[1] - 1}:
                found = run.explain(input, layer=layer.name, head=head, output=output)
                check_sum(found)
                close(found.weights, mapped.weights[head, output, : len(found.weights)])
                assert found.key == int(np.argmax(found.weights))


def test_the_last_line_is_the_models_own_answer(run: Any) -> None:
    input = run.draw(seed=1)
    shown = run.attend(input)
    for output in range(shown.cross.weights.shape[1]):
        found = run.explain(input, output=output).answered
        assert found is not None
        if found.answer in found.classes:  # a search that is cut short ends with what nobody thought likely
            close(found.probabilities[found.classes.index(found.answer)], found.probability)
        if not isinstance(shown.prediction, str):
            assert found.answer == found.classes[0]


@torch.no_grad()
def test_records_keep_what_the_weights_came_of(run: Any) -> None:
    inputs = run.unseen(3, seed=1)
    with regard.record(run.model, inside=True) as records:
        run.loss(inputs)
    for layer in run.layers:
        record, score = records[layer.name], find_layer(run.model, layer.name).score
        kept = record.inside
        assert kept is not None
        torch.testing.assert_close(kept.weights, record.weights)
        scores = kept.scores if record.mask is None else kept.scores.masked_fill(~record.mask, -torch.inf)
        torch.testing.assert_close(scores.softmax(-1), record.weights)
        torch.testing.assert_close(kept.context, record.weights @ kept.value)
        own = score(kept.query, kept.key).where(kept.scores != -torch.inf, -torch.inf)
        torch.testing.assert_close(own, kept.scores, atol=1e-5, rtol=1e-5)
    with regard.record(run.model) as records:
        run.loss(inputs)
    assert all(record.inside is None for record in records.values())


def test_heads_add_up(run: Any) -> None:
    layer = run.layers[0]
    module = find_layer(run.model, layer.name)
    if not isinstance(module, MultiHeadAttention):
        pytest.skip("one head is all there is")
    found = [run.explain(run.draw(), layer=layer.name, head=head) for head in range(layer.heads)]
    close(np.sum([each.own_part for each in found], axis=0), found[0].added)


def test_the_last_matrix_makes_the_logits_of_the_state(trained: regard.AnswerRun) -> None:
    found = trained.explain(seed=3).answered
    assert found is not None
    output = trained.model.output
    assert isinstance(output, torch.nn.Linear)
    logits = output(torch.tensor(found.state, dtype=torch.float32)).detach()
    close(found.logits, logits.sort(descending=True).values[: len(found.logits)])


def test_interventions_are_explained_as_they_are(trained: regard.AnswerRun) -> None:
    with regard.intervene(trained.model, "cross", heads=[0], to="uniform"):
        found = trained.explain(seed=1)
    close(found.weights, [1 / len(found.weights)] * len(found.weights))
    assert find_layer(trained.model, "cross").hook is None


@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_a_temperature_divides_the_scores(trained: regard.AnswerRun, temperature: float) -> None:
    plain = trained.explain(seed=1, head=1)
    found = trained.explain(seed=1, head=1, key=plain.key, temperature=temperature)
    check_sum(found)
    assert found.scores == plain.scores and found.answered != plain.answered
    assert (found.weight > plain.weight) == (temperature < 1)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(regard.InputError, match="give a number above 0"):
            trained.explain(seed=1, temperature=wrong)


def test_what_is_not_there_is_said(trained: regard.AnswerRun, tmp_path: Path) -> None:
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


def test_by_command(
    command: Callable[..., tuple[int, str, str]], trained: regard.AnswerRun, tmp_path: Path
) -> None:
    file = tmp_path / "found.json"
    status, out, err = command("explain", trained.folder, "--head", "1", "--output", "2", "--json", file)
    assert (status, err) == (0, "")
    for part in ("1. The score", "2. The weights", "3. The context", "4. The answer", "sum to 1.0000"):
        assert part in out
    assert max(map(len, out.splitlines()[1:])) <= 80
    told = json.loads(file.read_text())
    assert told["head"] == 1 and told["query"] == 2 and len(told["weights"]) == len(told["key_labels"])


def test_a_translation_is_explained_by_its_words(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"vocab_size": 60, "hidden": 16, "heads": 2, "inner": 16, "steps": 3, "tokens": 200}
    run = regard.train("translation", **write(tmp_path), **flags, savepath=tmp_path, progress=False)
    found = run.explain("Heute läuft der alte Hund.", layer="decoder.0.cross", head=1)
    check_sum(found)
    assert found.answered is not None and len(found.answered.classes) == 20
    encoder = run.explain("Heute läuft der alte Hund.", layer="encoder.0.self_attention")
    assert encoder.answered is None and encoder.query_label == encoder.key_labels[0]
