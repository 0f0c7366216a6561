"""Criterion of a validation: the figure that selects the best model.

>>> find_criterion("loss").value({"valid_loss": 2.0}) < find_criterion("loss").value({"valid_loss": 1.5})
True
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from regard.errors import InputError, unknown_choice

METRICS = {"bleu": "bleu", "chrf": "chrf", "loss": "valid_loss", "perplexity": "valid_perplexity"}
"""Name of each figure in metrics.jsonl, by the name of the criterion."""
TITLES = {
    "bleu": "BLEU {:.2f}",
    "chrf": "chrF {:.2f}",
    "loss": "loss {:.4f} nats per token",
    "perplexity": "perplexity {:.2f}",
}


class Criterion(NamedTuple):
    """A figure of a validation text."""

    figure: str
    """bleu, chrf, loss or perplexity."""
    text: str
    """Name of the validation text; empty for the text of `--valid`."""

    @property
    def metric(self) -> str:
        return "/".join(filter(None, [METRICS[self.figure], self.text]))

    def value(self, metrics: Mapping[str, float]) -> float:
        figure = metrics[self.metric]
        return figure if self.figure in ("bleu", "chrf") else -figure

    def describe(self, metrics: Mapping[str, float]) -> str:
        text = f" on {self.text}" if self.text else ""
        return f"{TITLES[self.figure].format(metrics[self.metric])}{text}"

    def check_text(self, names: Iterable[str]) -> None:
        """Raise `InputError` unless the text is one of the validation texts; `names`: their names."""
        if self.text not in (names := list(names)):
            others = ", ".join(filter(None, names)) or "none are given"
            raise InputError(
                f"criterion {self.figure}/{self.text} names no text of --extra_valid: {others}; give a text with "
                f"--extra_valid {self.text}=SOURCE,TARGET, or another criterion"
            )


def find_criterion(name: str) -> Criterion:
    """Return the criterion for a name such as bleu or bleu/NAME. Raises `InputError` for an unknown figure."""
    figure, slash, text = name.partition("/")
    if slash and not text:
        figure = name
    if figure not in METRICS:
        raise unknown_choice("criterion", figure, METRICS, other="FIGURE/NAME for a text of --extra_valid")
    return Criterion(figure, text)
