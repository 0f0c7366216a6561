"""Translation quality: BLEU and chrF, computed with sacrebleu, with the signatures that make scores comparable."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.arguments import public
from regard.data.bleu_tokenizer import check_bleu_tokenizer, choose_bleu_tokenizer


@public
@dataclass(frozen=True, kw_only=True)
class Quality:
    """Scores of translations with one reference per translation."""

    bleu: float | None
    """BLEU (Papineni et al. 2002), 0 to 100, case-sensitive. None for a model that writes only lowercase text."""
    bleu_lowercase: float
    """Case-insensitive BLEU."""
    chrf: float
    """chrF2 (Popović 2015), 0 to 100. Case-insensitive for a model that writes only lowercase text."""
    exact_match: float
    """Fraction (0 to 1) of translations that equal the reference. Case-insensitive in the same cases as `chrf`."""
    signatures: dict[str, str]
    """Signatures of sacrebleu by the name of the score."""
    tokenizer: str
    """sacrebleu tokenizer for BLEU."""

    @property
    def main(self) -> float:
        """The main score: `bleu`, or `bleu_lowercase` if `bleu` is None."""
        return self.bleu_lowercase if self.bleu is None else self.bleu

    @property
    def warning(self) -> str:
        """A warning if BLEU is 0 although some answers equal their references, else an empty string."""
        if self.main >= 0.005 or not self.exact_match:
            return ""
        return (
            f"BLEU is 0.00 although {self.exact_match:.1%} of the answers equal their references: tokenizer "
            f"{self.tokenizer} finds no sequence of four words; try --bleu_tokenize char"
        )

    def lines(self) -> list[str]:
        """Return the scores as lines of text, the main score first."""
        scores = [
            ("bleu", "BLEU", self.bleu),
            ("bleu_lowercase", "BLEU", self.bleu_lowercase),
            ("chrf", "chrF", self.chrf),
        ]
        return [f"{name} {score:.2f}   ({self.signatures[key]})" for key, name, score in scores if score is not None]


def quality(
    translations: Sequence[str], references: Sequence[str], *, lowercase: bool = False, tokenize: str | None = None
) -> Quality:
    """Return all scores of translations with one reference per translation.

    `lowercase`: whether the model was trained on lowercase text, so that all translations are lowercase.
    `tokenize`: a tokenizer of sacrebleu; by default, the writing system of the references determines it.

    >>> scores = quality(["a dog runs home"], ["a dog runs home"])
    >>> round(scores.bleu or 0), scores.exact_match
    (100, 1.0)
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if tokenize is not None:
        check_bleu_tokenizer(tokenize)
    tokenizer = tokenize or choose_bleu_tokenizer(references)
    expected = [reference.lower() for reference in references] if lowercase else references
    metrics: dict[str, BLEU | CHRF] = {
        "bleu_lowercase": BLEU(lowercase=True, tokenize=tokenizer),
        "chrf": CHRF(lowercase=lowercase),
    }
    if not lowercase:
        metrics["bleu"] = BLEU(tokenize=tokenizer)
    scores = {
        name: metric.corpus_score(list(translations), [list(references)]).score for name, metric in metrics.items()
    }
    return Quality(
        bleu=scores.get("bleu"),
        bleu_lowercase=scores["bleu_lowercase"],
        chrf=scores["chrf"],
        exact_match=sum(map(str.__eq__, translations, expected)) / len(references),
        signatures={name: str(metric.get_signature()) for name, metric in metrics.items()},
        tokenizer=tokenizer,
    )
