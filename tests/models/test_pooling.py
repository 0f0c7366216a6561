"""The pooling classifier: each kind of pooling, padding and gradients."""

import pytest
import torch

from regard.attention.masks import length_mask
from regard.errors import InputError
from regard.models.pooling import Pooling, PoolingConfig, PoolingModel

each_pooling = pytest.mark.parametrize("pooling", ["attention", "last", "max", "mean"])


def make(pooling: Pooling, **options: object) -> PoolingModel:
    torch.manual_seed(0)
    config = PoolingConfig(hidden=6, pooling=pooling, **options)  # type: ignore[arg-type]
    return PoolingModel(config, letters=5, outputs=2, classes=3).double()


@each_pooling
def test_pooling_equals_its_definition(pooling: Pooling) -> None:
    model = make(pooling)
    states = torch.randn(2, 4, 6, dtype=torch.float64)
    mask = length_mask(torch.tensor([4, 2]), 4)
    states = states * mask.unsqueeze(-1)
    last = torch.randn(2, 6, dtype=torch.float64)
    found = model.pool(states, last, mask)
    for sample, length in enumerate((4, 2)):
        own = states[sample, :length]
        if pooling == "attention":
            assert model.cross is not None
            matrix = model.cross.score.get_parameter("key.weight")
            scores = torch.stack([last[sample] @ matrix @ key for key in own])
            expected = torch.softmax(scores, 0) @ own
        else:
            expected = {"last": last[sample], "max": own.max(0).values, "mean": own.mean(0)}[pooling]
        torch.testing.assert_close(found[sample], expected, atol=1e-12, rtol=0)


@each_pooling
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_output_does_not_depend_on_the_batch(pooling: Pooling, cell: str) -> None:
    model = make(pooling, cell=cell, enc_layers=2)
    inputs = torch.tensor([[0, 1, 2, 3, 4], [4, 2, -1, -1, -1], [3, -1, -1, -1, -1]])
    together = model(inputs, inputs >= 0)
    assert together.shape == (3, 2, 3)
    for row, length in enumerate((5, 2, 1)):
        torch.testing.assert_close(together[row], model(inputs[row : row + 1, :length])[0], atol=1e-12, rtol=0)


@each_pooling
def test_every_parameter_is_used(pooling: Pooling) -> None:
    model = make(pooling)
    model(torch.tensor([[0, 1, 2]])).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 0}, "hidden 0 is out of range"),
        ({"score": "dto"}, "did you mean dot"),
        ({"enc_layers": 0}, "enc_layers 0"),
        ({"hidden": 5}, "hidden 5 is odd"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PoolingConfig(**options)  # type: ignore[arg-type]
