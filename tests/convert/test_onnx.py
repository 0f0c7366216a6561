"""ONNX models compute the same numbers in ONNX Runtime, for any batch size and length, without Regard."""

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.convert import export, read_certificate
from regard.errors import InputError
from regard.models import RecurrentConfig, RecurrentSeq2Seq, Seq2Seq, Transformer, TransformerConfig
from tests.german import sentences

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from regard.convert.onnx_graphs import Graph, flatten_tensors, trace_graphs  # noqa: E402

SYMBOLS: dict[str, Any] = {"source_symbols": 23, "target_symbols": 19, "longest": 70}


def transformer(**flags: Any) -> Seq2Seq:
    torch.manual_seed(1)
    model = Transformer(
        TransformerConfig(**{"hidden": 12, "heads": 2, "inner": 20, "enc_layers": 1, "dec_layers": 2, **flags}),
        **SYMBOLS,
    )
    for name, each in model.named_parameters():
        if name.endswith("positions.weight"):  # zero before training
            torch.nn.init.normal_(each)
    return model.eval()


def recurrent(**flags: Any) -> Seq2Seq:
    torch.manual_seed(1)
    return RecurrentSeq2Seq(RecurrentConfig(**{"hidden": 12, "embedding": 10, **flags}), **SYMBOLS).eval()


MODELS: dict[str, Callable[[], Seq2Seq]] = {
    "sinusoidal": lambda: transformer(),
    "learned, post-norm": lambda: transformer(positions="learned", pre_norm=False),
    "rotary, additive": lambda: transformer(positions="rotary", score="additive"),
    "concatenated, general": lambda: transformer(positions="concatenated", score="general"),
    "dot, one head": lambda: transformer(score="dot", heads=1),
    "concat": lambda: transformer(score="concat"),
    "LSTM, two layers": lambda: recurrent(enc_layers=2),
    "GRU, Bahdanau": lambda: recurrent(cell="gru", context="cell", score="additive"),
    "input feeding": lambda: recurrent(input_feeding=True, score="dot"),
    "forwards, no attention": lambda: recurrent(score="none", bidirectional=False, start="zero"),
}


