"""Methods at the level of heads, and questions about single heads, equal computations by plain PyTorch hooks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from regard.attention.layer import attention_layers
from regard.errors import InputError
from regard.interpret.attribution.methods import METHODS, run_method
from regard.interpret.attribution.trial import Background, Trial

FAMILIES = ["query", "single head", "decoder-only", "transformer", "recurrent", "pooling"]
RunOf = Callable[[str], Any]


def score(run: Any, method: str) -> tuple[dict[str, np.ndarray], Trial[Any]]:
    trial = Trial(run, run.unseen(1, 7)[0], "heads", background=Background(run, samples=6))
    return run_method(METHODS[method].functions["heads"], trial), trial


@contextmanager
def contexts_changed(layer: Any, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Change the contexts (B, Tq, H Dv): the input of the output projection, or the layer's output."""
    if hasattr(layer, "output"):
        hook: Any = layer.output.register_forward_pre_hook(lambda module, args: (change(args[0]),))
    else:
        hook = layer.register_forward_hook(lambda module, args, output: change(output))
    yield
    hook.remove()


def values(trial: Trial[Any], logits: Tensor) -> Tensor:
    """Log-probabilities (S) of the predicted classes at the steps of the answer."""
    predicted = trial.logits.argmax(-1)
    steps = list(range(len(predicted))) if trial.probe.steps is None else list(trial.probe.steps)
    return logits[0].log_softmax(-1)[steps, predicted[steps]]


def read(layer: Any, probe: Any) -> Tensor:
    kept: list[Tensor] = []
    with torch.no_grad(), contexts_changed(layer, lambda states: kept.append(states.clone()) or states):  # type: ignore[func-returns-value]
        probe.run(1)
    return kept[0][0]


@pytest.mark.parametrize("family", FAMILIES)
def test_ablation_and_first_order_effects(run_of: RunOf, family: str) -> None:
    run = run_of(family)
    zero, trial = score(run, "ablation_zero")
    mean, gate, patching = (score(run, name)[0] for name in ("ablation_mean", "gate", "attribution_patching_mean"))
    clean = values(trial, trial.probe.run(1)).detach()
    others = [run.trial(other) for other in run.unseen(6, 0, purpose="attribution")]
    layers: dict[str, Any] = dict(attention_layers(run.model))
    for full_name, layer in layers.items():
        name = full_name.replace(".layers.", ".")
        own, rows = read(layer, trial.probe), [read(layer, probe) for probe in others]
        means = torch.stack(
            [
                torch.stack([row[step] for row in rows if len(row) > step] or [torch.cat(rows).mean(0)]).mean(0)
                for step in range(len(own))
            ]
        )
        for head in range(layer.heads):
            width = own.shape[-1] // layer.heads
            part = slice(head * width, (head + 1) * width)
            for scores, row in ((zero, torch.zeros_like(own)), (mean, means)):

                def replace(states: Tensor, row: Tensor = row, part: slice = part) -> Tensor:
                    changed = states.clone()
                    changed[..., part] = row[:, part]
                    return changed

                with torch.no_grad(), contexts_changed(layer, replace):
                    expected = (values(trial, trial.probe.run(1)) - clean).abs().mean()
                assert scores[name][head] == pytest.approx(float(expected), abs=1e-5)
        effects = torch.zeros(2, layer.heads)
        for step in range(len(clean)):
            leaf: list[Tensor] = []

            def keep(states: Tensor, leaf: list[Tensor] = leaf) -> Tensor:
                leaf.append(states.detach().clone().requires_grad_())
                return leaf[0]

            with contexts_changed(layer, keep):
                result = values(trial, trial.probe.run(1))
            result[step].backward(inputs=leaf)
            gradient = leaf[0].grad
            assert gradient is not None
            for number, change in enumerate((-own, means - own)):
                effects[number] += (gradient[0] * change).unflatten(-1, (layer.heads, -1)).sum((0, 2)).abs() / len(
                    clean
                )
        assert np.allclose(gate[name], effects[0], atol=1e-5) and np.allclose(patching[name], effects[1], atol=1e-5)


def put_first_head(row: Tensor, states: Tensor) -> Tensor:
    return torch.cat([row[None, :, :4], states[..., 4:]], -1)


def test_resampled_contexts_come_from_other_inputs(run_of: RunOf) -> None:
    run = run_of("query")
    scores, trial = score(run, "ablation_resampled")
    layer = run.model.cross
    rows = [read(layer, run.trial(other)) for other in run.unseen(6, 0, purpose="attribution")]
    clean, changes = values(trial, trial.probe.run(1)).detach(), []
    for row in rows:
        with torch.no_grad(), contexts_changed(layer, partial(put_first_head, row)):
            changes.append(float((values(trial, trial.probe.run(1)) - clean).abs().mean()))
    means = [(sum(changes) - left) / 5 for left in changes]  # 5 of the 6 inputs are drawn
    assert min(abs(scores["cross"][0] - mean) for mean in means) < 1e-5


