"""The probes of a card: a small task, a small model, and the settings of its training.

All settings are fixed, so that the results of two mechanisms can be compared. The digest of a probe changes with
every setting; measurements with another digest are not used.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from regard.io.reading import json_digest
from regard.models.decoder_only import DecoderOnlyConfig
from regard.tasks.induction import Induction, InductionTaskConfig
from regard.tasks.mqar import Mqar, MqarTaskConfig
from regard.tasks.parity import Parity, ParityTaskConfig
from regard.tasks.regression import Regression, RegressionTaskConfig
from regard.tasks.tokens import TokenTask
from regard_lab.cards.probe_tasks import (
    CopyLetters,
    HelpText,
    HelpTextConfig,
    LettersConfig,
    ReverseLetters,
    SortLetters,
    help_text,
)

REVISION = 1
"""Number of the procedure of training and measuring; raise it when results change at equal settings."""


@dataclass(frozen=True, kw_only=True)
class CardProbe:
    """A task for a small decoder-only model, with all settings of its training."""

    name: str
    summary: str
    """What the probe tests, in one line."""
    task: Callable[[Any], TokenTask]
    """Class of the task."""
    task_config: Any
    """Sizes of the task."""
    steps: int
    """Number of training steps."""
    lr: float = 0.004
    """Peak learning rate."""
    layers: int = 2
    """Number of layers."""
    hidden: int = 32
    """Width of the states."""
    heads: int = 4
    """Number of heads."""
    inner: int = 64
    """Inner width of the feed-forward layers; 0 for a model with only attention layers."""
    batch: int = 32
    """Number of sequences in a batch."""
    tests: Mapping[str, int | None] = dataclasses.field(default_factory=lambda: {"": None})
    """Numbers of tokens in the tests by name; None for the largest length of training."""
    test_sequences: int = 256
    """Number of sequences in each test."""
    chance: float = 0.0
    """Score of a model that ignores the sequence."""
    extra: bool = False
    """Whether the probe serves only claims, and is not a part of every card."""

    def build_task(self) -> TokenTask:
        return self.task(self.task_config)

    def build_config(self, mechanism: str) -> DecoderOnlyConfig:
        """Return the config of the model. Raises `InputError` for a mechanism that does not fit the model."""
        return DecoderOnlyConfig(
            attention=mechanism,
            hidden=self.hidden,
            layers=self.layers,
            heads=self.heads,
            inner=max(self.inner, 1),
            feed_forward=self.inner > 0,
        )

    def settings(self, steps: int | None = None) -> dict[str, Any]:
        """Return all settings on which results depend. `steps` replaces the number of training steps."""
        values = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("summary", "task", "task_config", "extra", "chance")
        }
        values |= {"task": getattr(self.task, "__name__", ""), "sizes": dataclasses.asdict(self.task_config)}
        values |= {"tests": dict(self.tests), "revision": REVISION}
        if steps is not None:
            values["steps"] = steps
        if self.task is HelpText:
            values["text"] = hashlib.sha256(help_text().encode()).hexdigest()
        return values

    def digest(self, steps: int | None = None) -> str:
        """Return the first 12 hexadecimal digits of the digest of all settings."""
        return json_digest(self.settings(steps))[:12]


INDUCTION = InductionTaskConfig(max_len=20, repeated=7, vocab_size=13)
LETTERS = LettersConfig()
SORTED = LettersConfig(test_letters=LETTERS.letters)
LENGTHS = {"": 24, "x2": 48, "x4": 96}
MQAR4 = MqarTaskConfig(max_len=20, pairs=4, vocab_size=16)
MQAR8 = MqarTaskConfig(max_len=32, pairs=8, vocab_size=16)

PROBES = {
    probe.name: probe
    for probe in (
        CardProbe(
            name="induction",
            summary="continue a repeated part of a random sequence (20 tokens)",
            task=Induction,
            task_config=INDUCTION,
            steps=1000,
            lr=0.006,
            inner=0,
            chance=1 / 13,
        ),
        CardProbe(
            name="mqar4",
            summary="recall the values of 4 keys (20 tokens)",
            task=Mqar,
            task_config=MQAR4,
            steps=600,
            chance=1 / 8,
        ),
        CardProbe(
            name="mqar8",
            summary="recall the values of 8 keys (32 tokens)",
            task=Mqar,
            task_config=MQAR8,
            steps=500,
            chance=1 / 8,
        ),
        CardProbe(
            name="copy",
            summary="repeat 2 to 12 letters; x2 and x4: 24 and 48 letters",
            task=CopyLetters,
            task_config=LETTERS,
            steps=500,
            tests=LENGTHS,
            chance=1 / 16,
        ),
        CardProbe(
            name="reverse",
            summary="repeat 2 to 12 letters from last to first; x2 and x4: 24 and 48 letters",
            task=ReverseLetters,
            task_config=LETTERS,
            steps=500,
            tests=LENGTHS,
            chance=1 / 16,
        ),
        CardProbe(
            name="sort",
            summary="sort 2 to 12 letters",
            task=SortLetters,
            task_config=SORTED,
            steps=500,
            chance=1 / 16,
        ),
        CardProbe(
            name="parity",
            summary="is the number of ones odd? (1 to 10 bits; tested on 10)",
            task=Parity,
            task_config=ParityTaskConfig(max_len=10, test_len=10),
            steps=800,
            tests={"": 11},
            test_sequences=1024,
            chance=0.5,
        ),
        CardProbe(
            name="regression",
            summary="predict values of a linear function of 3 numbers from earlier points (11 points)",
            task=Regression,
            task_config=RegressionTaskConfig(dims=3, points=11),
            steps=500,
        ),
        CardProbe(
            name="text",
            summary="predict the next character of Python's help topics (32 characters)",
            task=HelpText,
            task_config=HelpTextConfig(),
            steps=500,
        ),
        CardProbe(
            name="induction_one_layer",
            summary="induction with one layer",
            task=Induction,
            task_config=INDUCTION,
            steps=1000,
            lr=0.006,
            inner=0,
            layers=1,
            chance=1 / 13,
            extra=True,
        ),
        *(
            CardProbe(
                name=f"mqar{config.pairs}_width{width}",
                summary=f"recall the values of {config.pairs} keys at width {width}, 1000 steps",
                task=Mqar,
                task_config=config,
                steps=1000,
                hidden=width,
                inner=2 * width,
                chance=1 / 8,
                extra=True,
            )
            for config in (MQAR4, MQAR8)
            for width in (16, 32)
        ),
    )
}
"""The probes by name."""


def card_probes() -> list[str]:
    """Return the names of the probes of every card.

    >>> card_probes()[:3]
    ['induction', 'mqar4', 'mqar8']
    """
    return [name for name, probe in PROBES.items() if not probe.extra]
