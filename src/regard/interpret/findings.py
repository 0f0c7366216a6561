"""What is known of one head, in figures and in a sentence that claims no more than they support."""

from dataclasses import dataclass

from regard.interpret.estimates import Estimate
from regard.result import Result

IMPORTANT = 0.01
"""Nats of loss above which a head is said to matter."""


STEADY = 0.1
"""Share of the attention that may move from sample to sample where a head is said to look at places."""


@dataclass(frozen=True, kw_only=True, repr=False)
class HeadFindings(Result):
    """What is known of one head."""

    layer: str
    head: int
    relevance: Estimate | None = None
    """Share (0 to 1) of its attention on relevant inputs; None where the task does not know them."""
    beyond_uniform: Estimate | None = None
    """The share less that of uniform attention, sample by sample."""
    beyond_permuted: Estimate | None = None
    """The share less that on the relevant inputs of another sample."""
    gradient: Estimate | None
    """Rank correlation (-1 to 1) of the weights with gradient times input; None where none could be measured."""
    ablation: Estimate | None
    """Rank correlation of the weights with ablation."""
    gradient_permuted: Estimate | None
    """The correlation with gradient times input of another sample."""
    ablation_permuted: Estimate | None
    moved: float | None = None
    """How much of its attention (0 to 1) stands elsewhere on another sample: 0 where it looks at places alone."""
    importance: float
    """What is added to the loss when the head is off, in nats."""
    measure: str = "loss"
    """What that is, where it is not the loss against a known truth."""

    def __str__(self) -> str:
        return self.sentence()

    def summary(self) -> str:
        """Name the head."""
        return f"{self.layer} head {self.head}"

    def sentence(self) -> str:
        """Say what the figures support, and what they do not."""
        said = [*self._placing(), *self._ranking("gradients do", self.gradient, self.gradient_permuted)]
        said += self._ranking("ablation does", self.ablation, self.ablation_permuted)
        if self.importance > IMPORTANT:
            said.append(f"switching it off adds {self.importance:.3f} to the {self.measure}")
        else:
            said.append(
                f"switching it off changes the {self.measure} by {self.importance:+.3f}: whatever it shows, the "
                f"model hardly needs it"
            )
        return f"{self.layer}, head {self.head}: {'; '.join(said)}."

    def _placing(self) -> list[str]:
        """Say whether it is where it should be; nothing where that is not known."""
        if self.relevance is None or self.beyond_uniform is None or self.beyond_permuted is None:
            return []
        share = f"{self.relevance.mean:.0%} of its attention is on what the answer depends on"
        if self.beyond_uniform.low <= 0:
            return [f"{share}, which is not more than uniform attention would have"]
        if self.beyond_permuted.low > 0:
            return [f"{share}, more than uniform attention and more than for another sample's inputs"]
        same = f"{share}, more than uniform attention, but no more than would be for another sample"
        if self.moved is not None and self.moved < STEADY:
            return [f"{same}: it looks at places, whatever stands there ({self.moved:.0%} of it moves)"]
        return [same]

    @staticmethod
    def _ranking(other: str, found: Estimate | None, permuted: Estimate | None) -> list[str]:
        """Say whether it ranks the inputs as something else does; nothing where that was not measured."""
        if found is None:
            return []
        if found.low > max(0.0 if permuted is None else permuted.high, 0):
            strength = "closely" if found.mean >= 0.7 else "in part" if found.mean >= 0.3 else "barely"
            return [f"it ranks the inputs {strength} as {other} ({found.mean:.2f})"]
        return [f"its ranking of the inputs is not that of {other.split()[0]} ({found.mean:.2f})"]
