"""The record of several steps equals the record of one call with all queries."""

import torch

from regard.attention.layer_record import AttentionTrace, concat_traces


def _step(number: int, generator: torch.Generator) -> AttentionTrace:
    """Attend with one query to the current keys of width 3, like a decoder with a cache."""
    query, key, value = (
        torch.randn(1, 2, count, 3, generator=generator) for count in (1, number + 1, number + 1)
    )
    scores = query @ key.mT
    weights = scores.softmax(-1)
    return AttentionTrace(query, key, value, scores, None, weights, weights @ value, number)


def test_later_keys_have_no_score_in_earlier_steps(generator: torch.Generator) -> None:
    steps = [_step(number, generator) for number in range(3)]
    weights = torch.cat([torch.nn.functional.pad(each.weights, (0, 2 - at)) for at, each in enumerate(steps)], 2)
    found = concat_traces(steps, weights, None)
    assert found.query.shape == found.context.shape == (1, 2, 3, 3)
    torch.testing.assert_close(found.scores.softmax(-1), weights)
    assert (found.scores[0, 0].isinf() == torch.ones(3, 3).triu(1).bool()).all()
    assert found.key is steps[-1].key and found.value is steps[-1].value and found.step is None
