"""Compiled models and traps as runs in memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard_lab.bench.known_models import KnownModel, compiled_model, trap_model
from regard_lab.programs.library import PROGRAMS

NAMES = {"encoder": "sorted", "decoder-only": "induction", "encoder-decoder": "reverse"}


@pytest.fixture(params=NAMES.values())
def known(request: pytest.FixtureRequest) -> KnownModel:
    return compiled_model(request.param, seed=0)


def test_a_compiled_model_is_a_run(known: KnownModel, tmp_path: Path) -> None:
    run = known.subject
    text = {"sorted": "cab", "induction": "abab", "reverse": "abc"}[known.name]
    shown = run.attend(text)
    expected = {"sorted": [1, 2, 3, 0, 0, 0], "induction": "ba", "reverse": "cba"}[known.name]
    assert shown.prediction == shown.truth == expected
    assert shown.to_html(tmp_path / "map.html").read_text().startswith("<!")
    assert run.figures().exact_match == 1.0
    assert "weight 1.0000" in str(regard.explain(run, text))
    assert run.about()["task"] == known.name and run.about()["examined"] == {}


def test_importance_and_examination_see_the_planted_heads(known: KnownModel) -> None:
    run, circuit = known.subject, known.circuit
    assert circuit is not None
    importance = regard.head_importance(run, samples=6)
    for layer, needed in circuit.needed.items():
        for head, truth in enumerate(needed):
            if truth is not None:
                assert (importance.added[layer][head] > 1e-3) == truth, (layer, head)
    assert run.examine(samples=6).sentences


def test_roles_find_planted_roles() -> None:
    known = compiled_model("previous", seed=0)
    assert known.circuit is not None and known.circuit.roles == {("decoder.0.self_attention", 0): "the previous step"}
    roles = known.subject.roles(samples=20)
    assert roles.of("decoder.0.self_attention", 0).role == "the previous step"


def test_inputs_are_counterfactual() -> None:
    known = compiled_model("reverse", seed=0)
    subject: Any = known.subject
    [pair] = subject.unseen(1, 0)
    tokens = subject.trial(pair).tokens
    assert known.circuit is not None and tokens is not None
    length = len(pair.source)
    assert np.array_equal(known.circuit.inputs(tokens)[:length, :length], np.eye(length, dtype=bool)[::-1])
    assert not known.circuit.inputs(tokens)[length].any() and not known.circuit.inputs(tokens)[:, length].any()


def test_untrained_models_and_seeds_differ() -> None:
    known, other = (compiled_model("copy", seed) for seed in (0, 1))
    untrained = known.subject.untrained(0)
    assert untrained.figures().exact_match < 0.5 and known.circuit is not None and other.circuit is not None
    first, second = (
        run.model.state_dict()["decoder.layers.0.cross.value.weight"] for run in (known.subject, other.subject)
    )
    assert not np.allclose(first, second)


def test_traps_are_runs() -> None:
    trap = trap_model("sink", 0)
    assert trap.kind == "trap" and trap.subject.figures().exact_match == 1.0
    assert trap.family == "encoder" and "sink" not in PROGRAMS
