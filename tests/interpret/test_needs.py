"""Which heads a model needs, on models whose circuit is known."""

import pytest
from sentence_claims import judge

from regard.interpret.estimates import describe_error, error_rates, is_reliable
from regard.interpret.importance import head_importance
from regard.interpret.needs import Needs, decide, find_needs
from regard_lab.bench.known_models import compiled_model, trap_model


def _needs(name: str, kind: str) -> tuple[Needs, bool]:
    known = (trap_model if kind == "trap" else compiled_model)(name, 0)
    inputs = known.subject.unseen(500, 0, purpose="sentences")
    needs = find_needs(known.subject, inputs, head_importance(known.subject, samples=50).added)
    assert known.circuit is not None
    return needs, all(claim.right for claim in judge(needs, known.circuit))


@pytest.mark.parametrize(("name", "kind"), [("reverse", "compiled"), ("sink", "trap")])
def test_needed_heads_of_a_known_circuit(name: str, kind: str) -> None:
    needs, right = _needs(name, kind)
    assert right and {"needed", "not needed"} <= set(needs.verdicts.values())
    assert not needs.replacing and not needs.cancelling
    assert any("is not needed" in sentence for sentence in needs.sentences())


@pytest.mark.slow
def test_heads_that_replace_each_other() -> None:
    """Neither is missed alone, and a wrong value of one changes answers: whether it is needed cannot be told."""
    needs, right = _needs("redundant", "trap")
    first = "decoder.0.self_attention"
    groups = {frozenset(group) for group, _ in needs.replacing}
    assert right and groups == {frozenset({(first, pair), (first, pair + 1)}) for pair in (0, 2, 4)}
    assert all(needs.verdicts[first, head] == "cannot be told" for head in range(6))
    assert any("replace each other" in sentence for sentence in needs.sentences())


def test_nothing_is_claimed_about_an_untrained_model() -> None:
    known = compiled_model("reverse", 0)
    untrained = known.subject.untrained(7)
    inputs = untrained.unseen(100, 0)
    needs = find_needs(untrained, inputs, head_importance(untrained, samples=20).added)
    assert set(needs.verdicts.values()) == {"cannot be told"}
    assert "has learned more" in needs.sentences()[-1]


def test_both_ways_of_replacing_a_head_must_agree() -> None:
    heads = [("cross", head) for head in range(4)]
    resampled = dict(zip(heads, (40, 40, 0, 4), strict=True))
    missed = dict(zip(heads, (30, 0, 0, 4), strict=True))
    verdicts = decide(resampled, missed, 500)
    assert list(verdicts.values()) == ["needed", "cannot be told", "not needed", "cannot be told"]


def test_sentences_carry_their_error_rate() -> None:
    for kind, rate in error_rates().items():
        if rate.tested:
            assert f"{100 * rate.wrong / rate.tested:.0f} are wrong" in describe_error(kind)
        assert is_reliable(kind) == (rate.tested > 0 and rate.high <= 0.07)
    assert describe_error("unknown kind") == "error rate not measured" and not is_reliable("unknown kind")
