"""Cross-entropy over a large vocabulary, without ever holding its logits.

Logits of all target steps over 12,000 subwords are by far the largest tensor of a translation step: 190 MB for
4,000 steps, read and written again for the softmax, its gradient, and each of the two products behind it. Here a
chunk of steps goes all the way, from states to gradients, while most of it is in the processor's cache; what is
kept are the gradients of states and weight.

Letters: P passes over the same steps, N target steps, D width, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

CHUNK = 1 << 22
"""Logits that are worked on at once: 16 MB."""


def cross_entropy(
    states: Tensor,
    layer: tuple[Tensor, Tensor | None],
    target: Tensor,
    smoothing: float = 0.0,
    agreement: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Return the sum over all steps of the cross-entropy in nats, and which steps are right: (N,) bool.

    states (P, N, D), `layer` weight (V, D) and bias (V,) or None, target (N,) int64. Of several passes, the loss
    is the sum, and right is what the first one has right. `smoothing`: share of the target distribution that is
    spread evenly over the vocabulary (Szegedy et al. 2016, section 7). `agreement`: what it costs that two passes
    believe in different tokens: for each step, this times the mean of both Kullback-Leibler divergences between
    them (alpha of R-Drop, Liang et al. 2021, section 2). Products are in the dtype of autocast where that is on,
    and the softmax in float32 (float64 for float64 states).
    """
    apply: Any = _CrossEntropy.apply
    loss, right = apply(states, *layer, target, smoothing, agreement)
    return loss, right


class _CrossEntropy(torch.autograd.Function):
    """Works out its gradients on the way forward, for a loss whose own gradient is a number."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        smoothing: float,
        agreement: float,
    ) -> tuple[Tensor, Tensor]:
        device, passes = states.device.type, len(states)
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        learning = any(ctx.needs_input_grad)
        loss = torch.zeros((), dtype=wide, device=states.device)
        right = torch.empty_like(target, dtype=torch.bool)
        grad_states = torch.empty_like(states) if learning else None
        grad_weight = torch.zeros_like(weight) if learning else None
        grad_bias = torch.zeros_like(bias) if learning and bias is not None else None
        with torch.autocast(device, enabled=False):
            weight = weight.to(dtype)
            rows = max(1, CHUNK // (len(weight) * passes))
            for begin in range(0, len(target), rows):
                part = slice(begin, begin + rows)
                chunk = states[:, part].flatten(0, 1).to(dtype)
                goal = target[part].repeat(passes).unsqueeze(1)
                logits = chunk @ weight.T if bias is None else torch.addmm(bias.to(dtype), chunk, weight.T)
                # Widened first: PyTorch's softmax and maximum over bfloat16 are ten times slower on a CPU.
                logits = logits.to(wide)
                largest, aim = logits.amax(1, keepdim=True), logits.gather(1, goal)
                right[part] = (aim == largest).view(passes, -1)[0]
                average = logits.mean(1, keepdim=True)
                belief = logits.softmax(1)
                # The largest probability is at least 1 / V, so its logarithm is always a number.
                total = largest - belief.amax(1, keepdim=True).log()
                loss += (total - (1 - smoothing) * aim - smoothing * average).sum()
                if agreement:
                    apart, belief = _disagreement(logits, total, belief, agreement)
                    loss += apart
                if grad_states is None or grad_weight is None:
                    continue
                # The gradient of the logits: what the model believes less what it should.
                belief -= smoothing / belief.shape[1]
                belief.scatter_add_(1, goal, torch.full_like(aim, smoothing - 1))
                if grad_bias is not None:
                    grad_bias += belief.sum(0)
                narrow = belief.to(dtype)
                grad_states[:, part] = (narrow @ weight).unflatten(0, (passes, -1))
                grad_weight += narrow.T @ chunk
        ctx.save_for_backward(grad_states, grad_weight, grad_bias)
        ctx.mark_non_differentiable(right)
        return loss, right

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        factor = grads[0]
        scaled = (None if each is None else each * factor.to(each.dtype) for each in ctx.saved_tensors)
        return (*scaled, None, None, None)


def _disagreement(logits: Tensor, total: Tensor, belief: Tensor, agreement: float) -> tuple[Tensor, Tensor]:
    """Return what it costs in all that two passes disagree, and `belief` with the gradient of that added.

    All (2N, V), those of the second pass below the first's; `total` (2N, 1): the logarithm of a softmax's
    divisor. The cost of a step is `agreement` times (KL(p, q) + KL(q, p)) / 2; with a = log p - log q its
    gradient by the logits of p is `agreement` times (p (1 + a - KL(p, q)) - q) / 2, and alike for q.
    """
    half = agreement / 2
    one, two = belief.chunk(2)
    apart = torch.sub(*logits.chunk(2)).sub_(torch.sub(*total.chunk(2))).mul_(half)
    there, back = (torch.linalg.vecdot(each, apart).unsqueeze(1) for each in (one, two))
    pulled = torch.empty_like(belief)
    first, second = pulled.chunk(2)
    torch.add(apart, 1 + half - there, out=first).mul_(one).sub_(two, alpha=half)
    torch.sub(1 + half + back, apart, out=second).mul_(two).sub_(one, alpha=half)
    return (there - back).sum(), pulled
