"""Recipes: schedules and optimizers."""

import pytest

from regard.models.query import QueryModel, QueryModelConfig
from regard.training.adam import make_optimizer
from regard.training.settings import RECIPES, regard_recipe, seed_recipe


def test_rate_rises_linearly_and_falls_as_a_cosine() -> None:
    factors = [regard_recipe().schedule(step, 1000) for step in range(1000)]
    assert factors[0] == pytest.approx(0.005)
    assert factors[199] == 1.0 == max(factors)
    assert factors[:200] == sorted(factors[:200]) and factors[199:] == sorted(factors[199:], reverse=True)
    assert factors[599] == pytest.approx(0.5, abs=0.01)  # halfway down
    assert 0 < factors[-1] < 1e-4


@pytest.mark.parametrize("steps", [1, 2, 3, 10])
def test_rate_of_short_trainings_is_positive(steps: int) -> None:
    assert all(0 < regard_recipe().schedule(step, steps) <= 1 for step in range(steps))


def test_seed_recipe_has_a_constant_rate() -> None:
    assert {seed_recipe().schedule(step, 10) for step in range(10)} == {1.0}


def test_output_layer_has_a_higher_rate_in_the_regard_recipe() -> None:
    model = QueryModel(QueryModelConfig(), letters=4, input_len=10, outputs=3, classes=11)
    for name, output_lr in (("regard", 8.0), ("seed", 1.0)):
        factors = make_optimizer(model, RECIPES[name]()).lr_factors
        assert set(factors) == {each for each, _ in model.named_parameters()}
        for each, factor in factors.items():
            assert factor == (output_lr if each in ("output.weight", "output.bias") else 1.0)
