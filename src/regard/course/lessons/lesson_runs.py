"""The runs of the lessons: what a learner trains, and what it is compared with."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class LessonRun:
    """One training of a lesson."""

    name: str
    """What it is called in the lesson."""
    task: str
    flags: dict[str, Any] = field(default_factory=dict)
    input: str | None = None
    """What its lesson asks about, to be looked at first; None for any."""

    @property
    def command(self) -> str:
        """What to type for it."""
        return " ".join(["regard train", self.task, *(f"--{name}={value}" for name, value in self.flags.items())])


def _runs(
    task: str, common: dict[str, Any], *, asked: str | None = None, **variants: dict[str, Any]
) -> tuple[LessonRun, ...]:
    """Return runs on a task that differ in a few flags; the first is the learner's own."""
    return tuple(
        LessonRun(name=name.replace("_", " "), task=task, flags={**common, **flags}, input=asked)
        for name, flags in variants.items()
    )


SMALL = {"hidden": 64, "max_len": 10, "steps": 1200}
READER = {"model": "transformer", "hidden": 64, "heads": 4, "enc_layers": 1, "dec_layers": 1, "inner": 128}
RUNS: dict[str, tuple[LessonRun, ...]] = {
    "lookups": _runs(
        "recall", {"max_len": 20, "steps": 800}, attention={"pooling": "attention"}, mean={"pooling": "mean"}
    ),
    "counting": _runs("counting", {}, asked="ABBA_CABBA", queries={}),
    "difference": _runs("difference", {}, self_attention={"self_att": True}, without={"self_att": False}),
    "signal": _runs("signal", {}, asked="BABCABBCABA", positions={"pos_enc": True}, without={"pos_enc": False}),
    "signal2": _runs("signal2", {}, four_heads={"multihead": True}, one_head={"multihead": False}),
    "forgetting": _runs("reverse", SMALL, attention={"score": "general"}, last_state={"score": "none"}),
    "decoders": _runs(
        "copy", SMALL, Bahdanau={"context": "cell", "score": "additive"}, Luong={"context": "output"}
    ),
    "scores": _runs(
        "difference",
        {"self_att": True, "steps": 1000},
        scaled_dot={"score": "scaled_dot"},
        dot={"score": "dot"},
        general={"score": "general"},
        additive={"score": "additive"},
    ),
    "waves": _runs(
        "reverse",
        {**READER, "max_len": 10, "steps": 1200},
        waves={"positions": "sinusoidal"},
        learned={"positions": "learned"},
        rotary={"positions": "rotary"},
    ),
    "multihead": _runs(
        "signal2", {"multihead": True, "steps": 1500}, four={"heads": 4}, one={"heads": 1}, sixteen={"heads": 16}
    ),
    "transformer": _runs("sort", {**READER, "max_len": 10, "steps": 1200}, transformer={}),
    "translation": _runs("phrases", {}, asked="she says that the birds can hear these good songs", phrases={}),
    "explaining": _runs("signal", {"steps": 1500}, positions={"pos_enc": True}),
}
"""By lesson."""
