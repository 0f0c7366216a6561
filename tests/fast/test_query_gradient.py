"""The explicit gradient of the query model equals autograd's; unsupported cases use autograd."""

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard import record
from regard.attention.multihead import keep_heads
from regard.models.query import QueryModel, QueryModelConfig
from regard.tasks.batch import Batch
from regard.training.config import TrainingConfig
from regard.training.objective import AnswerObjective
from tests.models.test_query import model_of

WIDE = QueryModelConfig(hidden=14, pos_enc=True, enc_layers=1, multihead=True, heads=7, self_att=True)
CONFIGS = {
    "counting": QueryModelConfig(hidden=14),
    "difference": QueryModelConfig(hidden=14, self_att=True),
    "signal": QueryModelConfig(hidden=14, pos_enc=True, enc_layers=2),
    "signal2": QueryModelConfig(hidden=14, pos_enc=True, enc_layers=1, multihead=True, heads=2),
    "waves": QueryModelConfig(hidden=14, pos_enc=True, positions="sinusoidal", enc_layers=2, multihead=True, heads=7),
    "no encoder": QueryModelConfig(hidden=14, pos_enc=True, multihead=True, heads=2),
    "no positions": QueryModelConfig(hidden=14, enc_layers=1),
    "all": WIDE,
}


def drawn(generator: torch.Generator, time: int = 11, classes: int = 13) -> tuple[Tensor, Tensor]:
    inputs = torch.randint(5, (17, time), generator=generator)
    return inputs, torch.randint(classes, (17, 3), generator=generator)


def check(model: QueryModel, inputs: Tensor, targets: Tensor) -> None:
    logits = model(inputs)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    written = model.fast_gradient()
    assert written is not None
    found, answers, grads = written(inputs, targets)
    assert torch.allclose(found, loss, rtol=0, atol=1e-10)
    assert torch.allclose(answers, logits, rtol=0, atol=1e-10)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert torch.allclose(grads[parameter], parameter.grad, rtol=0, atol=1e-10), name
        # Adam's fused step reads both tensors as contiguous arrays.
        assert grads[parameter].is_contiguous() and grads[parameter].shape == parameter.shape


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("time", [11, 4, 1])
def test_agrees_with_autograd(config: QueryModelConfig, time: int, generator: torch.Generator) -> None:
    check(model_of(config).double(), *drawn(generator, time))


def test_agrees_where_rows_are_as_long_as_a_vector_register(generator: torch.Generator) -> None:
    model = QueryModel(WIDE, letters=5, input_len=19, outputs=3, classes=18).double()
    check(model, *drawn(generator, 19, 18))


def test_agrees_without_some_heads(generator: torch.Generator) -> None:
    model = model_of(WIDE).double()
    keep_heads(model.cross, [1, 4, 5])
    first: Any = model.encoder[0]
    keep_heads(first.self_attention, [6])
    check(model, *drawn(generator))


def test_unsupported_cases_use_autograd() -> None:
    assert model_of(WIDE).fast_gradient() is not None
    assert model_of(dataclasses.replace(WIDE, score="general")).fast_gradient() is None
    assert model_of(WIDE, vary_len=True).fast_gradient() is None
    frozen = model_of(WIDE)
    frozen.embedding.weight.requires_grad_(False)
    assert frozen.fast_gradient() is None

    class Own(QueryModel):
        """A subclass, which may compute something else."""

    own = Own(WIDE, letters=5, input_len=11, outputs=3, classes=13)
    assert own.fast_gradient() is None


def test_recording_gets_the_weights_and_the_same_loss(generator: torch.Generator) -> None:
    objective = AnswerObjective(model_of(WIDE).double(), TrainingConfig(), generator)
    inputs, targets = drawn(generator)
    batch = Batch(inputs, targets, None)
    loss, right = objective(batch, 0, 0)
    quick = [parameter.grad for parameter in objective.parameters()]
    assert not loss.requires_grad
    objective.zero_grad()
    with record(objective.model) as records:
        observed, also_right = objective(batch, 0, 0)
    assert records["cross"].weights.shape == (17, 7, 3, 11)
    observed.backward()
    assert torch.allclose(loss, observed, rtol=0, atol=1e-10) and torch.equal(right, also_right)
    for parameter, grad in zip(objective.parameters(), quick, strict=True):
        assert grad is not None and parameter.grad is not None
        assert torch.allclose(parameter.grad, grad, rtol=0, atol=1e-10)
