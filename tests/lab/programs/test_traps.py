"""What is said about each trap, checked with plain hooks."""

from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.attention.interventions import record_own
from regard.interpret.attribution.methods import METHODS
from regard.interpret.attribution.trial import Background, Level, Trial
from regard_lab.bench.known_models import KnownModel, trap_model
from regard_lab.programs.compiler import Compiled
from regard_lab.programs.traps import TRAPS
from tests.lab.programs.resampling import changed_answers, draw_inputs, make_inputs, replaced_contexts

HEADS = "decoder.0.self_attention"  # The layer with the planted heads of all decoder-only traps


@cache
def trap(name: str) -> Compiled:
    return TRAPS[name].build(0)


def changed(compiled: Compiled, heads: list[int], change: Callable[[Tensor], Tensor]) -> float:
    """Return the share of inputs whose answers change when `change` is applied to the contexts of heads."""
    return changed_answers(compiled, draw_inputs(compiled), {HEADS: heads}, change)


def zero(contexts: Tensor) -> Tensor:
    return torch.zeros_like(contexts)


def mean(contexts: Tensor) -> Tensor:
    return contexts.mean(0, keepdim=True).expand_as(contexts)


@pytest.mark.parametrize("name", TRAPS)
@torch.inference_mode()
def test_answers_are_those_of_the_interpreter(name: str) -> None:
    compiled = trap(name)
    for length in range(1, 6):
        arguments, answers, is_answer = make_inputs(compiled, compiled.program.texts(length))
        assert torch.equal(compiled.model(*arguments).argmax(-1)[is_answer], answers[is_answer])


@pytest.mark.parametrize("name", TRAPS)
def test_needed_heads_change_answers(name: str) -> None:
    compiled = trap(name)
    inputs = draw_inputs(compiled)
    for layer, needed in compiled.circuit.needed.items():
        for head, truth in enumerate(needed):
            if truth is not None:
                assert (changed_answers(compiled, inputs, {layer: [head]}) > 0) == truth, (layer, head)


def test_one_head_of_a_redundant_pair_is_enough() -> None:
    compiled = trap("redundant")
    for first, second in ((0, 1), (2, 3), (4, 5)):
        for change in (zero, mean):
            assert changed(compiled, [first], change) == changed(compiled, [second], change) == 0
            assert changed(compiled, [first, second], change) > 0.2


def test_two_heads_of_a_majority_are_enough() -> None:
    compiled = trap("majority")
    for group in ((0, 1, 2), (3, 4, 5), (6, 7, 8)):
        assert all(changed(compiled, [head], zero) == 0 for head in group)
        assert all(changed(compiled, list(pair), zero) > 0.2 for pair in combinations(group, 2))


@pytest.mark.parametrize(
    ("name", "alone"), [("cancelling", mean), ("constant-heads", zero)], ids=["cancelling", "constant-heads"]
)
def test_pairs_cancel(name: str, alone: Callable[[Tensor], Tensor]) -> None:
    compiled = trap(name)
    used = compiled.circuit.used[HEADS]
    pairs = [pair for pair in ((3, 4), (5, 6), (7, 8)) if not any(used[head] for head in pair)]
    assert len(pairs) == 3
    for first, second in pairs:
        assert changed(compiled, [first], alone) > 0.2 and changed(compiled, [second], alone) > 0.2
        assert changed(compiled, [first, second], alone) == 0


def test_constant_heads_do_not_change_with_the_input() -> None:
    assert all(changed(trap("constant-heads"), [head], mean) == 0 for head in range(3, 9))


def test_backups_act_when_a_head_is_off() -> None:
    compiled = trap("backup")
    assert compiled.circuit.used["decoder.1.self_attention"][:3] == (False,) * 3
    inputs, heads = draw_inputs(compiled), {HEADS: [0], "decoder.1.self_attention": [0]}
    assert changed(compiled, [0], zero) == 0
    assert changed_answers(compiled, inputs, {"decoder.1.self_attention": [0]}, zero) == 0
    assert changed_answers(compiled, inputs, heads, zero) > 0.2


