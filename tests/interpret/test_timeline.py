"""Sentences, tables and page of a timeline of known developments."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.attention.interventions import intervene, record_own
from regard.attention.layer import attention_layers
from regard.interpret.timeline import (
    Development,
    Head,
    KeySets,
    Timeline,
    answer_samples,
    count_in_order,
    formed_at,
    interval_rank,
    measure_heads,
    median_curves,
    median_interval,
    pair_samples,
    role_head,
    token_samples,
)
from regard.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from regard.tasks.all_tasks import find_task
from regard.tasks.language_tasks import Induction, InductionTaskConfig
from tests.viz.test_report_page import begins_with_picture

STEPS = [0, 10, 100, 1000]


def develop(seed: int, previous: int, induction: int) -> Development:
    """Return a run whose head 0 takes the previous-token role at a snapshot, and head 1 the induction role."""
    rises = {"previous-token": (0, previous), "induction": (1, induction)}
    roles = {role: np.zeros((4, 2)) for role in (*rises, "first-token")}
    for role, (head, snapshot) in rises.items():
        roles[role][snapshot:, head] = 0.8
    return Development(
        run=f"seed{seed}",
        seed=seed,
        steps=STEPS,
        heads=[Head("decoder.0.self_attention", 0), Head("decoder.1.self_attention", 0)],
        roles=roles,
        **{name: np.full((4, 2), 0.5) for name in ("uniform", "relevance", "entropy", "importance")},
        loss=np.array([3.0, 2.0, 1.0, 0.1]),
        accuracy=np.array([0.1, 0.2, 0.6, 1.0]),
        in_context=np.array([0.0, -0.1, -0.5, 0.0]),
    )


def make_timeline(*formations: tuple[int, int]) -> Timeline:
    runs = [develop(seed, *snapshots) for seed, snapshots in enumerate(formations)]
    return Timeline(task="induction", kind="decoder", samples=100, threshold=0.3, runs=runs)


def test_sentences_name_steps_intervals_and_order() -> None:
    timeline = make_timeline((1, 2), (1, 2), (2, 3), (1, 1), (2, 1), (1, 3))
    assert timeline.sentences[:2] == [
        "A previous-token head at step 10 (10 to 100), an induction head at step 100 (10 to 1,000), in this order"
        " on 4 of 6 seeds (and on 1 with some in the same snapshot).",
        "On at most half of the seeds: first-token (0 of 6).",
    ]
    assert "Half of the outputs are correct on 6 of 6 seeds, from this step on: 100;" in timeline.sentences[2]
    assert timeline.sentences[-1].endswith("lowest at step 100 with -0.500 nats, 0.000 at the end.")
    assert "96.9% interval" in timeline.notes[0]
    role = timeline.roles[0]
    assert role.layers == {"decoder.0": 6} and role.heads[0] == "decoder.0.self_attention head 0"
    assert "75.0% interval (order statistics), because fewer than 6 seeds" in make_timeline(*[(1, 2)] * 3).notes[0]
    alone = make_timeline((1, 2))
    assert alone.notes[0].startswith("Steps are those of 1 seed")
    assert alone.sentences[0] == (
        "A previous-token head at step 10, an induction head at step 100, in this order on 1 of 1 seeds."
    )


def test_a_role_that_does_not_form_is_named() -> None:
    timeline = make_timeline((1, 4), (1, 4), (1, 2))
    assert "induction (1 of 3)" in timeline.sentences[1]
    assert "first-token" in str(timeline) and "never" in str(timeline)


def test_json_and_page_hold_everything(tmp_path: Path) -> None:
    timeline = make_timeline((1, 2), (1, 3))
    stored = json.loads(json.dumps(timeline.json(), allow_nan=False))
    assert stored["steps"] == STEPS and stored["events"]["induction"] == [100, 1000]
    assert stored["runs"][1]["roles"]["induction"][3] == [0.0, 0.8]
    page = timeline.to_html(tmp_path / "page.html").read_text()
    assert (
        begins_with_picture(page)
        and page.count("<picture>") == 2
        and "https://" not in page.replace("http://www.w3.org", "")
    )
    assert "A previous-token head at step 10" in page and "never" in page


NEVER = math.inf


def test_a_head_forms_where_its_score_stays() -> None:
    scores = np.array(
        [[0.1, 0.9, 0.1, np.nan], [0.4, 0.9, 0.5, np.nan], [0.2, 0.9, 0.6, np.nan], [0.3, 0.9, 0.2, np.nan]]
    )
    assert formed_at(scores, 0.3).tolist() == [3, 0, 4, 4]


def test_the_head_of_a_role_is_the_first_and_of_several_the_strongest() -> None:
    scores = np.array([[0.0, 0.0, 0.0], [0.4, 0.4, 0.0], [0.4, 0.5, 0.9]])
    head = role_head(scores, 0.3)
    assert (head.head, head.snapshot, head.heads) == (1, 1, 3)
    nearest = role_head(np.array([[0.0, np.nan], [0.2, np.nan]]), 0.3)
    assert (nearest.head, nearest.snapshot, nearest.heads) == (0, None, 0)


def test_intervals_of_the_median_cover_as_they_say() -> None:
    random = np.random.default_rng(0)
    for seeds in (3, 6, 10, 20):
        rank, coverage = interval_rank(seeds)
        drawn = np.sort(random.exponential(size=(20_000, seeds)), axis=1)
        inside = (drawn[:, rank - 1] <= math.log(2)) & (math.log(2) <= drawn[:, -rank])
        assert inside.mean() == pytest.approx(coverage, abs=0.01)
        assert coverage >= 0.95 or rank == 1
    assert interval_rank(6) == (1, 0.96875) and interval_rank(1) == (1, 0.0)


def test_seeds_without_the_event_count_as_late() -> None:
    interval = median_interval([10, 20, NEVER, 30, NEVER, 40])
    assert (interval.median, interval.low, interval.high) == (35, 10, None)
    assert median_interval([10, NEVER, NEVER]).median is None


def test_curves_have_the_same_interval_and_ties_count_apart() -> None:
    curves = np.arange(10.0)[::-1, None] * np.ones((1, 3))
    middle, low, high = median_curves(curves)
    assert (middle[0], low[0], high[0]) == (4.5, 1, 8)
    assert count_in_order([[1, 2, 1, 3], [2, 2, NEVER, 2], [3, 3, 4, 4]]) == (1, 1)


# Scores of heads, against loops and against known weights.


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
