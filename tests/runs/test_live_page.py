"""The JavaScript of a page without a server returns the same answers as PyTorch (for a browser, see tests/browser)."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.data.batch import PairBatch, collate, read_source
from regard.runs.live_page import MAX_PARAMETERS, live_data, live_page
from regard.runs.run_types import AnyRun
from regard.server.explorer import Explorer
from regard.server.messages import InterventionRequest, Question

NODE = shutil.which("node")
ANSWER = Path(__file__).parents[1] / "js" / "live" / "answer.js"
INPUTS = 40
RUNS: dict[str, dict[str, Any]] = {
    "counting": {"hidden": 16, "steps": 60},
    "difference": {"hidden": 8, "steps": 20, "vary_len": True, "self_att": True},
    "signal": {"hidden": 12, "steps": 20, "score": "additive"},
    "signal2": {"hidden": 12, "heads": 3, "steps": 20, "positions": "sinusoidal", "score": "general"},
    "reverse": {"model": "transformer", "hidden": 12, "heads": 3, "inner": 20, "steps": 20},
    "copy": {"hidden": 10, "steps": 20, "score": "concat"},
    "dates": {"hidden": 10, "steps": 20, "cell": "gru", "context": "cell", "score": "dot", "enc_layers": 2},
    "sort": {"model": "transformer", "hidden": 12, "heads": 2, "inner": 8, "steps": 10, "positions": "rotary"}
    | {"pre_norm": False, "activation": "gelu", "bias": True, "tied": False, "output_bias": True},
}
"""One run for each kind of model, score, position and cell; all sizes differ, so that exchanged axes are detected."""


@pytest.fixture(scope="session", params=list(RUNS))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AnyRun:
    name = request.param
    flags = {**RUNS[name], "savepath": tmp_path_factory.mktemp(name), "progress": False}
    return regard.train(name, **flags)


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., list[Any]]:
    """Return a function that sends requests to the JavaScript of a page and returns the answers."""
    if NODE is None:
        pytest.skip("needs Node")

    def answers(data: Any, requests: Sequence[Any]) -> list[Any]:
        file = tmp_path / "requests.json"
        file.write_text(json.dumps({"data": data, "requests": requests}))
        done = subprocess.run([str(NODE), str(ANSWER), str(file)], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    return answers


@torch.inference_mode()
def logits_of(run: AnyRun, text: str) -> np.ndarray:
    """Return PyTorch's logits for the answer to one input."""
    if isinstance(run, regard.AnswerRun):
        return run.model.eval()(run.task.parse(text))[0].numpy()
    assert isinstance(run, regard.PairRun)
    [[best]] = run.search([text])
    batch = PairBatch(read_source([text], run.task.source_vocabulary), collate([best.tokens]))
    return run.model(batch.source, batch.source_mask, batch.target_in)[0].numpy()


def test_logits_are_those_of_pytorch(run: AnyRun, ask: Callable[..., list[Any]]) -> None:
    data = live_data(run)
    texts = [run.draw(seed=1000 + seed) for seed in range(INPUTS)]
    same = 0
    for text, answer in zip(texts, ask(data, [["logits", {"input": text}] for text in texts]), strict=True):
        logits, expected = np.array(answer), logits_of(run, text)
        length = min(len(logits), len(expected))
        # Two tokens may have equal probabilities, up to rounding errors: the answers differ after such a step.
        differing = np.flatnonzero(logits[:length].argmax(-1) != expected[:length].argmax(-1))
        compared = int(differing[0]) + 1 if len(differing) else length
        same += compared == len(expected) == len(logits)
        assert np.allclose(logits[:compared], expected[:compared], rtol=1e-6, atol=1e-4)
    assert same >= 0.95 * INPUTS


def test_answers_are_those_of_the_server(run: AnyRun, ask: Callable[..., list[Any]]) -> None:
    """Maps, labels, notes and the computation of a weight in each layer are equal, with and without interventions."""
    data, explorer = live_data(run), Explorer(run)
    text = data["samples"][0]["source"]
    first, last = run.layers[0].name, run.layers[-1].name
    changes: list[list[dict[str, Any]]] = [
        [],
        [{"layer": last, "heads": [0], "to": "off"}],
        [
            {"layer": last, "heads": [0], "to": "uniform"},
            {"layer": first, "heads": [0], "to": 0.7, "query": 0, "key": 0},
        ],
    ]
    requests: list[Any] = []
    expected: list[Any] = []
    for change in changes:
        interventions = [InterventionRequest(**fields) for fields in change]
        requests.append(["api/attend", {"input": text, "interventions": change}])
        expected.append(explorer.attend(Question(text, 0, interventions)))
        for layer in run.layers:
            which: dict[str, Any] = {
                "layer": layer.name,
                "head": layer.heads - 1,
                "output": 0,
                "key": 0,
                "temperature": 2.0,
            }
            requests.append(["api/explain", {"input": text, "interventions": change, **which}])
            expected.append(explorer.explain(Question(text, 0, interventions), **which))
    for answer, wanted in zip(ask(data, requests), expected, strict=True):
        for name in ("layer", "input", "note"):  # of an explanation: the page has them already
            if "scores" in wanted:
                wanted.pop(name)
        assert_same(answer, wanted)


