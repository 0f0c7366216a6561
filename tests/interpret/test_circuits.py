"""Circuits, CPR, CMD, EAP and ACDC equal computations on models in which each edge is an explicit input."""

import json
import pickle
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.errors import InputError
from regard.interpret import edges as edges_module
from regard.interpret.circuits import prune, run_circuit
from regard_lab.bench.known_models import run_compiled
from regard_lab.programs.compiler import compile_program
from regard_lab.programs.library import PROGRAMS
from tests.interpret import split_models
from tests.interpret.split_models import Edge, Edges
from tests.interpret.subjects import language_run, pair_run
from tests.interpret.test_edges import FAMILIES, Case

SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
THRESHOLD = {"kl": 1e-4, "difference": 3e-3}
TEXTS = {"decoder": ("ABCDAB", "BBCDAB"), "seq2seq": ("ABCDE", "BBCDE")}


@torch.no_grad()
@pytest.mark.parametrize("name", FAMILIES)
def test_a_circuit_is_the_model_with_corrupted_edges(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(name)
    graph, (clean, corrupted) = case.graphs[0], case.passes
    sent, differing = case.split(case.tokens[1])[1].sent, 0

    def explicit(kept: Collection[Edge]) -> Tensor:
        given = {edge: sent[edge[0]] for edge in graph.all_edges if edge not in kept}
        return case.split(case.tokens[0], given)[0]

    for copies in (256, 2):
        monkeypatch.setattr(edges_module, "MOST_COPIES", copies)
        assert torch.allclose(run_circuit(graph, corrupted, graph.all_edges), clean.logits, atol=1e-9)
        assert torch.allclose(run_circuit(graph, corrupted, []), corrupted.logits, atol=1e-9)
        for share in (0.2, 0.5, 0.7, 0.9, 0.95):
            kept = {edge for edge in graph.all_edges if torch.rand(()) < share}
            expected = explicit(kept)
            assert torch.allclose(run_circuit(graph, corrupted, kept)[0], expected, atol=1e-9)
            assert torch.allclose(explicit(prune(kept)), expected, atol=1e-9)
            differing += not torch.allclose(expected, clean.logits[0], atol=1e-3)
    assert differing >= 4


class Explicit:
    """A run of float64 on one pair of inputs, and its model with explicit edges."""

    def __init__(self, name: str, folder: Path) -> None:
        self.run = (language_run if name == "decoder" else pair_run)(folder)
        self.run.model.double()
        model, texts = self.run.model, TEXTS[name]
        self.forward: Callable[[Edges, Tensor], Tensor]
        if name == "decoder":
            self.tokens = [self.run.task.parse(text)[0] for text in texts]
            self.forward = lambda edges, tokens: split_models.decoder_only(model, edges, tokens)
        else:
            self.tokens = [self.run.trial((text, "EDCBA")).tokens for text in texts]
            seen: list[Tensor] = []
            handle = model.target_embedding.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
            self.run.trial((texts[0], "EDCBA")).run(1)
            handle.remove()
            decoder_input = seen[0][0]
            self.forward = lambda edges, tokens: split_models.transformer(model, edges, tokens, decoder_input)
        self.pair = texts if name == "decoder" else tuple((text, "EDCBA") for text in texts)
        edges = Edges()
        self.clean = self.forward(edges, self.tokens[0])
        self.edges = list(edges.values)
        corrupted = Edges()
        self.corrupted = self.forward(corrupted, self.tokens[1])
        self.sent = [edges.sent, corrupted.sent]

    def logits(self, kept: Collection[Edge]) -> Tensor:
        given = {edge: self.sent[1][edge[0]] for edge in self.edges if edge not in kept}
        return self.forward(Edges(given), self.tokens[0])

    @staticmethod
    def metric(logits: Tensor) -> Tensor:
        return logits[-1, 4] - logits[-1, 5]

    def faithfulness(self, kept: Collection[Edge]) -> float:
        none = float(self.metric(self.corrupted))
        return (float(self.metric(self.logits(kept))) - none) / (float(self.metric(self.clean)) - none)

    def eap(self) -> dict[Edge, float]:
        with torch.enable_grad():
            edges = Edges()
            total = self.metric(self.forward(edges, self.tokens[0]))
            gradients = torch.autograd.grad(total, list(edges.values.values()), allow_unused=True)
        return {
            edge: 0.0 if gradient is None else float(((self.sent[0][edge[0]] - self.sent[1][edge[0]]) * gradient).sum())
            for edge, gradient in zip(edges.values, gradients, strict=True)
        }


@pytest.fixture(scope="module", params=TEXTS)
def explicit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Explicit:
    with torch.no_grad():
        return Explicit(request.param, tmp_path_factory.mktemp(request.param))


@torch.no_grad()
def test_cpr_and_cmd_follow_their_definition(explicit: Explicit) -> None:
    circuit = regard.find_circuit(explicit.run, [explicit.pair], method="eap", metric=Explicit.metric)
    expected = explicit.eap()
    assert circuit.scores == pytest.approx(expected, abs=1e-6)
    result = regard.faithfulness(explicit.run, circuit, [explicit.pair], metric=Explicit.metric)
    curves = []
    for key in (float, abs):
        ranked = sorted(circuit.scores, key=lambda edge: -key(circuit.scores[edge]))
        curves.append([explicit.faithfulness(set(ranked[: int(share * len(ranked))])) for share in SHARES])
    assert result.by_score == pytest.approx(curves[0], abs=1e-6)
    assert result.by_absolute == pytest.approx(curves[1], abs=1e-6)
    cpr = cmd = 0.0
    for place in range(9):
        width = SHARES[place + 1] - SHARES[place]
        cpr += width * (curves[0][place] + curves[0][place + 1]) / 2
        cmd += width * (abs(1 - curves[1][place]) + abs(1 - curves[1][place + 1])) / 2
    assert (result.cpr, result.cmd) == pytest.approx((cpr, cmd), abs=1e-6)
    assert curves[0] != curves[1] and result.cmd > 0.01


@torch.no_grad()
@pytest.mark.parametrize("loss", ["kl", "difference"])
def test_acdc_removes_edges_as_a_plain_loop_does(explicit: Explicit, loss: Any) -> None:
    options: dict[str, Any] = {"metric": Explicit.metric, "loss": loss, "threshold": THRESHOLD[loss]}
    circuit = regard.find_circuit(explicit.run, [explicit.pair], method="acdc", **options)
    order, clean = list(reversed(circuit.scores)), explicit.clean[-1].log_softmax(-1)

    def measured(kept: set[Edge]) -> float:
        logits = explicit.logits(kept)
        if loss == "difference":
            return -float(Explicit.metric(logits))
        return float((clean.exp() * (clean - logits[-1].log_softmax(-1))).sum())

    assert set(order) == set(explicit.edges) and order[0][1] == "logits"
    kept, before = set(order), measured(set(order))
    for edge in order:
        after = measured(kept - {edge})
        assert circuit.scores[edge] == pytest.approx(after - before, abs=1e-6)
        if after - before < THRESHOLD[loss]:
            kept, before = kept - {edge}, after
    assert circuit.kept == prune(kept) and 0 < len(kept) < len(order)


def test_files_have_the_form_of_mib(tmp_path: Path) -> None:
    run = language_run(tmp_path)
    circuit = regard.find_circuit(run, [TEXTS["decoder"]], method="acdc")
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    circuit.write(first)
    content = json.loads(first.read_text())
    assert content["cfg"] == {"n_layers": 2, "n_heads": 2, "parallel_attn_mlp": False, "d_model": 16}
    nodes = ["input", "a0.h0", "a0.h1", "m0", "a1.h0", "a1.h1", "m1", "logits"]
    assert list(content["nodes"]) == nodes and content["nodes"]["logits"] == {"in_graph": True}
    heads = {f"{s}->a1.h1<{k}>" for s in nodes[:4] for k in "qkv"}
    assert heads | {"input->m0", "a1.h0->m1", "m1->logits"} < content["edges"].keys() and len(content["edges"]) == 46
    read = regard.CircuitScores.read(first)
    read.write(second)
    assert first.read_bytes() == second.read_bytes()
    own, other = (regard.faithfulness(run, each, [TEXTS["decoder"]]) for each in (circuit, read))
    assert (own.cpr, own.cmd, own.kept_faithfulness) == (other.cpr, other.cmd, other.kept_faithfulness)
    text = {name: entry["score"] for name, entry in content["edges"].items()}
    assert regard.faithfulness(run, text, [TEXTS["decoder"]]).cpr == own.cpr
    first.write_text(first.read_text().replace("a1.h1->logits", "a9.h1->logits"))
    with pytest.raises(InputError, match=r"first.json: \S+ has no edge a9.h1->logits: give its edges"):
        regard.faithfulness(run, regard.CircuitScores.read(first), [TEXTS["decoder"]])


def test_edges_of_interpbench_are_read(tmp_path: Path) -> None:
    hooks = [
        ("blocks.1.attn.hook_result[1]", "blocks.1.hook_resid_post"), ("hook_embed", "blocks.0.hook_mlp_in"),
        ("blocks.0.hook_mlp_out", "blocks.1.hook_v_input[1]"), ("hook_pos_embed", "blocks.1.hook_q_input[1]"),
        ("blocks.1.hook_q_input[1]", "blocks.1.attn.hook_q[1]"),
    ]  # fmt: skip
    path = tmp_path / "edges.json"
    path.write_text(json.dumps(hooks))
    circuit = regard.CircuitScores.read(path)
    assert circuit.kept == {("a1.h1", "logits"), ("input", "m0"), ("m0", "a1.h1<v>")}
    assert circuit.remarks == ["left out: 2 edges inside heads or from positions, which are no senders"]
    result = regard.faithfulness(language_run(tmp_path), circuit, [TEXTS["decoder"]])
    assert result.kept == 3 and result.kept_faithfulness not in (0, 1)
    (tmp_path / "edges.pkl").write_bytes(pickle.dumps(hooks))
    for name, content, message in (
        ("edges.pkl", None, "edges.pkl is a pickle, which can run code: if you trust it, convert it with json.dump"),
        ("a.json", '{"cfg": {}}', "a.json"),
        ("b.json", '[["blocks.0.resid", "logits"]]', "expected hooks such as"),
        ("c.json", '{"cfg": {}, "nodes": {}, "edges": {"a0.h1": {}}}', "expected SENDER->RECEIVER"),
        ("d.json", '{"cfg": {}, "nodes": {"m0": {"neurons": []}}, "edges": {}}', "selects neurons"),
    ):
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(InputError, match=message) as caught:
            regard.CircuitScores.read(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    run = language_run(tmp_path)
    with pytest.raises(InputError, match="given scores: .* has no edge a9.h0->logits"):
        regard.faithfulness(run, {"a9.h0->logits"}, [TEXTS["decoder"]])
    for options, message in (({"method": "x"}, "method"), ({"loss": "x"}, "loss"), ({"threshold": 0.0}, "threshold")):
        with pytest.raises(InputError, match=message):
            regard.find_circuit(run, [TEXTS["decoder"]], **options)


def test_the_known_circuit_of_a_compiled_program_is_faithful() -> None:
    compiled = compile_program(PROGRAMS["induction"])
    pairs = [("abcab", "abdab"), ("cabca", "cadca")]
    result = regard.faithfulness(run_compiled(compiled), compiled.circuit.edges, pairs)
    assert result.by_score[5:] == pytest.approx([1] * 5, abs=1e-3) and len(compiled.circuit.edges) <= result.counts[5]
