"""Configuration: defaults, flags, storage."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from regard.errors import InputError
from regard.models.query import QueryModel, QueryModelConfig
from regard.tasks.all_tasks import TASKS, find_task
from regard.training.checkpoint import Progress, make_optimizer
from regard.training.config import (
    DEPENDENT,
    RECIPES,
    check_dependent,
    find_criterion,
    make_config as make_typed_config,
    models_for,
)
from regard.training.run_folder import config_from_json


def make_config(*given: Any) -> Any:
    """Return a config whose parts have type Any."""
    return make_typed_config(*given)


def test_tasks_have_the_defaults_of_their_documents() -> None:
    assert make_config("counting").training.steps == 2000
    assert make_config("difference").training.steps == 1000
    signal, signal2 = make_config("signal"), make_config("signal2")
    assert (signal.training.steps, signal.model.enc_layers, signal.model.pos_enc) == (2000, 1, False)
    assert (signal2.model.pos_enc, signal2.model.multihead, signal2.model.heads) == (True, True, 4)
    for task in ("counting", "difference", "signal", "signal2"):
        config = make_config(task)
        assert (config.training.batchsize, config.model.hidden, config.task.max_len) == (100, 64, 10)
        assert (config.task.vocab_size, config.model.self_att) == (3, False)


@pytest.mark.parametrize(
    ("flags", "lr"),
    [
        ({}, 0.05),
        ({"enc_layers": 1}, 0.005),
        ({"recipe": "seed"}, 0.01),
        ({"recipe": "seed", "enc_layers": 2}, 0.001),
        ({"lr": 0.3}, 0.3),
        ({"lr": 1}, 1),
    ],
)
def test_recipe_sets_the_default_rate(flags: dict[str, Any], lr: float) -> None:
    assert make_config("counting", flags).resolved().training.lr == lr


@given(
    steps=st.integers(1, 10**9),
    lr=st.none() | st.floats(1e-9, 1e9),
    choice=st.sampled_from([(task, model) for task in TASKS for model in models_for(find_task(task))]),
)
def test_config_survives_json(steps: int, lr: float | None, choice: tuple[str, str]) -> None:
    config = make_config(choice[0], {"steps": steps, "lr": lr, "model": choice[1]})
    assert config_from_json(json.loads(json.dumps(config.json()))) == config


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"hiden": 3}, "flag 'hiden' is unknown: did you mean hidden?"),
        ({"steps": "many"}, "steps 'many' is of type str: give int"),
        ({"steps": True}, "steps True is of type bool: give int"),
        ({"pos_enc": 1}, "pos_enc 1 is of type int: give bool"),
        ({"lr": "fast"}, "lr 'fast' is of type str: give None or float"),
        ({"steps": 0}, "steps 0 is out of range: choose from 1 to 1000000000"),
        ({"batchsize": 0}, "batchsize 0 is out of range: choose from 1 to 1000000"),
        ({"seed": -1}, "seed -1 is out of range: choose from 0 to 4294967295"),
        ({"lr": 0.0}, "lr 0.0 is out of range: choose a finite number above 0"),
        ({"lr": float("nan")}, "lr nan is out of range: choose a finite number above 0"),
        ({"recipe": "secret"}, "recipe 'secret' is unknown: choose regard, seed; did you mean seed?"),
    ],
)
def test_bad_flags_are_refused(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        make_config("counting", flags)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    "spoil",
    [
        lambda stored: stored.pop("options"),
        lambda stored: stored.update(options=3),
        lambda stored: stored.update(extra=1),
        lambda stored: stored["options"].pop("heads"),
        lambda stored: stored["options"].update(wings=2),
        lambda stored: stored["options"].update(heads="4"),
        lambda stored: stored.update(options=[]),
        lambda stored: stored.update(kept_heads=3),
        lambda stored: stored.update(kind=[]),
    ],
)
def test_wrong_stored_config_is_refused(spoil: Any) -> None:
    stored = make_config("counting").json()
    spoil(stored)
    with pytest.raises(InputError):
        config_from_json(stored)


def test_a_mechanism_replaces_the_positions_of_a_preset() -> None:
    assert make_config("translation", {"attention": "sink"}).model.positions == "rotary"
    for flags in ({"attention": "alibi,sink"}, {"attention": "alibi", "positions": "none"}):
        assert make_config("translation", flags).model.embedding_positions == "bias"
    assert make_config("translation", {"attention": "learned"}).model.embedding_positions == "learned"
    with pytest.raises(InputError, match="--positions rotary and attention part alibi are both .* or --positions none"):
        make_config("translation", {"attention": "alibi", "positions": "rotary"})


def test_rate_rises_linearly_and_falls_as_a_cosine() -> None:
    factors = [RECIPES["regard"].schedule(step, 1000) for step in range(1000)]
    assert factors[0] == pytest.approx(0.005)
    assert factors[199] == 1.0 == max(factors)
    assert factors[:200] == sorted(factors[:200]) and factors[199:] == sorted(factors[199:], reverse=True)
    assert factors[599] == pytest.approx(0.5, abs=0.01)  # halfway down
    assert 0 < factors[-1] < 1e-4


@pytest.mark.parametrize("steps", [1, 2, 3, 10])
def test_rate_of_short_trainings_is_positive(steps: int) -> None:
    assert all(0 < RECIPES["regard"].schedule(step, steps) <= 1 for step in range(steps))


def test_seed_recipe_has_a_constant_rate() -> None:
    assert {RECIPES["seed"].schedule(step, 10) for step in range(10)} == {1.0}


def test_output_layer_has_a_higher_rate_in_the_regard_recipe() -> None:
    model = QueryModel(QueryModelConfig(), letters=4, input_len=10, outputs=3, classes=11)
    for name, output_lr in (("regard", 8.0), ("seed", 1.0)):
        factors = make_optimizer(model, RECIPES[name]).lr_factors
        assert set(factors) == {each for each, _ in model.named_parameters()}
        for each, factor in factors.items():
            assert factor == (output_lr if each in ("output.weight", "output.bias") else 1.0)


LINE = {"bleu": 20.0, "chrf/news": 40.0, "valid_loss": 2.0, "valid_perplexity/news": 8.0}


@pytest.mark.parametrize(
    ("name", "metric", "value", "text"),
    [
        ("bleu", "bleu", 20.0, "BLEU 20.00"),
        ("chrf/news", "chrf/news", 40.0, "chrF 40.00 on news"),
        ("loss", "valid_loss", -2.0, "loss 2.0000 nats per token"),
        ("perplexity/news", "valid_perplexity/news", -8.0, "perplexity 8.00 on news"),
    ],
)
def test_larger_values_are_better(name: str, metric: str, value: float, text: str) -> None:
    criterion = find_criterion(name)
    assert (criterion.metric, criterion.value(LINE), criterion.describe(LINE)) == (metric, value, text)


def test_unknown_criterion_is_refused() -> None:
    with pytest.raises(InputError, match=r"criterion 'ble' is unknown: choose bleu, .*; did you mean bleu\?"):
        find_criterion("ble/news")


def counts(*values: float) -> list[int]:
    progress, numbers = Progress(), []
    for value in values:
        progress.note(value)
        numbers.append(max(progress.since_best, 0))
    return numbers


def test_patience_counts_from_the_first_change() -> None:
    assert counts(0, 0, 0, 0) == [0, 0, 0, 0]
    assert counts(0, 0, 1, 1, 1) == [0, 0, 0, 1, 2]
    assert counts(0, 0, 1, 0.5, 2, 2) == [0, 0, 0, 1, 0, 1]
    assert counts(-3, -3.5, -4, -2) == [0, 1, 2, 0]


def test_equal_models_are_better_and_unknown_ones_are_not() -> None:
    progress = Progress()
    assert [progress.note(value) for value in (1.0, 1.0, float("nan"), 0.5, 1.0)] == [True, True, False, False, True]
    assert progress.best == 1.0


HUB: dict[str, Any] = {"hub": "folder", "languages": ("de", "en")}
NO_HUB: dict[str, Any] = {"hub": None, "languages": (), "train": "train.tsv"}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "activation": ("induction", {"feed_forward": False, "activation": "relu"}, {"feed_forward": True}),
    "bleu_tokenize": ("translation", {"bleu_tokenize": "char"}, {"test": "test.tsv"}),
    "context": ("reverse", {"score": "none", "context": "cell"}, {"score": "additive"}),
    "criterion": ("translation", {"criterion": "loss"}, {"valid": "valid.tsv"}),
    "guide": ("translation", {"guide": "links", "guide_weight": 0.0}, {"guide_weight": 0.05}),
    "guide_weight": ("translation", {"guide_weight": 0.05}, {"guide": "links"}),
    "heads": ("counting", {"heads": 4}, {"multihead": True}),
    "inner": ("induction", {"feed_forward": False, "inner": 8}, {"feed_forward": True}),
    "last_lr": ("induction", {"schedule": "constant", "last_lr": 0.1}, {"schedule": "one_cycle"}),
    "layer": ("counting", {"layer": "standard"}, {"enc_layers": 1}),
    "lenient": ("translation", {**HUB, "lenient": True}, {"extra_valid": "news=news.tsv"}),
    "norm_epsilon": ("induction", {"norm": "none", "norm_epsilon": 0.1}, {"norm": "rms"}),
    "patience": (
        "translation",
        {"valid": "valid.tsv", "patience": 3, "validate_every": 10, "steps": 40},
        {"steps": 41},
    ),
    "positions": ("counting", {"positions": "sinusoidal"}, {"pos_enc": True}),
    "query": ("reverse", {"score": "none", "query": "previous"}, {"score": "additive"}),
    "rotary_base": ("induction", {"rotary_base": 500.0}, {"positions": "rotary"}),
    "score": ("recall", {"pooling": "max", "score": "dot"}, {"pooling": "attention"}),
    "snapshots": ("counting", {"snapshots": 5, "steps": 3}, {"steps": 4}),
    "test": ("translation", {**HUB, "test": "test.tsv"}, NO_HUB),
    "tied": ("induction", {"positions": "concatenated", "tied": True}, {"positions": "rotary"}),
    "valid": ("translation", {**HUB, "valid": "valid.tsv"}, NO_HUB),
    "validate_every": ("text", {"valid_share": 0.0, "validate_every": 10}, {"valid_share": 0.1}),
    "vocab_size": ("text", {"vocab_size": 30}, {"tokenizer": "bpe"}),
    "weights": ("translation", {"train": "a.tsv", "weights": 1.0}, {"train": ("a.tsv", "b.tsv"), "weights": (1, 2)}),
}
"""Task, flags without an effect, and the change with which they have one."""


def check(task: str, flags: dict[str, Any], name: str) -> None:
    check_dependent({name: flags.get(name)}, make_config(task, flags).flags())


@pytest.mark.parametrize("name", CASES)
def test_an_option_without_effect_is_refused(name: str) -> None:
    task, flags, change = CASES[name]
    with pytest.raises(InputError, match=f"^{name} .* has no effect with") as raised:
        check(task, flags, name)
    assert "\n" not in str(raised.value)
    check(task, {**flags, **change}, name)
    check(task, {option: value for option, value in flags.items() if option != name}, name)


def test_all_options_are_tested() -> None:
    assert CASES.keys() == DEPENDENT.keys()


def test_own_vocabularies_have_a_size() -> None:
    with pytest.raises(InputError, match="vocab_size 9 has no effect without a --tokenizer such as bpe"):
        check("translation", {"tokenizer": "own/bpe.model", "vocab_size": 9}, "vocab_size")
    check("translation", {"tokenizer": "words", "vocab_size": 9}, "vocab_size")


def test_kept_models_need_no_validation_text() -> None:
    with pytest.raises(InputError, match="validate_every 5 has no effect without validation text or --keep"):
        check("translation", {"validate_every": 5}, "validate_every")
    check("translation", {"validate_every": 5, "keep": 2}, "validate_every")
