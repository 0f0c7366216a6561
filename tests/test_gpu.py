"""On a GPU, models, recordings, training and search give the results of the CPU.

The tests skip without a GPU. `python benchmarks/gpu.py` runs them first.
"""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.attention.multihead import MultiHeadAttention
from regard.decoding.controls import Controls
from regard.training import trainer
from regard.training.trainer import Interrupted
from tests.attention.catalogue import CASES, make_layer, make_states

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch supports"),
]
TINY: dict[str, Any] = {"hidden": 16, "heads": 2, "inner": 32}
TRANSFORMER = {**TINY, "enc_layers": 1, "dec_layers": 1, "tokenizer": "words", "vocab_size": 60, "dropout": 0.0}


def write_pairs(folder: Path) -> dict[str, Any]:
    """Write pairs whose target is the reversed source, for training and validation."""
    words = [f"w{number}" for number in range(20)]
    lines = [[words[(row * 7 + step * (row % 5 + 1)) % 20] for step in range(3 + row % 5)] for row in range(200)]
    text = "".join(f"{' '.join(line)}\t{' '.join(reversed(line))}\n" for line in lines)
    (folder / "pairs.tsv").write_text(text)
    return {"train": str(folder / "pairs.tsv"), "valid": str(folder / "pairs.tsv")}


