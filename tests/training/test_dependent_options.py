"""Options that have no effect without another option are refused, and only these."""

from typing import Any

import pytest

from regard.errors import InputError
from regard.training.config import DEPENDENT, check_dependent, make_config

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
    "weights": (
        "translation",
        {"train": "a.tsv", "weights": 1.0},
        {"train": ("a.tsv", "b.tsv"), "weights": (1, 2)},
    ),
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
    with pytest.raises(InputError, match="vocab_size 9 has no effect with this --tokenizer"):
        check("translation", {"tokenizer": "own/bpe.model", "vocab_size": 9}, "vocab_size")
    check("translation", {"tokenizer": "words", "vocab_size": 9}, "vocab_size")


def test_kept_models_need_no_validation_text() -> None:
    with pytest.raises(InputError, match="validate_every 5 has no effect without validation text or --keep"):
        check("translation", {"validate_every": 5}, "validate_every")
    check("translation", {"validate_every": 5, "keep": 2}, "validate_every")
