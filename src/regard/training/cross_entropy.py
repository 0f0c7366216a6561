"""Cross-entropy over a large vocabulary, without ever holding its logits.

Logits of all target steps over 12,000 subwords are by far the largest tensor of a translation step: 190 MB for
4,000 steps, read and written again for the softmax, its gradient, and each of the two products behind it. Here a
chunk of steps goes all the way, from states to gradients, while most of it is in the processor's cache, always
in the same memory; what is kept are the gradients of states and weight.

Passes over a chunk are what costs beside its products, so there are as few as can be: the softmax stays without
its divisor, by which the small gradients are divided instead; the part of the gradient that smoothing spreads
evenly over the vocabulary is a sum of states and one of the weight; and powers are those of 2, which PyTorch
takes three times as fast as those of e.

Letters: P passes over the same steps, N target steps, D width, V vocabulary.
"""

import math
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

CHUNK = 1 << 24
"""Bytes of the logits that are worked on at once."""
BITS = 1 / math.log(2)
"""A nat."""
FAR = 60.0
"""Up to which powers of 2, and sums of them, are far from overflowing in float32 and bfloat16."""


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
    and sums and logarithms in float32 (float64 for float64 states).
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
        loss = torch.zeros((), dtype=torch.promote_types(dtype, torch.float32), device=states.device)
        right = torch.empty_like(target, dtype=torch.bool)
        grads: list[Tensor | None] = [None, None, None]
        if any(ctx.needs_input_grad):
            grads = [None if each is None else torch.zeros_like(each) for each in (states, weight, bias)]
        widest = loss.dtype if agreement else dtype
        rows = max(1, CHUNK // (len(weight) * passes * widest.itemsize))
        with torch.autocast(device, enabled=False):
            unit = 1.0 if agreement else BITS
            narrow, offset = weight.to(dtype), None if bias is None else (bias * unit).to(dtype)
            for begin in range(0, len(target), rows):
                part = slice(begin, begin + rows)
                chunk, goal = states[:, part].flatten(0, 1), target[part].repeat(passes)
                logits = _multiply("logits", (chunk * unit).to(dtype), narrow.T, offset)
                find = partial(_agree, agreement=agreement) if agreement else _aim
                cost, hits, share = find(logits, goal, smoothing)
                loss += cost
                right[part] = hits.view(passes, -1)[0]
                grad_states, grad_weight, grad_bias = grads
                if grad_states is not None:
                    grad_states[:, part] = ((logits @ narrow) * share).unflatten(0, (passes, -1))
                if grad_weight is not None:
                    grad_weight += _multiply("weight", logits.T, (chunk * share).to(dtype))
                if grad_bias is not None:
                    grad_bias += share.to(dtype).squeeze(1) @ logits
            _smooth(smoothing, loss, (states, weight, bias), grads)
        ctx.save_for_backward(*grads)
        ctx.mark_non_differentiable(right)
        return loss, right

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        factor = grads[0]
        scaled = (None if each is None else each * factor.to(each.dtype) for each in ctx.saved_tensors)
        return (*scaled, None, None, None)


def _smooth(
    smoothing: float, loss: Tensor, inputs: tuple[Tensor, Tensor, Tensor | None], grads: list[Tensor | None]
) -> None:
    """Take from loss and gradients what smoothing spreads evenly: a share of the mean of all logits."""
    states, weight, bias = inputs
    even, steps = smoothing / len(weight), states.shape[:2].numel()
    seen = states.sum((0, 1), dtype=loss.dtype)  # states may be narrow already
    mean = weight.sum(0, dtype=loss.dtype) * even
    loss -= seen @ mean
    if bias is not None:
        loss -= bias.sum() * (even * steps)
    amounts: list[Tensor | float] = [mean, seen * even, even * steps]
    for grad, amount in zip(grads, amounts, strict=True):
        if grad is not None:
            grad -= amount


class _Room(threading.local):
    """Memory that one chunk takes after the other, of each thread its own."""

    def __init__(self) -> None:
        self.kept: dict[str, Tensor] = {}

    def take(self, name: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return a tensor that holds anything, until the next one of that name is taken."""
        size, found = math.prod(shape), self.kept.get(name)
        if found is None or found.numel() < size or (found.dtype, found.device) != (dtype, device):
            with torch.inference_mode(False):
                found = self.kept[name] = torch.empty(size, dtype=dtype, device=device)
        return found[:size].view(*shape)


ROOM = _Room()


def _multiply(name: str, one: Tensor, two: Tensor, offset: Tensor | None = None) -> Tensor:
    """Return the product of two matrices, plus an offset of each column, in the room of that name."""
    into = ROOM.take(name, (len(one), two.shape[1]), one.dtype, one.device)
    return torch.mm(one, two, out=into) if offset is None else torch.addmm(offset, one, two, out=into)


def _aim(logits: Tensor, goal: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return what steps cost, but for what smoothing spreads evenly; which are right, (N, 1); and by what each
    row of `logits` is to be multiplied to be the gradient of that, (N, 1): in place they become all but that.

    logits (N, V), in bits; goal (N,).
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    largest, aim = _largest(logits), logits.gather(1, goal.unsqueeze(1))
    hits, raised = aim == largest, torch.zeros((), dtype=wide, device=logits.device)
    if logits.device.type != "cpu" or bool((largest.abs() > FAR).any()):  # a GPU would have to be waited for
        logits -= largest
        aim, raised = aim - largest, largest.to(wide)
    aim = aim.to(wide)
    # PyTorch adds up bfloat16 in float32, but takes five times as long where it is to return that.
    total = logits.exp2_().sum(1, keepdim=True).to(wide)
    cost = (total.log2() + smoothing * raised - (1 - smoothing) * aim).sum() / BITS
    # Of bfloat16, `scatter_` would go through all numbers.
    rows = torch.arange(len(goal), device=goal.device)
    logits[rows, goal] = (aim.exp2() - (1 - smoothing) * total).to(logits.dtype).squeeze(1)
    return cost, hits, 1 / total


def _largest(logits: Tensor) -> Tensor:
    """Return the largest logit of each row, (N, 1)."""
    if logits.dtype == torch.bfloat16 and logits.device.type == "cpu":
        # The bits of bfloat16 are ordered as integers, where not all are below zero: ten times as fast.
        found = logits.view(torch.int16).amax(1, keepdim=True)
        if bool((found >= 0).all()):
            return found.view(torch.bfloat16)
    return logits.amax(1, keepdim=True)


def _agree(logits: Tensor, goal: Tensor, smoothing: float, agreement: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the same as `_aim`, with what it costs that two passes disagree.

    logits (2N, V), in nats, those of the second pass below the first's. The cost of a step is `agreement` times
    (KL(p, q) + KL(q, p)) / 2; with a = log p - log q its gradient by the logits of p is `agreement` times
    (p (1 + a - KL(p, q)) - q) / 2, and alike for q.
    """
    half, dtype, device = agreement / 2, torch.promote_types(logits.dtype, torch.float32), logits.device
    wide, goal = logits, goal.unsqueeze(1)
    if logits.dtype != dtype:
        wide = ROOM.take("wide", logits.shape, dtype, device).copy_(logits)
    largest, aim = wide.amax(1, keepdim=True), wide.gather(1, goal)
    belief = torch.softmax(wide, 1, out=ROOM.take("belief", wide.shape, dtype, device))
    # The largest probability is at least 1 / V, so its logarithm is always a number.
    total = largest - belief.amax(1, keepdim=True).log()
    (one, two), (first, second) = belief.chunk(2), wide.chunk(2)
    apart = torch.sub(first, second, out=ROOM.take("apart", one.shape, dtype, device))
    apart.sub_(torch.sub(*total.chunk(2))).mul_(half)
    there, back = (torch.linalg.vecdot(each, apart).unsqueeze(1) for each in (one, two))
    torch.add(apart, 1 + half - there, out=first).mul_(one).sub_(two, alpha=half)
    torch.sub(1 + half + back, apart, out=second).mul_(two).sub_(one, alpha=half)
    wide.scatter_add_(1, goal, torch.full_like(aim, smoothing - 1))
    if wide is not logits:
        logits.copy_(wide)
    cost = (total - (1 - smoothing) * aim).sum() + (there - back).sum()
    return cost, aim == largest, torch.ones_like(aim)