class Opened:
    """A graph opened with ONNX Runtime."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.session = graph, onnxruntime.InferenceSession(graph.content)

    def __call__(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = self.session.run(None, inputs)
        return dict(zip((each.name for each in self.session.get_outputs()), found, strict=True))


def check_sizes(found: dict[str, np.ndarray], shapes: dict[str, list[int | str]], **sizes: int) -> None:
    """Check the outputs against the declared shapes."""
    assert list(found) == list(shapes)
    for name, shape in shapes.items():
        told = [eval(size, {}, sizes) if isinstance(size, str) else size for size in shape]
        assert list(found[name].shape) == told, name


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_equal_for_any_batch_and_length(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    model = MODELS[name]()
    encoder, decoder = map(Opened, trace_graphs(model))
    for part in (encoder, decoder):
        onnx.checker.check_model(onnx.load_from_string(part.graph.content), full_check=True)
    for batch, length in ((1, 1), (7, 1), (1, 5), (7, 5), (1, 60), (7, 60)):
        source = torch.randint(4, 19, (batch, length))
        for row in range(batch):  # of many lengths
            source[row, max(1, length - row) :] = 0
        with torch.inference_mode(), regard.record(model) as records:
            state: Any = model.start(model.encode(source, source != 0))
        found = encoder({"source": source.numpy()})
        check_sizes(found, encoder.graph.outputs, batch=batch, source=length)
        for layer, record in records.items():
            there = (source != 0)[:, None, :, None].numpy()  # the attention of padding does not matter
            np.testing.assert_allclose(found[layer] * there, record.weights.numpy() * there, atol=1e-5)
        given = {name: found[name] for name in decoder.graph.inputs if name != "token"}
        for step in range(length):
            token = torch.randint(4, 19, (batch, 1))
            with torch.inference_mode(), regard.record(model) as records:
                states, state = model.step(token, state)
                logits = model.logits(states).squeeze(1).numpy()
            found = decoder({"token": token.numpy(), **given})
            check_sizes(found, decoder.graph.outputs, batch=batch, source=length, steps=step)
            np.testing.assert_allclose(found["logits"], logits, atol=2e-5)
            for layer, record in records.items():
                np.testing.assert_allclose(found[layer], record.weights.numpy(), atol=1e-5)
            given = {name: found.get(f"next.{name}", each) for name, each in given.items()}
        for place, tensor in flatten_tensors(state).items():
            np.testing.assert_allclose(given[place], tensor.numpy(), atol=2e-5)
    assert capfd.readouterr().err == ""  # the runtime warns about shapes other than the declared ones


def translated(folder: Path, texts: list[str]) -> tuple[list[str], list[str]]:
    """Run the program in the model card without Regard; return the translations and the lines of weights."""
    [program] = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text("utf-8"), re.DOTALL)
    hidden = "import sys\nsys.modules['regard'] = sys.modules['torch'] = None  # importing them fails\n"
    (folder / "translate.py").write_text(hidden + program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-I", "-X", "utf8", str(folder / "translate.py"), *texts],
        cwd=folder.parent,
        env={name: each for name, each in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    return [line for line in lines if line[:2] != "  "], [line for line in lines if line[:2] == "  "]


def test_translator(german: regard.TranslationRun, tmp_path: Path) -> None:
    folder = export(german, tmp_path / "out", to="onnx", license="cc-by-4.0", progress=False)
    found = read_certificate(folder)
    assert found.program == "onnxruntime" and found.sentences == 24 and found.missing == {}
    assert found.logits is not None and 0 < found.logits < 1e-4
    assert found.weights is not None and 0 < found.weights < 1e-4
    assert found.same_tokens == found.same_greedy == found.same_beam == 1
    assert found.hashes.keys() >= {"encoder.onnx", "decoder.onnx", "config.json", "source.json", "README.md"}
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert config["decoder"]["inputs"]["past.0.keys"] == ["batch", 2, "steps", 16]
    assert config["cross"] == ["decoder.layers.0.cross"]
    for name in ("encoder", "decoder"):
        assert str(Path(regard.__file__).parent).encode() not in (folder / f"{name}.onnx").read_bytes()
    card = (folder / "README.md").read_text("utf-8")
    assert card.startswith('---\nlicense: "cc-by-4.0"\nlibrary_name: "onnx"\n') and "- training: train.de" in card
    texts = [source for source, _ in sentences()[240:250]]
    answers, seen = translated(folder, texts)
    assert answers == german.translate(texts, beam=1)
    with regard.record(german.model, layers=config["cross"]) as records:
        [best] = german.search(texts[:1], beam=1)[0]
    weights = records["decoder.layers.0.cross"].weights[0].mean(0)[: len(best.tokens)]
    pieces = [*german.task.source_vocabulary.pieces(texts[0]), "</s>"]
    expected = [pieces[step] for step in weights.argmax(-1).tolist()]
    assert [word.rpartition("<-")[2] for word in seen[0].split()] == expected


@pytest.mark.slow
def test_characters_to_characters(
    translator: regard.PairRun, tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    status, out, err = command("export", translator.folder, "--to", "onnx", "--output", tmp_path / "out")
    assert status == 0 and "100 sentences in both programs" in out, err
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert card.startswith("# A recurrent model for dates") and "samples of the task dates" in card
    texts = ["3. Mai 1979", "14 juillet 1989"]
    assert translated(tmp_path / "out", texts)[0] == translator.translate(texts, beam=1)


@pytest.mark.slow
def test_custom_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    flags: dict[str, Any] = {"model": "lookback:LookBack", "hidden": 8, "steps": 20}
    run = regard.train("reverse", **flags, savepath=tmp_path, progress=False)
    assert isinstance(run, regard.PairRun)
    folder = export(run, tmp_path / "out", to="onnx", examples=["ABC", "HELLO"], progress=False)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert "memory.source.keys" in config["state"] and config["cross"] == ["cross"]


@pytest.mark.slow
def test_pruned_run(german: regard.TranslationRun, tmp_path: Path) -> None:
    regard.prune(german, heads=1, output=tmp_path / "pruned")
    pruned = regard.load(tmp_path / "pruned")
    assert isinstance(pruned, regard.TranslationRun)
    folder = export(pruned, tmp_path / "out", to="onnx", progress=False)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    outputs = config["encoder"]["outputs"] | config["decoder"]["outputs"]
    heads = [shape[1] for name, shape in outputs.items() if "_attention" in name or "cross" in name]
    assert sorted(heads) == [1, 2, 2, 2]


@pytest.mark.slow
def test_different_model_is_not_written(
    german: regard.TranslationRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled(model: Seq2Seq) -> tuple[Graph, Graph]:
        other = copy.deepcopy(model)
        with torch.no_grad():
            other.get_parameter("decoder.layers.0.cross.query.weight").mul_(1.1)
        return trace_graphs(other)

    monkeypatch.setattr("regard.convert.onnx.trace_graphs", spoiled)
    with pytest.raises(
        InputError, match="differ by .* in onnxruntime, more than the limit of 0.0001: nothing was written"
    ):
        export(german, tmp_path / "out", to="onnx", examples=["Heute singt der alte Hund."], progress=False)
    assert list(tmp_path.iterdir()) == []


OWN = """
import torch
from regard.attention import Score

class Peeking(Score):
    def forward(self, query, prepared):
        scores = query @ prepared.transpose(-2, -1)
        return scores / scores.max() if scores.max() > 1 else scores
"""


def test_untraceable_model_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "peeking_score.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    flags: dict[str, Any] = {"hidden": 8, "heads": 2, "inner": 8, "enc_layers": 1, "dec_layers": 1, "steps": 1}
    run = regard.train(
        "reverse",
        model="transformer",
        score="peeking_score:Peeking",
        **flags,
        savepath=tmp_path,
        progress=False,
    )
    assert isinstance(run, regard.PairRun)
    capfd.readouterr()
    with pytest.raises(
        InputError, match="score peeking_score:Peeking: PyTorch cannot write this model as ONNX"
    ) as told:
        export(run, tmp_path / "out", to="onnx", progress=False)
    assert "\n" not in str(told.value) and not (tmp_path / "out").exists()
    assert capfd.readouterr() == ("", "")  # otherwise PyTorch lists everything it has traced


def test_missing_extra_is_reported(
    german: regard.TranslationRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(InputError, match=r"pip install 'regard\[onnx\]'"):
        export(german, tmp_path / "out", to="onnx")
    assert not (tmp_path / "out").exists()
