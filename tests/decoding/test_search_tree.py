"""The tree of a search: its best path is the answer, and all numbers are computed by the model."""

import math

import pytest

import regard

TEXT = "3. Mai 1979"


@pytest.mark.parametrize("beam", [1, 3])
def test_best_path_is_the_answer(translator: regard.PairRun, beam: int) -> None:
    [[best]] = translator.search([TEXT], beam=beam)
    found = translator.tree(TEXT, beam=beam)
    last = found.branches[found.best[-1]]
    assert last.ended == best.finished
    assert found.path(found.best[-1]) == best.tokens
    assert last.log_probability == pytest.approx(best.log_probability, abs=1e-4)
    if beam == 1:
        assert len(found.best) == len(found.branches) - (not best.finished) or best.finished


def test_probabilities_equal_those_of_attend(translator: regard.PairRun) -> None:
    found = translator.tree(TEXT, beam=1)
    shown = translator.attend(TEXT, beam=1)
    on_step = [found.branches[number] for number in found.best]
    assert [each.probability for each in on_step] == pytest.approx(shown.probabilities[: len(on_step)], abs=1e-5)
    assert [each.step for each in on_step] == list(range(len(on_step)))
    for each in on_step[:-1]:
        shares = [follower.probability for follower in each.followers]
        assert shares == sorted(shares, reverse=True) and sum(shares) <= 1 + 1e-5


def test_probability_of_a_prefix_is_the_product_of_its_tokens(translator: regard.PairRun) -> None:
    found = translator.tree(TEXT, beam=4)
    assert len(found.branches) > len(found.best)
    for branch in found.branches:
        before = 0.0 if branch.parent is None else found.branches[branch.parent].log_probability
        assert branch.log_probability - before == pytest.approx(math.log(branch.probability), abs=1e-4)
        assert branch.parent is None or found.branches[branch.parent].step == branch.step - 1
    assert str(found).startswith(TEXT) and set(found.json()) == {"input", "beam", "begin", "branches", "best"}


def test_every_prefix_has_its_attention(translator: regard.PairRun) -> None:
    """The attention of every prefix equals the attention of its tokens."""
    found = translator.tree(TEXT, beam=3)
    for leaf in found.leaves:
        tokens = found.path(leaf)
        shown = translator.attend_tokens(TEXT, tokens)
        assert shown.prediction == translator.task.target_vocabulary.decode(tokens)
        assert shown.cross.weights.shape[1] == len(tokens) + 1


def test_invalid_beam_is_refused(translator: regard.PairRun) -> None:
    with pytest.raises(regard.InputError, match="beam 0 is out of range"):
        translator.tree(TEXT, beam=0)
