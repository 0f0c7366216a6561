"""Methods at the level of inputs equal computations by plain PyTorch hooks, on a run of each family."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from regard.errors import InputError
from regard.interpret.attribution.attention import zeroing_distances
from regard.interpret.attribution.methods import METHODS, run_method
from regard.interpret.attribution.trial import Background, Trial

FAMILIES = ["query", "single head", "decoder-only", "transformer", "recurrent", "stepwise", "pooling"]
RunOf = Callable[[str], Any]


def score(run: Any, method: str, **options: Any) -> tuple[np.ndarray, Trial[Any]]:
    trial = Trial(run, run.unseen(1, 7)[0], background=Background(run, samples=6), **options)
    return run_method(METHODS[method].functions["inputs"], trial), trial


def values(trial: Trial[Any], logits: Tensor) -> Tensor:
    """Log-probabilities (N, Tq) of the classes that the unchanged model predicts."""
    with torch.no_grad():
        predicted = trial.probe.run(1)[0].argmax(-1)
    return logits.log_softmax(-1)[:, range(len(predicted)), predicted]


def with_embedding(trial: Trial[Any], change: Callable[[Tensor], Tensor]) -> Tensor:
    """Values (1, Tq) with a changed embedding of the input."""
    handle = trial.probe.embedding.register_forward_hook(lambda module, args, output: change(output))
    logits = trial.probe.run(1)
    handle.remove()
    return values(trial, logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_equal_one_backward_pass_for_each_step(run_of: RunOf, family: str) -> None:
    if family == "transformer":
        assert run_of(family).model.source_embedding is not None  # a hook sees only the source
    norms, trial = score(run_of(family), "gradient")
    products, _ = score(run_of(family), "gradient_x_input")
    for step in range(len(norms)):
        leaves: list[Tensor] = []

        def keep(output: Tensor, leaves: list[Tensor] = leaves) -> Tensor:
            leaves.append(output.detach().clone().requires_grad_())
            return leaves[0]

        with_embedding(trial, keep)[0, step].backward(inputs=leaves)
        gradient = leaves[0].grad
        assert gradient is not None
        assert np.allclose(norms[step], gradient[0].norm(dim=-1), atol=1e-5)
        assert np.allclose(products[step], (gradient * leaves[0])[0].sum(-1).abs().detach(), atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_ablation_equals_a_run_for_each_replaced_input(run_of: RunOf, family: str) -> None:
    run = run_of(family)
    zero, trial = score(run, "ablation_zero")
    mean, _ = score(run, "ablation_mean")
    embeddings: list[Tensor] = []
    for other in run.unseen(6, 0, purpose="attribution"):
        probe = run.trial(other)
        kept: list[Tensor] = []
        handle = probe.embedding.register_forward_hook(lambda module, args, output, kept=kept: kept.append(output))
        probe.run(1)
        handle.remove()
        embeddings.append(kept[0][0])
    clean = values(trial, trial.probe.run(1))
    for key in range(zero.shape[1]):
        there = [rows[key] for rows in embeddings if len(rows) > key] or [torch.cat(embeddings).mean(0)]
        for scores, row in ((zero, torch.zeros_like(there[0])), (mean, torch.stack(there).mean(0))):

            def replace(output: Tensor, row: Tensor = row, key: int = key) -> Tensor:
                changed = output.clone()
                changed[:, key] = row
                return changed

            expected = (with_embedding(trial, replace) - clean).abs()[0]
            assert np.allclose(scores[:, key], expected, atol=1e-5)


@pytest.mark.parametrize("family", ["query", "decoder-only", "transformer", "recurrent"])
@torch.no_grad()
def test_other_tokens_are_replaced_one_at_a_time(run_of: RunOf, family: str) -> None:
    run = run_of(family)
    scores, trial = score(run, "other_tokens")
    tokens, run_tokens = trial.probe.tokens, trial.probe.run_tokens
    assert tokens is not None and run_tokens is not None
    clean = values(trial, trial.probe.run(1))
    assert torch.allclose(values(trial, run_tokens(tokens[None])), clean, atol=1e-5)
    alphabet = list(trial.probe.alphabet)
    if len(alphabet) > 65:
        assert trial.remarks
        return
    for key in (0, len(tokens) - 1):
        changes = []
        for token in alphabet:
            if token != tokens[key]:
                changed = tokens.clone()
                changed[key] = token
                changes.append((values(trial, run_tokens(changed[None])) - clean).abs()[0])
        assert np.allclose(scores[:, key], torch.stack(changes).mean(0), atol=1e-5)
    assert np.isfinite(score(run, "ablation_resampled")[0]).all()


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_attention_is_the_recorded_weight_of_the_last_layer(run_of: RunOf, family: str) -> None:
    run = run_of(family)
    scores, trial = score(run, "attention")
    shown = run.look(trial.input)
    layer = next(
        layer
        for name, layer in reversed(shown.layers.items())
        if name in run.model.cross_layers[-1].replace(".layers.", ".")
    )
    expected = layer.weights.mean(0)[:, : scores.shape[1]]
    assert np.allclose(scores, np.broadcast_to(expected, scores.shape), atol=1e-5)
    best, _ = score(run, "best_head")
    assert any(
        np.allclose(best, np.broadcast_to(head[:, : scores.shape[1]], best.shape), atol=1e-5) for head in layer.weights
    )


@pytest.mark.parametrize("family", ["query", "decoder-only", "transformer"])
@torch.no_grad()
def test_weighted_values_equal_a_loop_over_heads(run_of: RunOf, family: str) -> None:
    run = run_of(family)
    scores, trial = score(run, "weighted_values")
    name = run.model.cross_layers[-1]
    layer, seen = run.model.get_submodule(name), dict[str, Tensor]()
    handle = layer.value.register_forward_hook(lambda module, args, output: seen.update(values=output[0]))
    with regard.record(run) as records:
        trial.probe.run(1)
    handle.remove()
    weights, width = records[name].weights[0], layer.head_width
    expected = torch.zeros(weights.shape[1:])
    for head in range(layer.heads):
        part = slice(head * width, (head + 1) * width)
        expected += weights[head] * (seen["values"][:, part] @ layer.output.weight[:, part].T).norm(dim=-1)
    assert np.allclose(scores, expected[:, : scores.shape[1]] / layer.heads, atol=1e-5)


@torch.no_grad()
def test_rollout_and_flow_of_two_layers(run_of: RunOf) -> None:
    run = run_of("decoder-only")
    rollout, trial = score(run, "rollout")
    with regard.record(run) as records:
        trial.probe.run(1)
    mixed = [(record.weights[0].mean(0) + torch.eye(len(rollout))) / 2 for record in records.values()]
    assert np.allclose(rollout, mixed[1] @ mixed[0], atol=1e-5)
    networkx = pytest.importorskip("networkx", reason="computes flows independently")
    flow, _ = score(run, "flow")
    graph = networkx.DiGraph()
    for layer, matrix in enumerate(mixed):
        for query, row in enumerate(matrix.tolist()):
            for key, weight in enumerate(row):
                graph.add_edge((layer + 1, query), (layer, key), capacity=weight)
    for query, key in ((5, 0), (5, 5), (9, 3), (2, 7)):
        expected = networkx.maximum_flow_value(graph, (2, query), (0, key))
        assert flow[query, key] == pytest.approx(expected, abs=1e-6)


@torch.no_grad()
def test_rollout_of_an_encoder_decoder(run_of: RunOf) -> None:
    run = run_of("transformer")
    scores, trial = score(run, "rollout")
    with regard.record(run) as records:
        trial.probe.run(1)
    product = torch.eye(scores.shape[1])
    for layer in range(2):
        weights = records[f"encoder.layers.{layer}.self_attention"].weights[0].mean(0)
        product = (weights + torch.eye(len(weights))) / 2 @ product
    assert np.allclose(scores, records["decoder.layers.1.cross"].weights[0].mean(0) @ product, atol=1e-5)
    assert trial.remarks == ["The attention between output steps is not part of the scores."]


@pytest.mark.parametrize("family", ["query", "decoder-only", "single head"])
@torch.no_grad()
def test_value_zeroing_equals_zeroed_rows_of_the_value(run_of: RunOf, family: str) -> None:
    """The value of a key is set to zero inside the layer, and the state after the block is compared."""
    run = run_of(family)
    _, trial = score(run, "value_zeroing")
    name = "decoder.0.self_attention" if family == "decoder-only" else "encoder.0.self_attention"
    full = name.replace("decoder.", "decoder.layers.")
    layer, block = run.model.get_submodule(full), run.model.get_submodule(full.rpartition(".")[0])

    def state(key: int | None) -> Tensor:
        def zero(values: Tensor) -> Tensor:
            values = values.clone()
            if key is not None:
                values[:, key] = 0
            return values

        states: list[Tensor] = []
        hooks = [
            block.register_forward_hook(
                lambda module, args, output: states.append(output if isinstance(output, Tensor) else output[0])
            )
        ]
        if hasattr(layer, "value"):
            hooks.append(layer.value.register_forward_hook(lambda module, args, output: zero(output)))
        else:
            hooks.append(
                layer.register_forward_pre_hook(lambda module, args: (args[0], args[1], zero(args[2]), *args[3:]))
            )
        trial.probe.run(1)
        for hook in hooks:
            hook.remove()
        return states[-1][0]

    clean = state(None)
    expected = torch.stack([1 - torch.cosine_similarity(state(key), clean, dim=-1) for key in range(len(clean))], 1)
    expected = expected.clamp(min=0) / expected.clamp(min=0).sum(1, keepdim=True).clamp(min=1e-12)
    assert np.allclose(zeroing_distances(trial, name), expected, atol=2e-3)


@pytest.mark.parametrize("family", ["query", "transformer", "stepwise"])
def test_integrated_gradients_sum_to_the_change(run_of: RunOf, family: str) -> None:
    from regard.interpret.attribution.effects import integrated_gradients

    _, trial = score(run_of(family), "random")
    baseline = torch.zeros_like(trial.embedding)
    signed = integrated_gradients(trial, baseline)
    with torch.no_grad():
        change = trial.clean - with_embedding(trial, torch.zeros_like)[0]
    assert torch.allclose(signed.sum(-1), change, atol=0.05) and not trial.remarks
    # A Riemann sum with 100 points, in plain PyTorch.
    total = torch.zeros_like(baseline)
    for place in (np.arange(100) + 0.5) / 100:
        leaf = (trial.embedding * float(place))[None].requires_grad_()
        with_embedding(trial, lambda output, leaf=leaf: leaf)[0, 0].backward(inputs=[leaf])  # type: ignore[misc]
        assert leaf.grad is not None
        total += leaf.grad[0] / 100
    assert torch.allclose(signed[0], (total * trial.embedding).sum(-1), atol=3e-3)


@pytest.mark.parametrize("family", ["query", "decoder-only"])
def test_attention_times_gradient_equals_gradients_of_changed_weights(run_of: RunOf, family: str) -> None:
    """The gradient with respect to a weight, by a change hook of the layer whose result is a leaf."""
    from regard.attention.layer import AttentionHook, attach_hooks

    run = run_of(family)
    scores, trial = score(run, "attention_x_gradient")
    layer = run.model.get_submodule(run.model.cross_layers[-1])
    for step in (0, len(scores) - 1):
        leaves: list[Tensor] = []

        def keep(weights: Tensor, mask: Any, number: Any, leaves: list[Tensor] = leaves) -> Tensor:
            leaves.append(weights.detach().clone().requires_grad_())
            return leaves[0]

        with attach_hooks({layer: AttentionHook(changes=(keep,))}):
            logits = trial.probe.run(1)
        values(trial, logits)[0, step].backward(inputs=leaves)
        gradient = leaves[0].grad
        assert gradient is not None
        expected = (leaves[0] * gradient.abs())[0].mean(0)[step, : scores.shape[1]].detach()
        assert np.allclose(scores[step], expected, atol=1e-5)


def test_controls(run_of: RunOf) -> None:
    run = run_of("query")
    oracle, trial = score(run, "oracle")
    assert np.array_equal(oracle, run.task.relevance(trial.input[None])[0].numpy())
    first, second = score(run, "random")[0], score(run, "random")[0]
    assert np.array_equal(first, second) and not np.array_equal(first, score(run, "random", seed=1)[0])
    other = Trial(run, run.unseen(2, 7)[1])
    assert not np.array_equal(first, run_method(METHODS["random"].functions["inputs"], other))


def test_the_public_function(run_of: RunOf) -> None:
    run = run_of("query")
    result = regard.attribute(run, "BCCCBAABACCCA", method="gradient")
    assert result.inputs is not None and result.inputs.shape == (3, 13) and result.steps == [0, 1, 2]
    assert "B[0]" in str(result) and result.json()["method"] == "gradient" and result.labels[0] == "B"
    one = regard.attribute(run, "BCCCBAABACCCA", method="gradient", target=(1, 2))
    assert one.inputs is not None and one.inputs.shape == (1, 13) and one.target == ["2"]
    own = regard.attribute(run, "BCCCBAABACCCA", method=lambda trial: trial.records["cross"].weights[0].mean(0))
    assert own.inputs is not None and own.inputs.shape == (3, 13)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "gradiant"}, "method 'gradiant' is unknown"),
        ({"method": "rollout", "level": "heads"}, "method rollout has no scores of heads: choose attention"),
        ({"level": "layers"}, "level 'layers' is unknown"),
        ({"target": (9, 0)}, "step 9 is out of range: choose from -3 to 2"),
        ({"target": (0, 99)}, "class 99 is out of range"),
        ({"target": "B"}, "target 'B' is of type str"),
        ({"method": 3}, "method 3 is of type int: give a function or str"),
        ({"method": lambda trial: np.zeros(3)}, r"the method returned \(3,\): expected \(3, 13\)"),
        ({"method": "no_such_module:mine"}, "no_such_module"),
        ({"input": None}, "input is missing: give one input"),
        ({"input": "XYZ"}, "input 'XYZ' has 3 steps"),
        ({"others": ["BCCCBAABACCCA"], "method": "ablation_mean"}, "has 1 inputs for a mean over other inputs"),
    ],
)
def test_bad_arguments_are_refused(run_of: RunOf, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        regard.attribute(run_of("query"), **({"input": "BCCCBAABACCCA"} | options))
    assert "\n" not in str(caught.value)


def test_a_ranking_worse_than_chance_has_a_warning(trained: regard.AnswerRun) -> None:
    """The relevant inputs have the smallest scores, then the largest."""

    def inverted(trial: Trial[Any]) -> np.ndarray:
        return 1.0 - np.asarray(trial.probe.relevant, dtype=float)

    def right(trial: Trial[Any]) -> np.ndarray:
        return np.asarray(trial.probe.relevant, dtype=float)

    assert "Worse than chance here: an AUROC of 0.00" in str(
        regard.attribute(trained, "BCCCBAABACCCA", method=inverted)
    )
    assert "Worse than chance" not in str(regard.attribute(trained, "BCCCBAABACCCA", method=right))
