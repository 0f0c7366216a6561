"""How good translations are: BLEU and chrF by sacrebleu, with the signatures that make figures comparable."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Scores of translations against one reference each."""

    bleu: float | None
    """BLEU (Papineni et al. 2002), 0 to 100, on text tokenised as by mteval-v13a; None for a model that writes
    lower case alone, of which it says nothing."""
    bleu_lowercase: float
    """The same without regard to case."""
    chrf: float
    """chrF2 (Popović 2015), 0 to 100; without regard to case for a model that writes lower case alone."""
    exact_match: float
    """Share (0 to 1) of translations that are the reference to the last character; case as in `chrf`."""
    signatures: dict[str, str]
    """How sacrebleu worked out each of the first three, by its name."""

    @property
    def main(self) -> float:
        """The BLEU that the model is judged by."""
        return self.bleu_lowercase if self.bleu is None else self.bleu

    def lines(self) -> list[str]:
        """Write the scores, the one that the model is judged by first."""
        found = [
            ("bleu", "BLEU", self.bleu),
            ("bleu_lowercase", "BLEU", self.bleu_lowercase),
            ("chrf", "chrF", self.chrf),
        ]
        return [
            f"{name} {score:.2f}   ({self.signatures[key]})" for key, name, score in found if score is not None
        ]


def bleu(translations: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> float:
    """Return the BLEU of translations against a reference each, 0 to 100."""
    from sacrebleu.metrics.bleu import BLEU

    return float(BLEU(lowercase=lowercase).corpus_score(list(translations), [list(references)]).score)


def quality(translations: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> Quality:
    """Return all scores of translations against a reference each.

    `lowercase`: the translations are in lower case throughout, as their model's text was.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    metrics: dict[str, BLEU | CHRF] = {"bleu_lowercase": BLEU(lowercase=True), "chrf": CHRF(lowercase=lowercase)}
    if not lowercase:
        metrics["bleu"] = BLEU()
    scores = {
        name: metric.corpus_score(list(translations), [list(references)]).score
        for name, metric in metrics.items()
    }
    expected = [reference.lower() for reference in references] if lowercase else references
    right = sum(map(str.__eq__, translations, expected))
    return Quality(
        bleu=scores.get("bleu"),
        bleu_lowercase=scores["bleu_lowercase"],
        chrf=scores["chrf"],
        exact_match=right / len(references),
        signatures={name: str(metric.get_signature()) for name, metric in metrics.items()},
    )
