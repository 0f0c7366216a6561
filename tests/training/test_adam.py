"""Adam equals PyTorch's class and values computed by hand."""

import pytest
import torch
from torch import nn

from regard.training.checkpoint import Adam


def test_steps_equal_pytorchs_class_bit_for_bit(generator: torch.Generator) -> None:
    mine = {name: nn.Parameter(torch.randn(5, 3, generator=generator)) for name in ("a", "b", "c")}
    theirs = {name: nn.Parameter(parameter.detach().clone()) for name, parameter in mine.items()}
    optimizer = Adam(mine, betas=(0.95, 0.98), lr_factors={"a": 1.0, "b": 8.0, "c": 1.0})
    peer = torch.optim.Adam(
        [{"params": [theirs["a"], theirs["c"]]}, {"params": [theirs["b"]]}], betas=(0.95, 0.98), fused=True
    )
    for step in range(5):
        lr = 0.01 * (step + 1)
        peer.param_groups[0]["lr"], peer.param_groups[1]["lr"] = lr, 8 * lr
        for name in ("a", "b") if step == 2 else ("a", "b", "c"):  # without a gradient in one step
            gradient = torch.randn(5, 3, generator=generator)
            mine[name].grad, theirs[name].grad = gradient.clone(), gradient.clone()
        optimizer.step(lr)
        peer.step()
        for name in mine:
            assert torch.equal(mine[name], theirs[name])
        optimizer.zero_grad()
        peer.zero_grad()
        assert all(parameter.grad is None for parameter in mine.values())


def test_first_step_has_the_size_of_the_rate() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    parameter.grad = torch.tensor([5.0, -0.1, 0.0])
    Adam({"p": parameter}, betas=(0.9, 0.999), lr_factors={"p": 2.0}).step(0.1)
    assert parameter.tolist() == pytest.approx([-0.2, 0.2, 0.0], abs=1e-6)


def test_matrices_decay_and_biases_do_not() -> None:
    parameters = {"weight": nn.Parameter(torch.ones(2, 2)), "bias": nn.Parameter(torch.ones(2))}
    for parameter in parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    Adam(parameters, betas=(0.9, 0.999), lr_factors={"weight": 1.0, "bias": 1.0}, weight_decay=0.5).step(0.1)
    assert parameters["weight"].flatten().tolist() == pytest.approx([0.95] * 4)
    assert parameters["bias"].tolist() == [1.0, 1.0]


def test_moments_are_on_the_device_of_their_parameter() -> None:
    parameter = nn.Parameter(torch.empty(3, device="meta"))
    moments = Adam({"p": parameter}, betas=(0.9, 0.999), lr_factors={"p": 1.0}).moments["p"]
    assert {each.device.type for each in moments.values()} == {"meta"}
