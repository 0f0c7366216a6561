"""How good translations are: BLEU and chrF by sacrebleu, with the signatures that make figures comparable."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Scores of translations against one reference each."""

    bleu: float
    """BLEU (Papineni et al. 2002), 0 to 100, on text tokenised as by mteval-v13a."""
    bleu_lowercase: float
    """The same without regard to case."""
    chrf: float
    """chrF2 (Popović 2015), 0 to 100; without regard to case for a model that writes lower case alone."""
    exact_match: float
    """Share (0 to 1) of translations that are the reference to the last character; case as in `chrf`."""
    signatures: dict[str, str]
    """How sacrebleu worked out each of the first three."""


def bleu(translations: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> float:
    """Return the BLEU of translations against a reference each, 0 to 100."""
    return BLEU(lowercase=lowercase).corpus_score(list(translations), [list(references)]).score


def quality(translations: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> Quality:
    """Return all scores of translations against a reference each.

    `lowercase`: the translations are in lower case throughout, as their model's text was.
    """
    metrics = {"bleu": BLEU(), "bleu_lowercase": BLEU(lowercase=True), "chrf": CHRF(lowercase=lowercase)}
    scores = {
        name: metric.corpus_score(list(translations), [list(references)]).score
        for name, metric in metrics.items()
    }
    expected = [reference.lower() for reference in references] if lowercase else references
    right = sum(map(str.__eq__, translations, expected))
    return Quality(
        **scores,
        exact_match=right / len(references),
        signatures={name: str(metric.get_signature()) for name, metric in metrics.items()},
    )
