"""BLEU, chrF and exact match of translations."""

import pytest
import sacrebleu

from regard.evaluation import quality

REFERENCES = ["Ein Hund rennt über die Wiese.", "Zwei Frauen sitzen auf einer Bank."]
FOUND = ["Ein Hund rennt über eine Wiese.", "Zwei Frauen sitzen auf einer Bank."]


def test_scores_are_those_of_sacrebleu() -> None:
    found = quality(FOUND, REFERENCES)
    assert found.bleu == pytest.approx(sacrebleu.corpus_bleu(FOUND, [REFERENCES]).score)
    assert found.chrf == pytest.approx(sacrebleu.corpus_chrf(FOUND, [REFERENCES]).score)
    assert found.exact_match == 0.5
    assert "case:mixed" in found.signatures["chrf"] and "case:lc" in found.signatures["bleu_lowercase"]


def test_a_model_of_lower_case_is_not_blamed_for_its_case() -> None:
    lower = [sentence.lower() for sentence in FOUND]
    cased, lowered = quality(FOUND, REFERENCES), quality(lower, REFERENCES, lowercase=True)
    assert lowered.bleu_lowercase == pytest.approx(cased.bleu_lowercase)
    assert lowered.exact_match == 0.5
    expected = sacrebleu.corpus_chrf(lower, [[sentence.lower() for sentence in REFERENCES]]).score
    assert lowered.chrf == pytest.approx(expected) and "case:lc" in lowered.signatures["chrf"]
    assert lowered.bleu is None and "bleu" not in lowered.signatures  # of its case there is nothing to say
    assert lowered.main == lowered.bleu_lowercase and cased.main == cased.bleu
    assert [line.split()[0] for line in lowered.lines()] == ["BLEU", "chrF"] and "case:lc" in lowered.lines()[0]
    assert [line.split()[0] for line in cased.lines()] == ["BLEU", "BLEU", "chrF"]
    assert quality(lower, REFERENCES).exact_match == 0.0
