"""Path patching equals patching a model in which each edge is an explicit input; edges as methods of
`attribute`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.errors import InputError
from tests.interpret import split_models
from tests.interpret.split_models import Edge, Edges
from tests.interpret.subjects import language_run, pair_run, query_run

CLEAN, CORRUPTED = "ABCDAB", "BBCDAB"
RECEIVERS = [
    ["logits"],
    ["decoder.1.self_attention.0.key"],
    ["decoder.1.self_attention.0.query", "decoder.1.self_attention.1.value"],
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return language_run(tmp_path_factory.mktemp("runs"))


def split(run: Any, text: str, given: dict[Edge, Tensor] | None = None) -> tuple[Tensor, Edges]:
    edges = Edges(given)
    return split_models.decoder_only(run.model, edges, run.task.parse(text)[0]), edges


@pytest.mark.parametrize("receivers", RECEIVERS)
@torch.no_grad()
def test_paths_equal_explicit_edges(run: Any, receivers: list[str], tmp_path: Path) -> None:
    result = regard.patch_paths(run, CLEAN, CORRUPTED, receivers)
    (whole, clean), (nothing, corrupted) = split(run, CLEAN), split(run, CORRUPTED)
    first, second = (int(logits[-1].argmax()) for logits in (whole, nothing))

    def difference(logits: Tensor) -> float:
        return float(logits[-1, first] - logits[-1, second])

    senders = {sender for sender, receiver in clean.values if receiver in receivers}
    effects = {f"{layer}.{head}": v for layer, values in result.heads.items() for head, v in enumerate(values)}
    effects |= result.others
    assert set(effects) == senders
    for sender in senders:
        given = {edge: corrupted.sent[sender] for edge in clean.values if edge[0] == sender and edge[1] in receivers}
        patched = difference(split(run, CLEAN, given)[0])
        expected = (difference(whole) - patched) / (difference(whole) - difference(nothing))
        assert effects[sender] == pytest.approx(expected, abs=1e-4), sender
    assert "frozen to the clean run" in str(result) and "carries the most" in result.summary()
    assert result.plot(tmp_path / "paths.png").stat().st_size > 5000


def test_invalid_paths_are_refused_in_one_line(run: Any) -> None:
    with pytest.raises(InputError, match="node 'decoder.9' is unknown: did you mean|node 'decoder.9' is unknown"):
        regard.patch_paths(run, CLEAN, CORRUPTED, "decoder.9")
    with pytest.raises(InputError, match="cannot be patched together: give logits alone"):
        regard.patch_paths(run, CLEAN, CORRUPTED, ["logits", "decoder.1.feed_forward"])
    with pytest.raises(InputError, match="inputs have 6 and 5 tokens"):
        regard.patch_paths(run, CLEAN, CORRUPTED[:-1])
    with pytest.raises(InputError, match="both inputs have the same answer"):
        regard.patch_paths(run, CLEAN, CLEAN)
    with pytest.raises(InputError, match="is of type str: give Subject"):
        regard.patch_paths("run", CLEAN, CORRUPTED)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [query_run, language_run, pair_run])
def test_edge_methods_run_on_each_family(make: Callable[[Path], Any], tmp_path: Path) -> None:
    subject = make(tmp_path)
    inputs = list(subject.unseen(30, 0))
    probes = [len(subject.trial(each).tokens) for each in inputs]
    common = max(set(probes), key=probes.count)
    chosen = [each for each, length in zip(inputs, probes, strict=True) if length == common][:3]
    exact = regard.attribute(subject, chosen[:1], method="edge_patching", level="edges", others=chosen[1:])
    gradient = regard.attribute(subject, chosen[:1], method="eap", level="edges", others=chosen[1:])
    integrated = regard.attribute(subject, chosen[:1], method="eap_ig", level="edges", others=chosen[1:])
    assert exact.edges and gradient.edges and integrated.edges
    assert set(exact.edges) == set(gradient.edges) == set(integrated.edges)
    assert min(exact.edges.values()) >= 0 and max(exact.edges.values()) > 1e-3
    cross = [edge for edge in exact.edges if edge[0].startswith("encoder") and ".cross." in f".{edge[1]}."]
    assert bool(cross) == (make is not language_run)
    assert "corrupted inputs of the same length" in str(exact)
    drawn = regard.attribute(subject, chosen[:1], method="random", level="edges").edges
    assert drawn is not None and set(drawn) == set(exact.edges) and len(set(drawn.values())) == len(drawn)
    heads = regard.attribute(subject, chosen[:1], method="attribution_patching", level="heads", others=chosen[1:]).heads
    assert heads is not None and set(heads) == {layer.name for layer in subject.layers}


def test_attribution_patching_is_difference_times_gradient_of_each_context(run: Any) -> None:
    inputs = run.unseen(3, 0)
    length = min(map(len, inputs))
    clean, *others = (tokens[:length] for tokens in inputs)
    result = regard.attribute(run, [clean], method="attribution_patching", level="heads", others=others)
    assert result.heads is not None
    module = run.model.get_submodule("decoder.layers.0.self_attention.output")

    def context(tokens: Tensor) -> tuple[Tensor, Tensor]:
        seen = list[Tensor]()
        handle = module.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        logits = run.model(tokens[None])[0]
        handle.remove()
        return logits, seen[0]

    logits, written = context(clean)
    value = logits.log_softmax(-1).max(-1).values[result.steps].mean()
    gradient = torch.autograd.grad(value, written)[0]
    effects = torch.stack(
        [((written - context(other)[1]) * gradient).unflatten(-1, (2, -1)).sum((0, 1, 3)).abs() for other in others]
    ).mean(0)
    assert torch.allclose(torch.tensor(result.heads["decoder.0.self_attention"]).float(), effects, atol=1e-5)
