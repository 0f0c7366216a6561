"""Options that only have an effect together with another option, such as `guide_weight` with `guide`."""

from collections.abc import Callable, Mapping
from typing import Any

from regard.errors import InputError

Flags = Mapping[str, Any]


def _learns_to_size(flags: Flags) -> bool:
    learned = ("bpe", "unigram", "words", "characters") if "train" in flags else ("bpe", "unigram")
    return flags.get("tokenizer", "bpe") in learned


def _validates(flags: Flags) -> bool:
    return bool(flags["valid"] or flags["hub"]) if "hub" in flags else flags.get("valid_share", 1) > 0


def _can_stop(flags: Flags) -> bool:
    # Patience counts from the second validation on, and one at the last step ends nothing.
    stops = flags["patience"] and _validates(flags)  # without validation, `check_task` refuses patience
    return not stops or (flags["steps"] - 1) // flags["validate_every"] > flags["patience"]


def _ties(flags: Flags) -> bool:
    return "concatenated" not in (flags["positions"], *flags["attention"].split(","))


DEPENDENT: dict[str, tuple[Callable[[Flags], bool], str]] = {
    "activation": (lambda flags: flags.get("feed_forward", True), "with --no-feed_forward"),
    "bleu_tokenize": (lambda flags: bool(flags["test"]) or _validates(flags), "without --valid or --test"),
    "context": (lambda flags: flags["score"] != "none", "with --score none"),
    "criterion": (lambda flags: "/" in flags["criterion"] or _validates(flags), "without --valid"),
    "guide": (lambda flags: flags["guide_weight"] > 0, "with --guide_weight 0"),
    "guide_weight": (lambda flags: flags["guide"] is not None, "without --guide"),
    "heads": (lambda flags: flags.get("multihead", True), "without --multihead"),
    "inner": (lambda flags: flags.get("feed_forward", True), "with --no-feed_forward"),
    "last_lr": (lambda flags: flags["schedule"] == "one_cycle", "without --schedule one_cycle"),
    "layer": (lambda flags: flags["enc_layers"] > 0, "without --enc_layers 1 or more"),
    "lenient": (lambda flags: flags["hub"] is None or bool(flags["extra_valid"]), "with --hub"),
    "norm_epsilon": (lambda flags: flags["norm"] != "none", "with --norm none"),
    "patience": (_can_stop, "without more --steps or a smaller --validate_every"),
    "positions": (lambda flags: flags.get("pos_enc", True), "without --pos_enc"),
    "query": (lambda flags: flags["score"] != "none", "with --score none"),
    "rotary_base": (lambda flags: flags["positions"] == "rotary", "without --positions rotary"),
    "score": (lambda flags: flags.get("pooling", "attention") == "attention", "without --pooling attention"),
    "snapshots": (lambda flags: flags["snapshots"] <= flags["steps"] + 1, "without more --steps"),
    "test": (lambda flags: flags["hub"] is None, "with --hub"),
    "tied": (_ties, "with concatenated positions"),
    "valid": (lambda flags: flags["hub"] is None, "with --hub"),
    "validate_every": (
        lambda flags: _validates(flags) or flags.get("keep", 0) > 0,
        "without validation text or --keep",
    ),
    "vocab_size": (_learns_to_size, "with this --tokenizer"),
    "weights": (lambda flags: len(flags["weights"]) != 1, "without a second text of --train"),
}
"""Options, whether each of them has an effect together with all options of a run, and when it has none."""


def check_dependent(given: Flags, flags: Flags) -> None:
    """Raise `InputError` for one of the `given` options that has no effect together with all options `flags`.

    >>> check_dependent({"heads": 2}, {"heads": 2, "multihead": True})
    """
    for name, (has_effect, otherwise) in DEPENDENT.items():
        if (value := given.get(name)) is not None and not has_effect(flags):
            shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
            preposition, _, other = otherwise.partition(" ")
            way_out = f"{'give' if preposition == 'without' else 'leave out'} {other}"
            raise InputError(f"{name} {shown} has no effect {otherwise}: leave {name} out, or {way_out}")
