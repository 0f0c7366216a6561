"""Activation patching of runs equals patching by hand, for one model of each family."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.errors import InputError
from regard_lab.bench.known_models import trap_model
from tests.interpret import split_models
from tests.interpret.split_models import Edge, Edges
from tests.interpret.subjects import language_run, pair_run, query_run

FAMILIES: dict[str, Callable[[Path], Any]] = {"query": query_run, "decoder": language_run, "seq2seq": pair_run}
INPUTS = {"query": ("ABCBACAB", "BBCBACAB"), "decoder": ("ABCDAB", "BBCDAB"), "seq2seq": ("ABCDE", "BBCDE")}
ANSWERS: dict[str, Any] = {"query": {"answers": ("1", "2")}, "decoder": {}, "seq2seq": {}}
PARTS: dict[str, dict[str, str]] = {
    "query": {
        "encoder.0.self_attention": "encoder.0.self_attention.output",
        "cross": "cross.output",
        "encoder.0.feed_forward": "encoder.0.feed_forward",
        "encoder.0": "encoder.0",
    },
    "decoder": {
        "decoder.0.self_attention": "decoder.layers.0.self_attention.output",
        "decoder.1.self_attention": "decoder.layers.1.self_attention.output",
        "decoder.1.feed_forward": "decoder.layers.1.feed_forward",
        "decoder.0": "decoder.layers.0",
    },
    "seq2seq": {
        "encoder.0.self_attention": "encoder.layers.0.self_attention.output",
        "decoder.0.cross": "decoder.layers.0.cross.output",
        "decoder.0.feed_forward": "decoder.layers.0.feed_forward",
        "decoder.0": "decoder.layers.0",
    },
}


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Name of a family, its run, and functions that run it on the clean and on the corrupted input."""
    name = request.param
    run = FAMILIES[name](tmp_path_factory.mktemp(name))
    clean = run.trial(run.prepare(INPUTS[name][0]))
    if name == "seq2seq":
        tokens = torch.tensor([*run.task.source_vocabulary.encode(INPUTS[name][1]), clean.tokens[-1]])
    else:
        tokens = run.task.parse(INPUTS[name][1])[0]
    return name, run, lambda: clean.run(1)[0], lambda: clean.run_tokens(tokens[None])[0]


def read(run: Any, module: str, forward: Callable[[], Tensor]) -> Tensor:
    """Return the input of an output projection, or the output of another module, by hooks."""
    seen = list[Tensor]()

    def keep(states: Tensor) -> Tensor:
        seen.append(states.clone())
        return states

    insert(run, module, forward, keep)
    return seen[0]


def insert(run: Any, module: str, forward: Callable[[], Tensor], change: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the logits if `change` changes what `read` returns."""
    target: nn.Module = run.model.get_submodule(module)
    if module.endswith(".output"):
        handle = target.register_forward_pre_hook(lambda module, args: (change(args[0]),))
    else:
        handle = target.register_forward_hook(
            lambda module, args, output: (
                change(output)
                if isinstance(output, Tensor)
                else type(output)(change(output[0]), *output[1:])
                if hasattr(output, "_fields")
                else (change(output[0]), *output[1:])
            )
        )
    logits = forward()
    handle.remove()
    return logits


@pytest.mark.parametrize("position", [None, 1, -1])
@torch.no_grad()
def test_effects_equal_patching_by_hand(case: Any, position: int | None) -> None:
    name, run, clean, corrupted = case
    result = regard.patch(run, *INPUTS[name], positions=position, **ANSWERS[name])
    whole, nothing = clean(), corrupted()
    first, second = (int(logits[result.step].argmax()) for logits in (whole, nothing))
    if name == "query":
        first, second = 1, 2

    def difference(logits: Tensor) -> float:
        return float(logits[result.step, first] - logits[result.step, second])

    assert first != second
    assert result.difference_clean == pytest.approx(difference(whole), abs=1e-5)
    assert result.difference_corrupted == pytest.approx(difference(nothing), abs=1e-5)
    assert result.answers == tuple(run.called([first, second]))

    def by_hand(module: str, columns: slice = slice(None)) -> float:
        kept = read(run, module, clean)

        def change(states: Tensor) -> Tensor:
            patched = states.clone()
            rows = slice(None) if position is None else [position]
            patched[:, rows, columns] = kept[:, rows, columns]
            return patched

        patched = difference(insert(run, module, corrupted, change))
        return (patched - difference(nothing)) / (difference(whole) - difference(nothing))

    for part, module in PARTS[name].items():
        if part in result.left_out:
            assert name == "query" and part == "cross" and result.left_out[part] == "it has 1 step"
        elif module.endswith("output"):
            width = run.model.get_submodule(module).in_features // 2
            for head in (0, 1):
                expected = by_hand(module, slice(head * width, (head + 1) * width))
                assert result.heads[part][head] == pytest.approx(expected, abs=1e-4)
            assert result.layers[part] == pytest.approx(by_hand(module), abs=1e-4)
        else:
            effects = result.feed_forward if part.endswith("feed_forward") else result.states
            assert effects[part] == pytest.approx(by_hand(module), abs=1e-4)


def test_a_result_can_be_read_saved_and_drawn(case: Any, tmp_path: Path) -> None:
    name, run, _, _ = case
    result = regard.patch(run, *INPUTS[name], **ANSWERS[name])
    assert result.json()["clean"] == INPUTS[name][0] and result.json()["step"] == result.step
    assert "whole" in str(result) and "state after" in str(result)
    assert result.plot(tmp_path / "patched.svg").stat().st_size > 5000


def test_a_cancelling_pair_is_said_to_overshoot() -> None:
    """Two heads that cancel each other: one restores much more than the whole difference, together they do not."""
    result = regard.patch(trap_model("cancelling", 0).subject, "^abcbab", "^cacbba")
    heads, together = result.heads["decoder.0.self_attention"], result.layers["decoder.0.self_attention"]
    assert max(heads) > 2 and min(heads) < -1 and together == pytest.approx(1, abs=0.05)
    text = f"restores {max(heads):.1%} of the difference, more than the whole: other parts act against it"
    assert text in result.summary() and f"together: {together:.1%}" in str(result)
    less: Any = vars(result) | {"heads": {"decoder.0.self_attention": [-0.5, -0.25]}}
    assert type(result)(**less).summary().startswith("no head alone restores the difference")


def test_invalid_arguments_are_refused_in_one_line(case: Any) -> None:
    name, run, _, _ = case
    clean, corrupted = INPUTS[name]
    lengths = "inputs have . and . tokens: pass two inputs with the same number of tokens"
    with pytest.raises(InputError, match=lengths):
        regard.patch(run, clean, corrupted[:-1])
    with pytest.raises(InputError, match="both inputs have the same answer"):
        regard.patch(run, clean, clean)
    with pytest.raises(InputError, match="answer 'unknown' is unknown"):
        regard.patch(run, clean, corrupted, answers=("unknown", "A"))
    with pytest.raises(InputError, match="position 99 is out of range"):
        regard.patch(run, clean, corrupted, positions=[0, 99], **ANSWERS[name])
    with pytest.raises(InputError, match="step 99 is out of range"):
        regard.patch(run, clean, corrupted, step=99)


# Path patching equals patching a model in which each edge is an explicit input; edges as methods of `attribute`.


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
