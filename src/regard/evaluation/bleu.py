"""How good translations are: BLEU and chrF by sacrebleu, with the signatures that make figures comparable."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.data.bleu_tokenizer import check_bleu_tokenizer, choose_bleu_tokenizer


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Scores of translations against one reference each."""

    bleu: float | None
    """BLEU (Papineni et al. 2002), 0 to 100, on text as `tokenizer` cuts it; None for a model that writes
    lower case alone, of which it says nothing."""
    bleu_lowercase: float
    """The same without regard to case."""
    chrf: float
    """chrF2 (Popović 2015), 0 to 100; without regard to case for a model that writes lower case alone."""
    exact_match: float
    """Share (0 to 1) of translations that are the reference to the last character; case as in `chrf`."""
    signatures: dict[str, str]
    """How sacrebleu worked out each of the first three, by its name."""
    tokenizer: str
    """sacrebleu's tokenizer that BLEU was worked out with."""

    @property
    def main(self) -> float:
        """The BLEU that the model is judged by."""
        return self.bleu_lowercase if self.bleu is None else self.bleu

    @property
    def warning(self) -> str:
        """What is odd about BLEU; empty where nothing is."""
        return bleu_warning(self.main, self.exact_match, self.tokenizer)

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


def bleu_warning(bleu: float, exact_match: float, tokenizer: str) -> str:
    """Return what to say where BLEU is 0 though answers are right to the last character; empty elsewhere."""
    if bleu >= 0.005 or not exact_match:
        return ""
    return (
        f"BLEU is 0.00 though {exact_match:.1%} of the answers are right to the last character: tokenizer "
        f"{tokenizer} finds no four words in a row; try --bleu_tokenize char"
    )


def bleu(
    translations: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    tokenize: str | None = None,
) -> float:
    """Return the BLEU of translations against a reference each, 0 to 100.

    `tokenize`: a tokenizer of sacrebleu's; None: what fits the references (see `choose_bleu_tokenizer`).
    """
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(lowercase=lowercase, tokenize=_checked(tokenize, references))
    return float(metric.corpus_score(list(translations), [list(references)]).score)


def exact_share(translations: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> float:
    """Return the share (0 to 1) of translations that are the reference to the last character."""
    expected = [reference.lower() for reference in references] if lowercase else references
    return sum(map(str.__eq__, translations, expected)) / len(references)


def _checked(tokenize: str | None, references: Sequence[str]) -> str:
    if tokenize is None:
        return choose_bleu_tokenizer(references)
    check_bleu_tokenizer(tokenize)
    return tokenize


def quality(
    translations: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    tokenize: str | None = None,
) -> Quality:
    """Return all scores of translations against a reference each.

    `lowercase`: the translations are in lower case throughout, as their model's text was. `tokenize`: as in
    `bleu`.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    tokenizer = _checked(tokenize, references)
    metrics: dict[str, BLEU | CHRF] = {
        "bleu_lowercase": BLEU(lowercase=True, tokenize=tokenizer),
        "chrf": CHRF(lowercase=lowercase),
    }
    if not lowercase:
        metrics["bleu"] = BLEU(tokenize=tokenizer)
    scores = {
        name: metric.corpus_score(list(translations), [list(references)]).score
        for name, metric in metrics.items()
    }
    return Quality(
        bleu=scores.get("bleu"),
        bleu_lowercase=scores["bleu_lowercase"],
        chrf=scores["chrf"],
        exact_match=exact_share(translations, references, lowercase=lowercase),
        signatures={name: str(metric.get_signature()) for name, metric in metrics.items()},
        tokenizer=tokenizer,
    )