def test_notes_are_those_of_the_server(run: AnyRun, ask: Callable[..., list[Any]]) -> None:
    text = run.draw(seed=0)
    short_and_long = text[: len(text) // 2 + 2], text * 4
    texts = [short_and_long[isinstance(run, regard.PairRun)]]
    texts += [text + "@"] if isinstance(run, regard.PairRun) else []
    for answer, given in zip(ask(live_data(run), [["api/attend", {"input": t}] for t in texts]), texts, strict=True):
        assert answer["map"]["note"] == run.attend(given).note


def assert_same(answer: Any, expected: Any, where: str = "") -> None:
    """Fail unless two answers have the same values; numbers may differ by 1e-3."""
    if isinstance(expected, dict):
        assert answer.keys() == expected.keys(), where
        for name in expected:
            if name != "opens":  # the page opens with the layer of its first input
                assert_same(answer[name], expected[name], f"{where}.{name}")
    elif isinstance(expected, list | tuple | np.ndarray):
        assert len(answer) == len(expected), where
        for index, value in enumerate(expected):
            assert_same(answer[index], value, f"{where}[{index}]")
    elif isinstance(expected, float | np.floating):
        assert answer == pytest.approx(float(expected), abs=1e-3), where
    else:
        assert answer == expected, where


def test_refused_inputs_are_those_of_the_run(learned_counting: regard.AnswerRun, ask: Callable[..., Any]) -> None:
    answers = ask(live_data(learned_counting), [["api/attend", {"input": text}] for text in ("ABX", "", "A" * 11)])
    for answer, text in zip(answers, ("ABX", "", "A" * 11), strict=True):
        with pytest.raises(regard.InputError) as refused:
            learned_counting.attend(text)
        assert answer["error"] == str(refused.value)


@pytest.fixture(scope="session")
def learned_counting(tmp_path_factory: pytest.TempPathFactory) -> regard.AnswerRun:
    folder = tmp_path_factory.mktemp("counting")
    run = regard.train("counting", hidden=8, steps=20, savepath=folder, progress=False)
    assert isinstance(run, regard.AnswerRun)
    return run


def test_gradient_is_that_of_pytorch(learned_counting: regard.AnswerRun, tmp_path: Path) -> None:
    if NODE is None:
        pytest.skip("needs Node")
    model, task = learned_counting.model, learned_counting.task
    batch = task.sample(30, torch.Generator().manual_seed(1))
    model.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(batch.inputs).flatten(0, 1), batch.targets.flatten())
    loss.backward()
    letters = range(len(task.vocabulary))
    samples = [
        {"counts": [int((row == letter).sum()) for letter in letters], "targets": targets.tolist()}
        for row, targets in zip(batch.inputs, batch.targets, strict=True)
    ]
    sizes = {"letters": len(task.vocabulary), "outputs": task.outputs, "classes": task.classes, "hidden": 8}
    weights = {name: value.detach().flatten().tolist() for name, value in model.named_parameters()}
    file = tmp_path / "batch.json"
    file.write_text(json.dumps({"weights": weights, "sizes": sizes, "samples": samples}))
    script = ANSWER.with_name("gradient.js")
    done = subprocess.run([str(NODE), str(script), str(file)], capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert answer["loss"] == pytest.approx(float(loss.detach()), abs=1e-5)
    assert answer["gradient"].keys() == weights.keys()
    for name, value in model.named_parameters():
        assert value.grad is not None
        assert np.allclose(answer["gradient"][name], value.grad.flatten(), atol=1e-4)


def test_page_has_no_address_to_load(learned_counting: regard.AnswerRun) -> None:
    page = live_page(learned_counting)
    assert "default-src 'none'" in page
    assert re.findall(r'(?:src|href)="(?!data:)[^"]+"', page.split('<script id="live"')[0]) == []


def test_size_for_half_a_million_parameters(tmp_path: Path) -> None:
    run = regard.train(
        "reverse", model="transformer", hidden=112, inner=208, steps=2, savepath=tmp_path, progress=False
    )
    count = sum(value.numel() for value in run.model.parameters())
    assert 470_000 < count < 510_000
    assert len(live_page(run).encode()) <= 1_500_000 * count / 500_000


@pytest.mark.parametrize(
    ("task", "flags", "reason"),
    [
        ("recall", {}, "model pooling is not one of query, transformer, recurrent"),
        ("copy", {"hidden": 400}, f"parameters, but a page stores at most {MAX_PARAMETERS:,}"),
    ],
)
def test_unsupported_runs_are_refused(tmp_path: Path, task: str, flags: dict[str, Any], reason: str) -> None:
    run = regard.train(task, steps=1, savepath=tmp_path, progress=False, **flags)
    with pytest.raises(regard.InputError, match=reason):
        regard.write_live_page(run, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_pruned_runs_are_refused(learned_counting: regard.AnswerRun, tmp_path: Path) -> None:
    pruned = replace(learned_counting, config=replace(learned_counting.config, kept_heads={"cross": [0]}))
    with pytest.raises(regard.InputError, match="its heads were pruned"):
        regard.write_live_page(pruned, tmp_path / "page.html")
