"""The chunked cross-entropy equals PyTorch's."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.training import objective as loss
from regard.training.objective import cross_entropy


def make(
    steps: int, bias: bool, dtype: torch.dtype = torch.float64, passes: int = 1
) -> tuple[list[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(steps)
    shapes = [(passes, steps, 5), (11, 5), *([(11,)] if bias else [])]
    parts = [torch.randn(shape, generator=generator, dtype=dtype, requires_grad=True) for shape in shapes]
    return parts, torch.randint(11, (steps,), generator=generator)


@pytest.mark.parametrize("steps", [1, 3, 4, 9])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_agrees_with_pytorch(monkeypatch: pytest.MonkeyPatch, steps: int, bias: bool, smoothing: float) -> None:
    monkeypatch.setattr(loss, "CHUNK", 4 * 11 * 8)
    parts, target = make(steps, bias)
    logits = F.linear(*parts)[0]
    expected = F.cross_entropy(logits, target, reduction="sum", label_smoothing=smoothing)
    grads = torch.autograd.grad(3 * expected, parts)
    layer = (parts[1], parts[2] if bias else None)
    found, right = cross_entropy(parts[0], layer, target, smoothing)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    for ours, theirs in zip(torch.autograd.grad(3 * found, parts), grads, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)
    assert torch.equal(right, logits.argmax(1) == target)


@pytest.mark.parametrize("steps", [1, 4, 9])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("agreement", [0.0, 5.0])
def test_two_passes_agree_with_pytorch(
    monkeypatch: pytest.MonkeyPatch, steps: int, bias: bool, agreement: float
) -> None:
    """The loss of R-Drop is the loss of both passes plus half of alpha multiplied by the sum of both
    divergences."""
    monkeypatch.setattr(loss, "CHUNK", 4 * 11 * 8)
    parts, target = make(steps, bias, passes=2)
    logits = F.linear(*parts)
    one, two = logits.log_softmax(-1)
    both = target.repeat(2)
    expected = F.cross_entropy(logits.flatten(0, 1), both, reduction="sum", label_smoothing=0.1)
    for there, back in ((one, two), (two, one)):
        expected += agreement / 2 * F.kl_div(there, back, log_target=True, reduction="sum")
    grads = torch.autograd.grad(expected, parts)
    found, right = cross_entropy(parts[0], (parts[1], parts[2] if bias else None), target, 0.1, agreement)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    for ours, theirs in zip(torch.autograd.grad(found, parts), grads, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)
    assert torch.equal(right, logits[0].argmax(1) == target)


@pytest.mark.parametrize(("passes", "agreement"), [(1, 0.0), (2, 0.0), (2, 3.0)])
def test_gradients_by_differences(passes: int, agreement: float) -> None:
    parts, target = make(6, True, passes=passes)

    def summed(states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return cross_entropy(states, (weight, bias), target, 0.1, agreement)[0]

    assert torch.autograd.gradcheck(summed, parts)


def test_extreme_logits_stay_finite() -> None:
    states = torch.tensor([[[1e4, 0.0], [0.0, 0.0]]], requires_grad=True)
    weight = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    found, _ = cross_entropy(states, (weight, None), torch.tensor([0, 2]))
    assert found.item() == pytest.approx(2e4, rel=1e-3)
    found.backward()
    assert states.grad is not None and torch.isfinite(states.grad).all()


def test_empty_target() -> None:
    parts, target = make(0, False)
    found, right = cross_entropy(parts[0], (parts[1], None), target)
    found.backward()
    assert found.item() == 0 and not len(right)
    assert parts[1].grad is not None and not parts[1].grad.any()


def test_bfloat16_products_are_close() -> None:
    parts, target = make(50, True, torch.float32)
    exact, _ = cross_entropy(parts[0], (parts[1], parts[2]), target, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = cross_entropy(parts[0], (parts[1], parts[2]), target, 0.1)
    assert found.dtype == torch.float32 and found.item() == pytest.approx(exact.item(), rel=1e-2)
    ours, theirs = torch.autograd.grad(found, parts[0]), torch.autograd.grad(exact, parts[0])
    torch.testing.assert_close(ours[0], theirs[0], atol=0.05, rtol=0.05)


@pytest.mark.parametrize(
    ("offset", "within"),
    [(0.0, 0.02), (-9.0, 0.05), (-60.0, 0.4), (60.0, 0.4)],
    ids=["around", "below", "far", "high"],
)
def test_bfloat16_finds_the_largest_logit_of_any_sign(offset: float, within: float) -> None:
    """The loss is exact for logits around zero, for negative logits, and for logits at which bfloat16 is
    coarse.
    """
    (states, weight, bias), target = make(40, True, torch.float32)
    layer = (weight, (bias + offset).detach().requires_grad_())
    found, right = [], []
    for narrow in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            loss_, right_ = cross_entropy(states, layer, target, 0.1)
        found.append((loss_, *torch.autograd.grad(loss_, (states, weight, layer[1]))))
        right.append(right_)
    for ours, exact in zip(found[1], found[0], strict=True):
        assert (ours - exact).norm() < within * exact.norm()
    assert (right[0] == right[1]).float().mean() > 1 - 2 * within


def test_calls_of_other_sizes_and_threads_are_independent() -> None:
    """Calls share memory, but do not depend on its previous content."""
    made = [make(steps, True, torch.float32, passes) for steps, passes in ((9, 1), (3, 2), (17, 1), (9, 1))]

    def run(index: int) -> list[Tensor]:
        parts, target = made[index]
        found, _ = cross_entropy(parts[0], (parts[1], parts[2]), target, 0.1, 3.0 if len(parts[0]) == 2 else 0.0)
        return [found.detach(), *torch.autograd.grad(found, parts)]

    alone = [run(index) for index in range(len(made))]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, [index for _ in range(8) for index in range(len(made))]))
    for index, each in enumerate(together):
        for ours, expected in zip(each, alone[index % len(made)], strict=True):
            assert torch.equal(ours, expected)


def test_no_gradients_without_grad_mode() -> None:
    parts, target = make(5, False)
    with torch.no_grad():
        found, _ = cross_entropy(parts[0], (parts[1], None), target)
    assert not found.requires_grad