def test_a_saturated_head_has_no_gradient() -> None:
    compiled = trap("saturation")
    (tokens,), answers, is_answer = draw_inputs(compiled)
    gates = torch.ones(6, requires_grad=True)

    def scale(contexts: Tensor) -> Tensor:
        return contexts * gates[:, None]

    with replaced_contexts(compiled.model, {HEADS: list(range(6))}, scale):
        logits = compiled.model(tokens)
    answers = answers.masked_fill(~is_answer, 0)
    logits.gather(-1, answers.unsqueeze(-1))[is_answer].sum().backward()
    assert gates.grad is not None
    assert 1000 * gates.grad[:3].abs().max() < gates.grad[3:].abs().min()  # which reach the logits
    assert changed(compiled, [0], zero) > 0.2


def attention(name: str, layer: str) -> tuple[Compiled, Tensor]:
    """Return a trap and the weights (B, H, Tq, Tk) of a layer."""
    compiled = trap(name)
    (tokens,), _, _ = draw_inputs(compiled)
    with record_own(compiled.model) as records:
        compiled.model(tokens)
    return compiled, records[layer].weights


def test_sink_heads_avoid_the_relevant_input_and_have_zero_values() -> None:
    compiled, weights = attention("sink", "cross")
    model: Any = compiled.model
    steps = torch.arange(6)
    assert weights[:, 0, steps, steps + 1].min() > 0.999 and weights[:, 1:, steps, steps + 1].max() < 1e-6
    assert model.cross.value.weight.unflatten(0, (8, -1))[1:].abs().max() == 0


def test_decoy_keys_get_most_of_the_weight() -> None:
    _, weights = attention("decoy", "cross")
    reader = weights[:, 0]
    right = reader[:, torch.arange(3), 2 * torch.arange(3) + 1]
    assert torch.allclose(right, torch.tensor(1 / (1 + 3 * 2.718281828**2)), atol=1e-4)
    assert reader[:, :, 2::2].sum(-1).min() > 0.9


def test_the_reader_of_an_indirect_trap_attends_to_other_inputs() -> None:
    compiled, weights = attention("indirect", "cross")
    (tokens,), _, _ = draw_inputs(compiled)
    relevant = torch.from_numpy(compiled.circuit.inputs(tokens[0]))
    assert float((weights[0, 0] * relevant).sum()) < 1e-5


def test_loud_heads_write_more_than_needed_heads() -> None:
    model: Any = trap("loud").model
    output = model.decoder.layers[0].self_attention.output.weight.unflatten(1, (11, -1))
    norms = output.norm(dim=(0, 2))
    assert norms[3:].min() > 10 * norms[:3].max()


@pytest.mark.parametrize("name", TRAPS)
def test_each_trap_fools_a_method_and_not_another(name: str) -> None:
    trap, known = TRAPS[name], trap_model(name, 0)
    assert auroc(trap.fools, trap.truth, known) <= 0.75 and auroc(trap.right, trap.truth, known) >= 0.95


def auroc(method: str, truth: str, known: KnownModel) -> float:
    """Return the area under the ROC curve of a method's ranking of inputs (mean over outputs) or heads."""
    circuit: Any = known.circuit
    subject, samples = known.subject, 8
    background = Background(subject, seed=0)
    level: Level = "inputs" if truth == "inputs" else "heads"
    function: Any = METHODS[method].functions[level]
    trials = [Trial(subject, input, level=level, background=background) for input in subject.unseen(samples, 0)]
    scores = [function(trial) for trial in trials]
    if truth == "inputs":
        rows = [
            pair
            for trial, values in zip(trials, scores, strict=True)
            for pair in zip(np.asarray(values), circuit.inputs(trial.probe.tokens), strict=True)
        ]
        return float(np.mean([area(values, known) for values, known in rows if known.any()]))
    heads = [
        (float(np.mean([float(values[layer][head]) for values in scores])), truth)
        for layer, truths in getattr(circuit, truth).items()
        for head, truth in enumerate(truths)
        if truth is not None
    ]
    return area(*map(np.array, zip(*heads, strict=True)))


def area(scores: np.ndarray, truth: np.ndarray) -> float:
    true, false = scores[truth][:, None], scores[~truth]
    return float((true > false).mean() + (true == false).mean() / 2)
