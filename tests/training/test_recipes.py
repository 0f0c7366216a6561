"""Recipes: schedules and optimizers."""

import pytest

from regard.models import QueryModel, QueryModelConfig
from regard.training import RECIPES
from regard.training.recipes import set_lr


def test_the_rate_rises_and_falls_as_a_cosine() -> None:
    factors = [RECIPES["regard"].schedule(step, 1000) for step in range(1000)]
    assert factors[0] == pytest.approx(0.01)
    assert factors[99] == 1.0 == max(factors)
    assert factors[:100] == sorted(factors[:100]) and factors[99:] == sorted(factors[99:], reverse=True)
    assert factors[549] == pytest.approx(0.5, abs=0.01)  # halfway down
    assert 0 < factors[-1] < 1e-4


@pytest.mark.parametrize("steps", [1, 2, 3, 10])
def test_short_trainings_have_a_rate_above_zero(steps: int) -> None:
    assert all(0 < RECIPES["regard"].schedule(step, steps) <= 1 for step in range(steps))


def test_the_seed_recipe_is_constant() -> None:
    assert {RECIPES["seed"].schedule(step, 10) for step in range(10)} == {1.0}


def test_the_output_layer_learns_faster_in_regards_recipe() -> None:
    model = QueryModel(QueryModelConfig(), letters=4, input_len=10, outputs=3, classes=11)
    for name, output_lr in (("regard", 0.5), ("seed", 0.1)):
        optimizer = RECIPES[name].optimizer(model)
        set_lr(optimizer, 0.1)
        others, output = optimizer.param_groups
        assert (others["lr"], output["lr"]) == (0.1, output_lr)
        assert {id(each) for each in output["params"]} == {id(each) for each in model.output.parameters()}
        assert len(others["params"]) + len(output["params"]) == len(list(model.parameters()))
