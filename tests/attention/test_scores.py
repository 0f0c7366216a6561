"""Scores equal the equations of the papers, computed in float64 loops."""

import pytest
import torch
from torch import Tensor, nn

from regard.attention.scores import SCORES, Additive, Concat, Dot, ScaledDot, Score, find_score
from regard.attention.single import Attention
from regard.errors import InputError
from tests.attention.reference import score_of

each_score = pytest.mark.parametrize("name", SCORES)


@each_score
@pytest.mark.parametrize("lead", [(2,), (2, 3)], ids=["single", "heads"])
def test_agrees_with_its_equation(generator: torch.Generator, name: str, lead: tuple[int, ...]) -> None:
    key_width = 5 if issubclass(SCORES[name], Dot) else 7
    score = find_score(name)(5, key_width).double()
    query = torch.randn(*lead, 3, 5, generator=generator, dtype=torch.float64)
    keys = torch.randn(*lead, 4, key_width, generator=generator, dtype=torch.float64)
    mask = torch.arange(4) < torch.tensor([[4], [2], [0]])
    scores = score.rescale(score(query, score.prepare(keys)), mask)
    assert scores.shape == (*lead, 3, 4)
    with torch.no_grad():
        for at in torch.cartesian_prod(*map(torch.arange, scores.shape)).tolist():
            *where, q, k = at
            count = max(int(mask[q].sum()), 1)
            expected = score_of(score, query[(*where, q)], keys[(*where, k)], count)
            assert scores[tuple(at)].item() == pytest.approx(expected, abs=1e-12)


@each_score
def test_gradients_of_first_and_second_order(generator: torch.Generator, name: str) -> None:
    score = find_score(name)(3).double()
    query = torch.randn(1, 2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(1, 4, 3, generator=generator, dtype=torch.float64, requires_grad=True)

    def run(q: Tensor, k: Tensor) -> Tensor:
        return score(q, score.prepare(k))

    assert torch.autograd.gradcheck(run, (query, keys))
    assert torch.autograd.gradgradcheck(run, (query, keys))


def test_luongs_concat_and_bahdanaus_additive_are_one_function_of_two_parametrisations() -> None:
    concat, additive = Concat(5, 7), Additive(5, 7)
    with torch.no_grad():
        concat.both.weight.copy_(torch.cat([additive.query.weight, additive.key.weight], dim=1))
        concat.energy.weight.copy_(additive.energy.weight)
    query, keys = torch.randn(2, 3, 5), torch.randn(2, 4, 7)
    torch.testing.assert_close(concat(query, concat.prepare(keys)), additive(query, additive.prepare(keys)))


@each_score
def test_key_projections_are_computed_once_per_source(name: str) -> None:
    score = find_score(name)(5)
    attention = Attention(score)
    query, keys = torch.randn(2, 3, 5), torch.randn(2, 4, 5)
    prepared = score.prepare(keys)
    calls = []
    score.prepare = lambda states: calls.append(states)  # type: ignore[assignment, method-assign, return-value]
    steps = [attention(query[:, [i]], prepared, keys, prepared=True) for i in range(3)]
    assert calls == []
    del score.prepare
    torch.testing.assert_close(torch.cat(steps, dim=1), attention(query, keys, keys))


class Distance(Score):
    """A custom score: the negative distance."""

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return -torch.cdist(query, prepared)


def test_custom_score_is_found_by_module_and_class() -> None:
    assert find_score("tests.attention.test_scores:Distance") is Distance
    keys = torch.eye(3).unsqueeze(0) * 50
    context = Attention(Distance(3))(keys, keys, keys)
    torch.testing.assert_close(context, keys)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("additve", "score 'additve' is unknown: choose dot, .* or module:Class; did you mean additive?"),
        ("nowhere:Score", "score 'nowhere:Score' is not found: there is no module 'nowhere' in .*PYTHONPATH"),
        ("torch:Nothing", "score 'torch:Nothing' cannot be imported: AttributeError"),
        ("torch:Tensor", "score 'torch:Tensor' is not a class derived from regard.attention.scores.Score"),
    ],
)
def test_scores_that_cannot_be_found_are_refused(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_score(name)


def test_dot_products_need_equal_widths() -> None:
    with pytest.raises(InputError, match="queries of width 5 and keys of width 7 have no dot product"):
        ScaledDot(5, 7)


def test_scores_have_the_papers_parameters() -> None:
    shapes = {name: {k: tuple(v.shape) for k, v in find_score(name)(5, 5).named_parameters()} for name in SCORES}
    assert shapes == {
        "dot": {},
        "scaled_dot": {},
        "general": {"key.weight": (5, 5)},
        "concat": {"both.weight": (5, 10), "energy.weight": (1, 5)},
        "additive": {"query.weight": (5, 5), "key.weight": (5, 5), "energy.weight": (1, 5)},
        "cosine": {"gain": ()},
        "soft_capped": {},
        "scalable": {"gain": ()},
    }
    assert isinstance(find_score("general")(5), nn.Module)