@pytest.mark.parametrize(("part", "kind"), CASES)
def test_each_part_gives_the_results_of_the_cpu(part: str, kind: Any) -> None:
    layer = make_layer(part, kind)
    states, memory = make_states(kind)
    on_gpu = copy.deepcopy(layer).cuda()
    expected = layer(states, memory)
    output = on_gpu(states.cuda(), memory.cuda() if kind == "cross" else None)
    assert torch.allclose(output.cpu(), expected, atol=1e-10)
    expected.sum().backward()
    output.sum().backward()
    for (name, parameter), other in zip(layer.named_parameters(), on_gpu.parameters(), strict=True):
        if parameter.grad is None:
            assert other.grad is None, name
        else:
            assert other.grad is not None and torch.allclose(other.grad.cpu(), parameter.grad, atol=1e-9), name


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("options", [{}, {"rows": [0, 5]}, {"heads": [1]}])
def test_recording_changes_no_output(dtype: torch.dtype, tolerance: float, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(64, 4, mechanism="causal").to("cuda", dtype)
    states = torch.randn(2, 40, 64, device="cuda", dtype=dtype)
    with torch.no_grad():
        plain = layer(states)
        with regard.record(layer, **options) as records:
            recorded = layer(states)
    [record] = records.values()
    assert torch.allclose(recorded, plain, atol=tolerance, rtol=tolerance)
    assert record.weights.float().sum(-1).sub(1).abs().max() < 2 * tolerance


def train_on(device: str, monkeypatch: pytest.MonkeyPatch, task: str, folder: Path, **flags: Any) -> list[float]:
    """Train in float32 on a device, and return the losses."""
    with monkeypatch.context() as patch:
        if device == "cpu":
            patch.setattr(torch.cuda, "is_available", lambda: False)
        run = regard.train(task, **flags, precision="float32", savepath=folder / device, progress=False)
    return [line["loss"] for line in run.metrics]


@pytest.mark.parametrize("options", [{}, {"model": "recurrent"}, {"average": 0.0}])
def test_a_translator_trains_as_on_the_cpu(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {**write_pairs(tmp_path), **TRANSFORMER, "tokens": 200, "steps": 30, "validate_every": 15, **options}
    if "model" in options:
        for name in ("heads", "inner", "dec_layers"):
            del flags[name]
        flags |= {"embedding": 16}
    found, expected = (train_on(device, monkeypatch, "translation", tmp_path, **flags) for device in ("cuda", "cpu"))
    assert found == pytest.approx(expected, rel=2e-3)


def test_a_language_model_trains_as_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat. " * 200)
    flags = {**TINY, "text": str(tmp_path / "text.txt"), "layers": 2, "max_len": 32, "steps": 30, "snapshots": 2}
    found, expected = (train_on(device, monkeypatch, "text", tmp_path, **flags) for device in ("cuda", "cpu"))
    assert found == pytest.approx(expected, rel=2e-3)


@pytest.mark.filterwarnings("ignore")  # PyTorch's compiler warns
def test_low_precision_and_compiled_layers_train(tmp_path: Path) -> None:
    flags = {**write_pairs(tmp_path), **TRANSFORMER, "tokens": 200, "steps": 20}
    settings: list[dict[str, Any]] = [
        {"precision": "bfloat16"},
        {"precision": "float16"},
        {"precision": "bfloat16", "compile": True},
        {"r_drop": 1.0, "dropout": 0.1},
    ]
    for number, options in enumerate(settings):
        run = regard.train("translation", **{**flags, **options}, savepath=tmp_path / str(number), progress=False)
        losses = [line["loss"] for line in run.metrics]
        assert losses[-1] < losses[0], options


def test_an_interrupted_training_resumes_to_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {**write_pairs(tmp_path), **TRANSFORMER, "dropout": 0.2, "tokens": 200, "steps": 20}
    whole = regard.train("translation", **flags, savepath=tmp_path / "whole", progress=False)
    monkeypatch.setattr(trainer, "CHECKPOINT_EVERY", 10)
    learn, steps = trainer.Learner.learn, 0

    def dying(self: Any, lr: float) -> Any:
        nonlocal steps
        steps += 1
        if steps == 15:
            raise Interrupted(0)
        return learn(self, lr)

    monkeypatch.setattr(trainer.Learner, "learn", dying)
    with pytest.raises(Interrupted):
        regard.train("translation", **flags, savepath=tmp_path / "halves", progress=False)
    monkeypatch.setattr(trainer.Learner, "learn", learn)
    run = regard.train("translation", savepath=tmp_path / "halves", resume=True, progress=False)
    for name, value in whole.model.state_dict().items():
        assert torch.allclose(run.model.state_dict()[name], value, atol=1e-5), name


def search_results(run: Any, device: str) -> list[list[str]]:
    """Return the translations of a run on a device, by several searches."""
    run.model.to(device)
    sources = ["w1 w2 w3", "w4 w5 w6 w7 w8", "w9"]
    controls = [
        Controls(min_length=4, no_repeat_ngram=2),
        Controls(prefix=["w3", "", "w9"], repetition_penalty=1.2),
        Controls(terms=["w2"], max_length=9),
    ]
    plain = [run.translate(sources, beam=beam) for beam in (1, 4)]
    return [*plain, *(run.translate(sources, beam=4, controls=control) for control in controls)]


def test_search_and_scores_equal_those_of_the_cpu(tmp_path: Path) -> None:
    flags = {**write_pairs(tmp_path), **TRANSFORMER, "tokens": 400, "steps": 150, "lr": 0.005}
    run: Any = regard.train("translation", **flags, precision="float32", savepath=tmp_path, progress=False)
    assert next(run.model.parameters()).is_cuda
    assert search_results(run, "cuda") == search_results(run, "cpu")
    pairs = [("w1 w2 w3", "w3 w2 w1"), ("w4 w5", "w5")]
    scores = {}
    for device in ("cuda", "cpu"):
        run.model.to(device)
        scores[device] = [score.log_probability for score in run.score(pairs)]
    assert scores["cuda"] == pytest.approx(scores["cpu"], abs=1e-4)


def test_a_loaded_run_is_looked_at_and_explained(tmp_path: Path) -> None:
    flags = {**write_pairs(tmp_path), **TRANSFORMER, "tokens": 400, "steps": 30}
    regard.train("translation", **flags, savepath=tmp_path, progress=False)
    run: Any = regard.load(tmp_path / "translation")
    view = run.attend("w1 w2 w3")
    assert view is not None
    with regard.record(run.model) as records:
        run.translate(["w1 w2 w3"], beam=1)
    assert records
    assert run.align([("w1 w2", "w2 w1")])


def test_external_models_are_recorded() -> None:
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0), 2, enable_nested_tensor=False
    ).cuda()
    states: Tensor = torch.randn(2, 7, 16, device="cuda")
    with torch.no_grad(), regard.record(model) as records:
        output = model(states)
    assert len(records) == 2
    assert torch.allclose(output, model(states), atol=1e-5)
