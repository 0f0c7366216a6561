"""`REGARD_REFERENCE=1` disables every fast path, and the reference code computes the same results."""

import ast
import ctypes
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import regard
from regard import fast
from regard.attention.scores import General, additive_scores, pairwise_scores
from regard.decoding.search import ModuleDecoder, make_decoder
from regard.fast import memory, onednn, threads
from regard.fast.softmax import padded_softmax
from regard.models.query import QueryModel, QueryModelConfig
from regard.models.recurrent import RecurrentDecoder
from regard.models.transformer import Transformer, TransformerConfig
from regard.training.checkpoint import Adam

SOURCE = Path(regard.__file__).parent


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable fast paths."""
    monkeypatch.setenv("REGARD_REFERENCE", "1")


@pytest.mark.parametrize(("value", "expected"), [("", True), ("0", True), ("1", False)])
def test_the_environment_variable_decides(value: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_REFERENCE", value)
    assert fast.enabled() == expected


@pytest.mark.usefixtures("reference")
def test_models_use_autograd_and_their_own_steps() -> None:
    query = QueryModel(QueryModelConfig(hidden=8), letters=3, input_len=5, outputs=2, classes=6)
    assert query.fast_gradient() is None
    config = TransformerConfig(hidden=8, heads=2, inner=8)
    transformer = Transformer(config, source_symbols=9, target_symbols=9, longest=9).eval()
    decoder = make_decoder(transformer)
    assert isinstance(decoder, ModuleDecoder) and decoder.logits == transformer.logits


@pytest.mark.usefixtures("reference")
def test_a_recurrent_decoder_takes_single_steps(generator: torch.Generator) -> None:
    decoder = RecurrentDecoder(3, 5, 7, score=General(5, 7), input_feeding=True)
    states, last = torch.randn(2, 4, 7, generator=generator), torch.randn(2, 7, generator=generator)
    memory = decoder.remember(states, last, torch.ones(2, 4, dtype=torch.bool))
    outputs = decoder(torch.randn(2, 6, 3, generator=generator), memory)
    assert outputs.grad_fn is not None and "Fused" not in outputs.grad_fn.name()


@pytest.mark.usefixtures("reference")
def test_kernels_are_those_of_pytorch(monkeypatch: pytest.MonkeyPatch, generator: torch.Generator) -> None:
    monkeypatch.setattr(onednn, "linear_by_onednn", lambda *_: pytest.fail("oneDNN was called"))
    monkeypatch.setattr("regard.attention.scores.blockwise_scores", lambda *_: pytest.fail("blocks were computed"))
    monkeypatch.setattr(torch.nn.functional, "pad", lambda *_: pytest.fail("rows were padded"))
    matrix = torch.randn(2000, 1000, generator=generator)
    with torch.no_grad():
        assert torch.equal(onednn.onednn_matmul(matrix, matrix.t()), matrix @ matrix.t())
    query, keys, energy = (torch.randn(*shape, generator=generator) for shape in ((2, 3, 4), (2, 5, 4), (4,)))
    assert torch.equal(additive_scores(query, keys, energy), pairwise_scores(query, keys, energy))
    assert torch.equal(padded_softmax(query, torch.float32), query.softmax(-1))


@pytest.mark.usefixtures("reference")
def test_settings_of_the_process_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pytest.fail("the C library was called"))
    memory.keep_memory()
    monkeypatch.setattr(torch, "set_num_threads", lambda count: pytest.fail("the number of threads was set"))
    with threads.limit_threads(nn.Linear(2, 2)):
        pass
    assert threads.map_batches(nn.Linear(2, 2), str, range(3)) == ["0", "1", "2"]


def test_adam_of_pytorch_takes_the_same_steps(monkeypatch: pytest.MonkeyPatch, generator: torch.Generator) -> None:
    start = {name: torch.randn(5, 3, generator=generator) for name in "abc"}
    runs = []
    for switch in ("0", "1"):
        monkeypatch.setenv("REGARD_REFERENCE", switch)
        parameters = {name: nn.Parameter(value.clone()) for name, value in start.items()}
        optimizer = Adam(parameters, betas=(0.95, 0.98), lr_factors={"a": 1.0, "b": 8.0, "c": 1.0})
        for step in range(4):
            for number, name in enumerate("ab" if step == 2 else "abc"):
                parameters[name].grad = (parameters[name].detach() + number).cos()
            optimizer.step(0.01)
            optimizer.zero_grad()
        runs.append((parameters, optimizer.moments))
    for name in start:
        torch.testing.assert_close(runs[0][0][name], runs[1][0][name], atol=1e-6, rtol=1e-6)
        for moment, value in runs[0][1][name].items():
            torch.testing.assert_close(value, runs[1][1][name][moment], atol=1e-6, rtol=1e-6)


def test_only_fast_paths_call_private_functions_of_pytorch() -> None:
    """The library uses only public names of torch, its operators and optimizers. `torch._dynamo` is imported
    only for its exceptions.
    """
    private = []
    for path in sorted(SOURCE.rglob("*.py")):
        if path.parent == SOURCE / "fast":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and re.fullmatch(r"torch(\.\w+)*\._\w+(\.\w+)*", ast.unparse(node.func)):
                private.append(f"{path.relative_to(SOURCE)}: {ast.unparse(node.func)}")
    assert private == []
