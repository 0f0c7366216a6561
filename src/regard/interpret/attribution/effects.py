"""Methods that measure the effect of inputs and heads: ablation, and gradients.

    ablation               | value_i(x) - value_i(x with input j replaced) |
                           | value(x) - value(x with the context of head h replaced) |      (Michel et al. 2019)
    gradient               || g_ij ||
    gradient x input       | g_ij . x_j |
    integrated gradients   | (x_j - b_j) . mean of g_ij along the line from the baseline b to x |
    gate                   | c_h . g_h |             derivative with respect to a gate that multiplies the head
    attribution patching   | (mean_h - c_h) . g_h |  first-order change when the mean replaces the context
    logit attribution      the part of head h in the target's logit minus the mean logit, along direct paths only

The value is the log-probability of the target class (see `trial`). Ablation replaces the embedding of an input by
zero or by a mean, its token by other tokens, or the context of a head. g_ij is the gradient of the value of output
step i with respect to the embedding x_j (D) of input j. Positions are added to embeddings, and do not change on the
line. c_h is the context of head h at all steps, the input of the output projection, and g_h the gradient of the value
of one output step. Absolute values of heads are averaged over output steps, then over inputs.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import InputError
from regard.interpret.attribution.trial import MOST_ROWS, RESAMPLES, Trial, change_embedding, resize
from regard.interpret.linear_pass import DirectPaths

MOST_TOKENS = 64  # Largest number of other tokens that replace a token; of a larger alphabet as many are drawn
POINTS = 32  # Points on the line of integrated gradients (nodes of Gauss and Legendre)
MOST_NUMBERS = 1 << 20
"""Largest number of gradients in one pass, for which the copies of a large model take little memory."""
INCOMPLETE = 0.05
"""Largest accepted difference between the sum of the scores and the change of the value, as a fraction of it."""


def replace_each(trial: Trial[Any], replacement: Tensor) -> Tensor:
    """Return the absolute changes (S, Tk) when each embedding is replaced by its row of `replacement` (Tk, D)."""
    # One copy of the input for each position, all in one batch: in copy j, position j is replaced.
    keys = len(trial.embedding)
    chosen = torch.eye(keys, dtype=torch.bool, device=trial.embedding.device).unsqueeze(-1)
    embeddings = torch.where(chosen, replacement.to(trial.embedding), trial.embedding)
    return (trial.run_embeddings(embeddings) - trial.clean).abs().T


def resampled_tokens(trial: Trial[Any]) -> Tensor:
    """Return the tokens (Tk, R) of R other inputs at each position."""
    tokens, generator = _tokens(trial), trial.draws("resampled")
    others = [probe.tokens for probe in trial.background.probes if probe.tokens is not None]
    order = torch.randperm(len(others), generator=generator).repeat(RESAMPLES)[:RESAMPLES].tolist()
    return torch.stack([resize(others[index], len(tokens), generator) for index in order], 1).to(tokens)


def other_tokens(trial: Trial[Any]) -> Tensor:
    """Return the tokens (Tk, R) that replace each token: the vocabulary, or 64 drawn tokens of one with more than 65.
    Raises `InputError` if the vocabulary is not known."""
    tokens = _tokens(trial)
    alphabet = torch.as_tensor(list(trial.probe.alphabet))
    if not len(alphabet):
        raise InputError(f"the tokens of {trial.subject.name} are not known: choose ablation_mean")
    if len(alphabet) > MOST_TOKENS + 1:
        alphabet = alphabet[torch.randperm(len(alphabet), generator=trial.draws("others"))[:MOST_TOKENS]]
        trial.remarks.append(f"{MOST_TOKENS} of {len(trial.probe.alphabet):,} other tokens were drawn.")
    return alphabet.expand(len(tokens), -1).to(tokens)


def _tokens(trial: Trial[Any]) -> Tensor:
    if trial.probe.tokens is None or trial.probe.run_tokens is None:
        raise InputError(f"the inputs of {trial.subject.name} are not tokens: choose ablation_mean")
    return trial.probe.tokens


def replace_tokens(tokens: Tensor, replacements: Tensor) -> Tensor:
    """Return copies (Tk R, Tk) of tokens (Tk,), each with one token replaced by one of `replacements` (Tk, R)."""
    keys, count = replacements.shape
    changed = tokens.repeat(keys, count, 1)
    place = torch.arange(keys, device=tokens.device)
    changed[place, :, place] = replacements
    return changed.flatten(0, 1)


def mean_changes(trial: Trial[Any], replacements: Tensor, values: Tensor) -> Tensor:
    """Return the mean absolute changes (S, Tk) from the explained values (Tk R, S) of the changed inputs of
    `replace_tokens`; a replacement by the same token does not count."""
    changes = (values - trial.clean).abs().unflatten(0, replacements.shape)
    differs = (replacements != _tokens(trial).unsqueeze(1)).unsqueeze(-1)
    means: Tensor = (changes * differs).sum(1) / differs.sum(1).clamp(min=1)
    return means.T


def token_changes(trial: Trial[Any], replacements: Tensor) -> Tensor:
    """Return the mean absolute changes (S, Tk) for replacements (Tk, R) of each token."""
    return mean_changes(trial, replacements, trial.run_tokens(replace_tokens(_tokens(trial), replacements)))


def input_gradients(trial: Trial[Any], embeddings: Tensor) -> Tensor:
    """Return the gradients (N, S, Tk, D) of the S explained values with respect to embeddings (N, Tk, D). The input is
    copied for each output step: one backward pass of a sum then gives the gradient of each step in its own copy."""
    steps = len(trial.steps)
    copies = embeddings.repeat_interleave(steps, 0)
    own_step = torch.arange(steps, device=embeddings.device).repeat(len(embeddings))
    parts: list[Tensor] = []
    # cuDNN's recurrent layers have no gradient in evaluation mode; PyTorch's native recurrent layers have one.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        for rows, step in zip(copies.split(MOST_ROWS), own_step.split(MOST_ROWS), strict=True):
            leaf = rows.detach().clone().requires_grad_()
            with change_embedding(trial.probe.embedding, leaf.to):
                values = trial.values(trial.probe.run(len(leaf)))
            parts += torch.autograd.grad(values.gather(1, step.unsqueeze(1)).sum(), [leaf])
    gradients: Tensor = torch.cat(parts).unflatten(0, (-1, steps))
    return gradients


def own_gradients(trial: Trial[Any]) -> Tensor:
    """Return the gradients (S, Tk, D) with respect to the embedding of the input."""
    return input_gradients(trial, trial.embedding.unsqueeze(0))[0]


def integrated_gradients(trial: Trial[Any], baseline: Tensor) -> Tensor:
    """Return integrated gradients (S, Tk), signed (Sundararajan et al. 2017). The scores of a step add up to its value
    minus its value at the baseline; a remark names a larger difference."""
    nodes, weights = np.polynomial.legendre.leggauss(POINTS)
    difference = trial.embedding - baseline.to(trial.embedding)
    total = torch.zeros(len(trial.steps), *difference.shape, device=difference.device)
    shares, parts = (torch.as_tensor(values / 2).to(difference) for values in (nodes + 1, weights))
    points = baseline.to(difference) + shares[:, None, None] * difference
    together = max(1, MOST_NUMBERS // total.numel())
    for point, part in zip(points.split(together), parts.split(together), strict=True):
        total += torch.tensordot(part, input_gradients(trial, point), 1)
    scores = (total * difference).sum(-1)
    change = trial.clean - trial.run_embeddings(baseline.unsqueeze(0))[0]
    missing = float(((scores.sum(-1) - change).abs() / change.abs().clamp(min=0.1)).max())
    if missing > INCOMPLETE:
        trial.remarks.append(
            f"The sum of integrated gradients differs from the change of the value by up to {missing:.0%}:"
            f" {POINTS} points are too few, or the model is not smooth at the baseline."
        )
    return scores


def replace_heads(trial: Trial[Any], replacement: Callable[[str, Tensor], Tensor]) -> dict[str, Tensor]:
    """Return, by layer, the mean absolute changes (H,) when the contexts of each head are replaced. `replacement` maps
    a layer and its contexts (T, H, Dv) to R replacements (R, T, H, Dv), over which changes are averaged."""
    scores = {}
    for name, contexts in trial.contexts.items():
        heads = contexts.shape[1]
        chosen = torch.eye(heads, dtype=torch.bool, device=contexts.device)[:, None, None, :, None]
        changed = torch.where(chosen, replacement(name, contexts).to(contexts), contexts)  # (H, R, T, H, Dv)
        values = trial.run_contexts(name, changed.flatten(0, 1))
        scores[name] = (values - trial.clean).abs().mean(-1).unflatten(0, (heads, -1)).mean(-1)
    trial.left_out.update(trial.components.left_out)
    return scores


def resampled_heads(trial: Trial[Any]) -> dict[str, Tensor]:
    generator, draw = trial.draws("resampled"), trial.background.draw_contexts
    return replace_heads(trial, lambda name, contexts: draw(name, len(contexts), RESAMPLES, generator))


def context_gradients(trial: Trial[Any]) -> dict[str, Tensor]:
    """Return, by layer, the gradients (S, T, H, Dv) of the S explained values with respect to all contexts."""
    parts: dict[str, list[Tensor]] = {}
    # Each output step has its own copy of the input: one backward pass of a sum gives the gradients of all steps.
    for steps in torch.arange(len(trial.steps), device=trial.logits.device).split(MOST_ROWS):
        leaves: dict[str, list[Tensor]] = {}

        def add_leaf(name: str, contexts: Tensor, leaves: dict[str, list[Tensor]] = leaves) -> Tensor:
            leaf = torch.zeros_like(contexts).requires_grad_()
            leaves.setdefault(name, []).append(leaf)
            return contexts + leaf

        # cuDNN's recurrent layers have no gradient in evaluation mode; PyTorch's native recurrent layers have.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            with trial.components.replace_contexts(add_leaf):
                values = trial.values(trial.probe.run(len(steps))).gather(1, steps.unsqueeze(1)).sum()
            flat = [leaf for calls in leaves.values() for leaf in calls]
            computed = iter(torch.autograd.grad(values, flat, allow_unused=True, materialize_grads=True))
        for name, calls in leaves.items():
            gradients = torch.cat([next(computed) for _ in calls], 1)
            parts.setdefault(name, []).append(trial.components.split(name, gradients))
    return {name: torch.cat(gradients) for name, gradients in parts.items()}


def first_order(trial: Trial[Any], changes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the mean absolute first-order effects (H,) of changes (T, H, Dv) of the contexts."""
    trial.left_out.update(trial.components.left_out)
    gradients = context_gradients(trial)
    return {name: (gradients[name] * change).sum((1, 3)).abs().mean(0) for name, change in changes.items()}


