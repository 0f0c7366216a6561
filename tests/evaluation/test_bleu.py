"""BLEU, chrF and exact match of translations."""

import pytest
import sacrebleu

from regard.evaluation.bleu import quality

REFERENCES = ["Ein Hund rennt über die Wiese.", "Zwei Frauen sitzen auf einer Bank."]
TRANSLATIONS = ["Ein Hund rennt über eine Wiese.", "Zwei Frauen sitzen auf einer Bank."]


def test_scores_match_sacrebleu() -> None:
    scores = quality(TRANSLATIONS, REFERENCES)
    assert scores.bleu == pytest.approx(sacrebleu.corpus_bleu(TRANSLATIONS, [REFERENCES]).score)
    assert scores.chrf == pytest.approx(sacrebleu.corpus_chrf(TRANSLATIONS, [REFERENCES]).score)
    assert scores.exact_match == 0.5
    assert "case:mixed" in scores.signatures["chrf"] and "case:lc" in scores.signatures["bleu_lowercase"]


def test_lowercase_models_are_scored_without_case() -> None:
    lower = [sentence.lower() for sentence in TRANSLATIONS]
    cased, lowered = quality(TRANSLATIONS, REFERENCES), quality(lower, REFERENCES, lowercase=True)
    assert lowered.bleu_lowercase == pytest.approx(cased.bleu_lowercase)
    assert lowered.exact_match == 0.5
    expected = sacrebleu.corpus_chrf(lower, [[sentence.lower() for sentence in REFERENCES]]).score
    assert lowered.chrf == pytest.approx(expected) and "case:lc" in lowered.signatures["chrf"]
    assert lowered.bleu is None and "bleu" not in lowered.signatures  # case-sensitive BLEU is undefined
    assert lowered.main == lowered.bleu_lowercase and cased.main == cased.bleu
    assert [line.split()[0] for line in lowered.lines()] == ["BLEU", "chrF"] and "case:lc" in lowered.lines()[0]
    assert [line.split()[0] for line in cased.lines()] == ["BLEU", "BLEU", "chrF"]
    mixed = quality(lower, REFERENCES)  # wrong capitals are errors for BLEU, and none for lowercase BLEU
    assert mixed.bleu == pytest.approx(sacrebleu.corpus_bleu(lower, [REFERENCES]).score) and mixed.bleu is not None
    assert mixed.bleu < mixed.bleu_lowercase == pytest.approx(cased.bleu_lowercase)
    assert mixed.exact_match == 0.0