@pytest.mark.parametrize("family", ["query", "decoder-only", "transformer"])
@torch.no_grad()
def test_scores_from_weights_and_values(run_of: RunOf, family: str) -> None:
    run = run_of(family)
    confidence, trial = score(run, "attention")
    weighted, norms = score(run, "weighted_values")[0], score(run, "output_norm")[0]
    with regard.record(run) as records:
        trial.probe.run(1)
    layers: dict[str, Any] = dict(attention_layers(run.model))
    for full_name, layer in layers.items():
        name = full_name.replace(".layers.", ".")
        seen: dict[str, Tensor] = {}
        weights = records[full_name].weights[0]
        handle = layer.value.register_forward_hook(lambda module, args, output, seen=seen: seen.update(v=output[0]))
        contexts = read(layer, trial.probe)
        handle.remove()
        for head in range(layer.heads):
            part = slice(head * layer.head_width, (head + 1) * layer.head_width)
            matrix = layer.output.weight[:, part]
            assert confidence[name][head] == pytest.approx(float(weights[head].amax(-1).mean()), abs=1e-5)
            sizes = (seen["v"][:, part] @ matrix.T).norm(dim=-1)
            assert weighted[name][head] == pytest.approx(float((weights[head] * sizes).amax(-1).mean()), abs=1e-5)
            assert norms[name][head] == pytest.approx(
                float((contexts[:, part] @ matrix.T).norm(dim=-1).mean()), abs=1e-5
            )


@pytest.mark.parametrize("family", ["query", "single head", "decoder-only", "transformer"])
def test_parts_of_a_logit_sum_to_it(run_of: RunOf, family: str) -> None:
    run = run_of(family)
    text = run.draw(seed=3)
    result = regard.logit_attribution(run, text)
    assert result.total == pytest.approx(result.logit, abs=1e-4)
    assert set(result.heads) == {layer.name for layer in run.layers}
    indirect = {layer.name for layer in run.layers if layer.kind == "encoder"}
    assert set(result.left_out) == indirect
    direct, trial = score(run, "logit_attribution")
    with torch.no_grad():
        assert all(not direct[name].any() for name in indirect) and bool(indirect) == any(
            "Zero" in each for each in trial.remarks
        )


@torch.no_grad()
def test_a_head_is_off(run_of: RunOf) -> None:
    run = run_of("query")
    result, probe = regard.head_effect(run, "BCCCBAABACCCA", "cross", 1), run.trial(run.prepare("BCCCBAABACCCA"))
    before = probe.run(1)[0]
    with contexts_changed(
        run.model.cross, lambda states: torch.cat([states[..., :4], torch.zeros_like(states[..., 4:])], -1)
    ):
        after = probe.run(1)[0]
    for step, output in enumerate(result.outputs):
        best = int(before[step].argmax())
        assert (output.predicted, output.without) == (str(best), str(int(after[step].argmax())))
        assert (output.logit, output.logit_without) == pytest.approx(
            (float(before[step, best]), float(after[step, best])), abs=1e-5
        )
        assert output.probability_without == pytest.approx(float(after[step].softmax(-1)[best]), abs=1e-5)
        change = after[step] - before[step]
        assert output.raised == str(int(change.argmax())) and output.raised_by == pytest.approx(
            float(change.max()), abs=1e-5
        )
    assert "predictions change" in str(result)


@torch.no_grad()
def test_heads_between_two_steps(run_of: RunOf) -> None:
    run = run_of("decoder-only")
    text = run.draw(seed=3)
    result = regard.heads_between(run, text, query=-1, key=2)
    with regard.record(run) as records:
        run.trial(run.prepare(text)).run(1)
    expected = sorted((float(w) for record in records.values() for w in record.weights[0, :, -1, 2]), reverse=True)
    assert [head.weight for head in result.heads] == pytest.approx(expected, abs=1e-5) and result.heads[0].layer in str(
        result
    )


@pytest.mark.parametrize("family", ["query", "transformer"])
def test_scores_are_averaged_over_inputs(run_of: RunOf, family: str) -> None:
    run = run_of(family)
    inputs = list(run.unseen(3, 5))
    mean = regard.attribute(run, inputs, method="gate", level="heads")
    single = [regard.attribute(run, [each], method="gate", level="heads").heads for each in inputs]
    assert mean.heads is not None and mean.input == "mean over 3 inputs" and mean.ranked()[0][0] > 0
    for name, scores in mean.heads.items():
        assert np.allclose(scores, np.mean([heads[name] for heads in single if heads is not None], 0))


def test_bad_arguments_are_refused(run_of: RunOf) -> None:
    run = run_of("query")
    for call, message in (
        (lambda: regard.head_effect(run, "BCCCBAABACCCA", "cros", 0), "'cros' is unknown"),
        (lambda: regard.head_effect(run, "BCCCBAABACCCA", "cross", 2), "head 2 is out of range: choose from 0 to 1"),
        (lambda: regard.heads_between(run, "BCCCBAABACCCA", 40, 0), "no layer has query 40 and key 0"),
        (lambda: regard.head_writes(run, "BCCCBAABACCCA", "encoder.0.self_attention", 0), "only through other layers"),
        (lambda: regard.head_writes(run, "BCCCBAABACCCA", "cross", 0, step=3), "step 3 is out of range"),
        (lambda: regard.logit_attribution(run, "BCCCBAABACCCA", token="x"), "token 'x' is unknown"),
        (lambda: regard.logit_attribution(run_of("recurrent"), "1/2/2003"), "adds to no residual stream"),
        (lambda: regard.attribute(run, level="heads", method="oracle"), "the important heads of signal2 are not known"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
