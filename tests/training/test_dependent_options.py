"""Options that have no effect without another option are refused, and only these."""

from typing import Any

import pytest

from regard.errors import InputError
from regard.training import make_config
from regard.training.dependent_options import DEPENDENT, check_dependent

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "activation": ("induction", {"feed_forward": False, "activation": "relu"}, {"feed_forward": True}),
    "context": ("reverse", {"score": "none", "context": "cell"}, {"score": "additive"}),
    "guide_weight": ("translation", {"guide_weight": 0.05}, {"guide": "links"}),
    "heads": ("counting", {"heads": 4}, {"multihead": True}),
    "inner": ("induction", {"feed_forward": False, "inner": 8}, {"feed_forward": True}),
    "last_lr": ("induction", {"schedule": "constant", "last_lr": 0.1}, {"schedule": "one_cycle"}),
    "layer": ("counting", {"layer": "standard"}, {"enc_layers": 1}),
    "norm_epsilon": ("induction", {"norm": "none", "norm_epsilon": 0.1}, {"norm": "rms"}),
    "positions": ("counting", {"positions": "sinusoidal"}, {"pos_enc": True}),
    "query": ("reverse", {"score": "none", "query": "previous"}, {"score": "additive"}),
    "rotary_base": ("induction", {"rotary_base": 500.0}, {"positions": "rotary"}),
    "score": ("recall", {"pooling": "max", "score": "dot"}, {"pooling": "attention"}),
    "vocab_size": ("text", {"vocab_size": 30}, {"tokenizer": "bpe"}),
}
"""Task, flags without an effect, and the change with which they have one."""


def check(task: str, flags: dict[str, Any]) -> None:
    check_dependent(flags, make_config(task, flags).flags())


@pytest.mark.parametrize("name", CASES)
def test_an_option_without_effect_is_refused(name: str) -> None:
    task, flags, change = CASES[name]
    with pytest.raises(InputError, match=f"{name} {flags[name]} has no effect with") as raised:
        check(task, flags)
    assert "\n" not in str(raised.value)
    check(task, {**flags, **change})
    check(task, {option: value for option, value in flags.items() if option != name})


def test_all_options_are_tested() -> None:
    assert CASES.keys() == DEPENDENT.keys()


def test_own_vocabularies_have_a_size() -> None:
    with pytest.raises(InputError, match="vocab_size 9 has no effect with this --tokenizer"):
        check("translation", {"tokenizer": "own/bpe.model", "vocab_size": 9})
    check("translation", {"tokenizer": "words", "vocab_size": 9})