def mean_patching(trial: Trial[Any]) -> dict[str, Tensor]:
    mean, contexts = trial.background.mean_contexts, trial.contexts.items()
    return first_order(trial, {name: mean(name, len(own)).to(own) - own for name, own in contexts})


def direct_parts(trial: Trial[Any]) -> dict[str, Tensor]:
    """Return the mean absolute direct parts (H,) of heads in the target's logit minus the mean logit (Elhage et al.
    2021); norms are frozen. Heads without a direct path get zero, and a remark names them. Raises `InputError` for a
    model without a residual stream."""
    paths = DirectPaths(trial.subject.model, trial.components)
    scores: dict[str, Tensor] = {}
    indirect: dict[str, str] = {}
    with torch.enable_grad(), paths.watch():
        logits = trial.probe.run(1)[0]
        for step in trial.steps:
            row = logits[step]
            value = row[int(trial.classes[step])] - (row.mean() if len(row) > 1 else 0)
            parts, indirect = paths.parts(value)
            for (kind, name), part in parts.items():
                if kind == "head":
                    layer = name.split("#")[0]
                    share = part.cpu().abs() / len(trial.steps)
                    scores[layer] = scores.get(layer, torch.zeros(len(part))) + share
    trial.remarks.append("The scales of all norms are fixed at their values for the input (frozen).")
    if indirect:
        trial.remarks.append(f"Zero, because they add only through other layers: {', '.join(indirect)}.")
    return scores
