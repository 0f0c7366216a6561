"""Scores of heads, against loops and against known weights."""

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.attention.interventions import intervene, record_own
from regard.attention.layer import attention_layers
from regard.interpret.head_scores import KeySets, answer_samples, measure_heads, pair_samples, token_samples
from regard.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from regard.tasks.all_tasks import find_task
from regard.tasks.induction import Induction, InductionTaskConfig

TASK = Induction(InductionTaskConfig(max_len=12, repeated=4, vocab_size=9))


def make_model() -> DecoderOnly:
    torch.manual_seed(0)
    return DecoderOnly(DecoderOnlyConfig(hidden=12, heads=3, init_std=0.6), **TASK.sizes).eval()


def test_scores_of_a_causal_model_equal_loops() -> None:
    model, samples = make_model(), token_samples(TASK, 6, 0)
    scores = measure_heads(model, samples)
    assert [tuple(head) for head in scores.heads][:4] == [
        *(("decoder.0.self_attention", head) for head in range(3)),
        ("decoder.1.self_attention", 0),
    ]
    with torch.no_grad(), record_own(model) as records:
        losses, _ = samples.losses(model)
    weights = [records[name].weights for name in attention_layers(model)]
    tokens = _tokens_of(samples.forward)
    for head in range(6):
        own = weights[head // 3][:, head % 3]
        expected: dict[str, list[float]] = {"previous-token": [], "induction": [], "first-token": []}
        for row, sequence in enumerate(tokens.tolist()):
            for query in range(1, 12):
                share, line = 1 / (query + 1), own[row, query].tolist()
                strength = lambda weight, share=share: (weight - share) / (1 - share)  # noqa: E731
                if query < 8:  # before the repetition
                    expected["previous-token"].append(strength(line[query - 1]))
                else:
                    earlier = sequence.index(sequence[query])
                    if earlier + 1 < query:
                        expected["induction"].append(strength(line[earlier + 1]))
                expected["first-token"].append(strength(line[0]))
        for role, values in expected.items():
            assert scores.roles[role][head] == pytest.approx(float(np.mean(values)), abs=1e-5)
    assert scores.loss == pytest.approx(float(losses[samples.is_output].mean()), rel=1e-6)
    with torch.no_grad(), intervene(model, "decoder.1.self_attention", heads=[2]):
        ablated = float(samples.losses(model)[0][samples.is_output].mean())
    assert scores.importance[5] == pytest.approx(ablated - scores.loss, abs=1e-5)


def _tokens_of(forward: object) -> Tensor:
    """Return the inputs that `forward` hands to a model."""
    seen = []

    def model(inputs: Tensor, mask: Tensor | None) -> Tensor:
        seen.append(inputs)
        return torch.zeros(*inputs.shape, 9)

    assert callable(forward)
    forward(model)
    return seen[0]


def test_uniform_attention_has_score_zero_and_only_the_roles_keys_have_score_one() -> None:
    steps = torch.arange(5)
    visible = (steps[:, None] >= steps).expand(2, 5, 5)
    previous = (steps[:, None] - 1 == steps).expand(2, 5, 5)
    keys = KeySets(visible, {"previous-token": previous, "nowhere": torch.zeros_like(previous)}, None)
    uniform = (visible / visible.sum(-1, keepdim=True)).unsqueeze(1)
    alone = previous.float().unsqueeze(1).clone()
    alone[:, :, 0, 0] = 1
    scores = keys.scores(torch.cat([uniform, alone], 1))
    assert list(scores) == ["previous-token"]
    assert scores["previous-token"].tolist() == pytest.approx([0, 1], abs=1e-6)


def test_a_head_with_zero_queries_is_uniform() -> None:
    model, samples = make_model(), token_samples(TASK, 4, 0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "query" in name:
                parameter.zero_()
    scores = measure_heads(model, samples)
    assert scores.uniform == pytest.approx(np.ones(6), abs=1e-6)
    assert np.abs(scores.roles["induction"]).max() < 1e-6
    entropy = np.mean([np.log(count) for count in range(2, 13)])
    assert scores.entropy == pytest.approx(np.full(6, entropy), abs=1e-5)
    # Relevant are three of query + 1 keys, and two if the earlier token directly precedes the current one.
    assert 0.2 < scores.relevance[0] < 0.35


def test_in_context_score_is_late_minus_early() -> None:
    samples = token_samples(TASK, 2, 0)
    losses = torch.zeros(2, 12)
    losses[:, 8], losses[:, 11] = 2.0, 0.5  # first and last of four outputs
    assert samples.in_context(losses) == pytest.approx(-1.5)


def test_samples_of_every_kind_of_task_are_measured() -> None:
    signal = find_task("signal2")()
    keys = answer_samples(signal, 3, 0).keys
    assert set(keys) == {"encoder", "cross"} and keys["cross"].visible.shape == (3, 3, 13)
    pairs = pair_samples(find_task("copy")(), 3, 0)
    assert set(pairs.keys) == {"encoder", "decoder", "cross"}
    for task in ("mqar", "modular", "parity", "dyck", "regression", "selective-copy"):
        drawn = token_samples(find_task(task)(), 8, 0)
        assert drawn.is_output.any() and "previous-token" in drawn.keys["decoder"].offsets, task
