"""Sentences, tables and page of a timeline of known developments."""

import json
from pathlib import Path

import numpy as np

from regard.interpret.head_scores import Head
from regard.interpret.timeline import Development, Timeline

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
    assert "Half of the outputs are correct from step 100 on (6 of 6 seeds)" in timeline.sentences[2]
    assert timeline.sentences[-1].endswith("lowest at step 100 with -0.500 nats, 0.000 at the end.")
    assert "96.9% interval" in timeline.notes[0]
    role = timeline.roles[0]
    assert role.layers == {"decoder.0": 6} and role.heads[0] == "decoder.0.self_attention head 0"
    [order] = [
        order for order in timeline.orders if {order.first, order.second} == {"previous-token", "induction"}
    ]
    assert (order.before, order.same, order.after) == (4, 1, 1)


def test_few_seeds_say_what_their_interval_is_worth() -> None:
    assert (
        "75.0% interval (order statistics), because fewer than 6 seeds" in make_timeline(*[(1, 2)] * 3).notes[0]
    )
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
    assert page.count("<picture>") == 2 and "https://" not in page.replace("http://www.w3.org", "")
    assert "A previous-token head at step 10" in page and "never" in page
