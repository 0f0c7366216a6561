"""Planted heads get their role, and heads before training get no role."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.interpret.roles import AT_STEPS, ROLE_KINDS, choose_roles, head_roles, measure_candidates, searched_roles
from regard.viz.maps import LayerMap
from regard.viz.subject import Layer, Traits

LENGTH, OUTPUTS, SAMPLES = 12, 4, 30
LETTERS = "ABCDE"
ENCODER, CROSS = "encoder.0.self_attention", "cross"


def _look(role: str, letters: list[str]) -> np.ndarray:
    """Return the keys of a role for each query, (T, T) bool, computed with loops."""
    length = len(letters)
    result = np.zeros((length, length), dtype=bool)
    for query in range(length):
        for key in range(length):
            result[query, key] = {
                "its own step": key == query,
                "the previous step": key == query - 1,
                "the next step": key == query + 1,
                "the first step": key == 0,
                "step 3, with any symbol": key == 3,
                "the end of the sequence": letters[key] == "</s>",
                "the symbol 'B', at any step": letters[key] == "B",
                "other steps with the same symbol": key != query and letters[key] == letters[query],
                "what followed the same symbol before": 0 < key <= query and letters[key - 1] == letters[query],
                "the same relative position in the input": key == round(query * (length - 2) / (OUTPUTS - 1)),
                "the same relative position from the end of the input": key
                == length - 2 - round(query * (length - 2) / (OUTPUTS - 1)),
                "what the answer depends on": letters[key] == LETTERS[query % 2] or key == query,
                "the input at the output's index": key == query,
                "its own step or the previous step": key in (query, query - 1),
                "everything alike": True,
                "no role found": False,
            }[role]
    return result


ENCODER_ROLES = [
    "its own step",
    "the previous step",
    "the next step",
    "the first step",
    "step 3, with any symbol",
    "the end of the sequence",
    "the symbol 'B', at any step",
    "other steps with the same symbol",
    "what followed the same symbol before",
    "its own step or the previous step",
    "everything alike",
    "no role found",
]
CROSS_ROLES = [
    "what the answer depends on",
    "the input at the output's index",
    "the same relative position in the input",
    "the same relative position from the end of the input",
    "the symbol 'B', at any step",
    "everything alike",
    "no role found",
]


def _planted(role: str, letters: list[str], random: np.random.Generator) -> np.ndarray:
    """Return weights (T, T) with nine tenths on the keys of the role, and the rest distributed at random."""
    length = len(letters)
    anywhere = random.dirichlet(np.ones(length), size=length)
    if role == "everything alike":
        return np.full((length, length), 1 / length)
    wanted = _look(role, letters).astype(float)
    sums = wanted.sum(1, keepdims=True)
    own = np.divide(wanted, sums, out=anywhere.copy(), where=sums > 0)
    return 0.9 * own + 0.1 * anywhere


@dataclass
class Planted:
    """A subject with one planted head for each role."""

    traits = Traits()
    model = torch.nn.Identity()

    planted: bool = True
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    name: str = "planted"

    @property
    def layers(self) -> list[Any]:
        return [Layer(ENCODER, "encoder", len(ENCODER_ROLES)), Layer(CROSS, "cross", len(CROSS_ROLES))]

    def unseen(self, samples: int, seed: int, *, purpose: str) -> list[list[str]]:
        random = np.random.default_rng(seed)
        return [[*random.choice(list(LETTERS), LENGTH - 1).tolist(), "</s>"] for _ in range(samples)]

    def untrained(self, seed: int) -> "Planted":
        return Planted(planted=False, random=np.random.default_rng(100 + seed))

    def look(self, letters: list[str]) -> Any:
        def layer(name: str, roles: list[str]) -> LayerMap:
            shown = [role if self.planted else "no role found" for role in roles]
            weights = np.stack([_planted(role, letters, self.random) for role in shown]).astype(np.float32)
            queries = letters
            relevant = _look("what the answer depends on", letters)[:OUTPUTS] if name == CROSS else None
            if name == CROSS:  # four outputs
                weights, queries = weights[:, :OUTPUTS], letters[:OUTPUTS]
            return LayerMap(
                name=name, title=name, weights=weights, relevant=relevant, query_labels=queries, key_labels=letters
            )

        return type("Map", (), {"layers": {ENCODER: layer(ENCODER, ENCODER_ROLES), CROSS: layer(CROSS, CROSS_ROLES)}})()


@pytest.fixture(scope="module")
def result() -> Any:
    return head_roles(Planted(), samples=SAMPLES)  # type: ignore[arg-type]


@pytest.mark.parametrize("head", range(len(ENCODER_ROLES)), ids=ENCODER_ROLES)
def test_finds_planted_roles(result: Any, head: int) -> None:
    role = result.of(ENCODER, head)
    assert (role.role or "no role found") == ENCODER_ROLES[head]
    if role.role not in (None, "everything alike"):
        assert role.strength.low > max(0.5, role.untrained) and role.strength.low <= role.strength.mean


@pytest.mark.parametrize("head", range(len(CROSS_ROLES)), ids=CROSS_ROLES)
def test_finds_planted_cross_attention_roles(result: Any, head: int) -> None:
    assert (result.of(CROSS, head).role or "no role found") == CROSS_ROLES[head]


def test_the_last_step_is_no_position_of_a_causal_head() -> None:
    """Only the last query sees the last key: half of its weight does not show that the head attends to it."""
    random, shown = np.random.default_rng(0), []
    weights = np.eye(LENGTH) / 2 + np.eye(LENGTH, k=-1) / 2
    weights[0, 0] = 1.0
    for _ in range(SAMPLES):
        letters = random.choice(list(LETTERS), LENGTH).tolist()
        own = LayerMap(
            name="decoder.0.self_attention",
            title="",
            weights=np.stack([weights, np.tri(LENGTH) / np.arange(1, LENGTH + 1)[:, None]]).astype(np.float32),
            query_labels=letters,
            key_labels=letters,
        )
        shown.append({"decoder.0.self_attention": own})
    untrained = [
        {name: dataclasses.replace(own, weights=own.weights[1:]) for name, own in maps.items()} for maps in shown
    ]
    assert "step 11, with any symbol" in searched_roles([maps["decoder.0.self_attention"] for maps in shown])
    found = measure_candidates(shown, [untrained[: SAMPLES // 2]])
    [role, even] = choose_roles(found, dict.fromkeys(ROLE_KINDS, 0.3))
    assert role.role in ("its own step", "the previous step", "its own step or the previous step")
    [role, even] = choose_roles(found, dict.fromkeys(ROLE_KINDS, 0.5))
    assert role.role == "its own step or the previous step" and even.role is None


@pytest.mark.parametrize("alike", [True, False])
def test_texts_of_one_form_do_not_tell_a_symbol_from_its_position(alike: bool) -> None:
    """A head that attends to the step after the first "x" is an induction head only if "x" has no fixed place."""
    role, random, maps = "what followed the same symbol before", np.random.default_rng(0), list[dict[str, LayerMap]]()
    for _ in range(SAMPLES):
        letters = [f"w{number}" for number in random.integers(10**6, size=LENGTH)]
        for place in (1, 7) if alike else sorted(random.choice(LENGTH - 1, 2, replace=False)):
            letters[place] = "x"
        for each in (_planted(role, letters, random), _planted("no role found", letters, random)):
            layer = LayerMap(name="a", title="", weights=each[None], query_labels=letters, key_labels=letters)
            maps.append({"a": layer})
    [found] = choose_roles(measure_candidates(maps[::2], [maps[1::2]]), dict.fromkeys(ROLE_KINDS, 0.3))
    assert (found.role == role) is not alike, found


def test_fixed_steps_missing_names_and_more_inputs() -> None:
    keys, names = np.eye(6, k=-3, dtype=bool) | np.eye(6, k=-4, dtype=bool), [*map(str, range(6))]

    def look(own: float) -> dict[str, LayerMap]:
        both = np.stack([np.where(keys, own, 1e-6) + np.eye(6) * 1e-3, np.tri(6)])
        weights = both / both.sum(-1, keepdims=True)
        layer = LayerMap(name="a", title="", weights=weights, key_labels=names, query_labels=names, relevant=keys)
        return {"a": layer}

    assert not [name for name in searched_roles([look(1.0)["a"]]) if name.startswith("the symbol")]
    sets = ([look(1.0)] * SAMPLES, [look(float(number % 3 > 0)) for number in range(SAMPLES)])
    found = [measure_candidates(maps, [[look(0.0)]]) for maps in sets]
    (sure, _), (open, _) = (choose_roles(heads, dict.fromkeys(ROLE_KINDS, 0.5)) for heads in found)
    assert sure.role == AT_STEPS and open.role is None and f"perhaps {AT_STEPS} (about " in open.description


def test_a_description_carries_its_error_rate(result: Any) -> None:
    role = result.of(ENCODER, 1)
    data = result.by_layer()[ENCODER][1]
    assert data["error"] and data["error"].startswith("of 100 such sentences") and data["reliable"] == role.is_reliable
    assert role.wrong in str(result) and "with its 95 % interval" in str(result)


def test_the_table_is_sorted_by_importance(result: Any) -> None:
    added = {ENCODER: [0.1] * len(ENCODER_ROLES), CROSS: [0.0, 0.5, *[0.0] * (len(CROSS_ROLES) - 2)]}
    assert (result.sorted(added)[0].layer, result.sorted(added)[0].head) == (CROSS, 1)
    lines = str(result).splitlines()
    assert "untrained" in lines[1] and sum(" 0." in line for line in lines) == 17
    by_layer = result.by_layer()
    strength = by_layer[CROSS][0]["strength"]
    assert by_layer[ENCODER][0]["role"] == "its own step" and set(strength) == {"mean", "low", "high"}


@pytest.mark.parametrize("task", ["signal2", "reverse"])
def test_heads_before_training_have_no_role(
    task: str, trained: regard.AnswerRun, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Ten models of each of two kinds."""
    run: Any = trained
    if task == "reverse":
        options: Any = {"hidden": 16, "heads": 2, "max_len": 5, "steps": 1, "batchsize": 4, "progress": False}
        run = regard.train("reverse", model="transformer", savepath=tmp_path_factory.mktemp("roles"), **options)
    for seed in range(10):
        roles = run.untrained(100 + seed).roles(samples=10, seed=seed)
        assert [head.role for head in roles.heads] == [None] * len(roles.heads), (seed, str(roles))
