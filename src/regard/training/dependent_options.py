"""Options that only have an effect together with another option, such as `guide_weight` with `guide`."""

from collections.abc import Callable, Mapping
from typing import Any

from regard.errors import InputError

Flags = Mapping[str, Any]


def _learns_to_size(flags: Flags) -> bool:
    learned = ("bpe", "unigram", "words", "characters") if "train" in flags else ("bpe", "unigram")
    return flags.get("tokenizer", "bpe") in learned


DEPENDENT: dict[str, tuple[Callable[[Flags], bool], str]] = {
    "activation": (lambda flags: flags.get("feed_forward", True), "with --no-feed_forward"),
    "context": (lambda flags: flags["score"] != "none", "with --score none"),
    "guide_weight": (lambda flags: flags["guide"] is not None, "without --guide"),
    "heads": (lambda flags: flags.get("multihead", True), "without --multihead"),
    "inner": (lambda flags: flags.get("feed_forward", True), "with --no-feed_forward"),
    "last_lr": (lambda flags: flags["schedule"] == "one_cycle", "without --schedule one_cycle"),
    "layer": (lambda flags: flags["enc_layers"] > 0, "with --enc_layers 0"),
    "norm_epsilon": (lambda flags: flags["norm"] != "none", "with --norm none"),
    "positions": (lambda flags: flags.get("pos_enc", True), "without --pos_enc"),
    "query": (lambda flags: flags["score"] != "none", "with --score none"),
    "rotary_base": (lambda flags: flags["positions"] == "rotary", "without --positions rotary"),
    "score": (lambda flags: flags.get("pooling", "attention") == "attention", "without --pooling attention"),
    "vocab_size": (_learns_to_size, "with this --tokenizer"),
}
"""Options, whether each of them has an effect together with all options of a run, and when it has none."""


def check_dependent(given: Flags, flags: Flags) -> None:
    """Raise `InputError` for one of the `given` options that has no effect together with all options `flags`.

    >>> check_dependent({"heads": 2}, {"heads": 2, "multihead": True})
    """
    for name, (has_effect, otherwise) in DEPENDENT.items():
        if given.get(name) is not None and not has_effect(flags):
            raise InputError(
                f"{name} {given[name]} has no effect {otherwise}: leave it out, or change that option"
            )
