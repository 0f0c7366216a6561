"""Fused updates of Adam and of the moving average of parameters.

Replaces `torch.optim.AdamW` in `training.checkpoint`, and `torch.lerp` in `TrainingState.update_average`.
Gain: the first `torch.optim.Adam` of a process imports PyTorch's compiler: training Counting takes 2.2 times as long
without it (docs/dev/benchmarks.md, "Fast paths").
The fast path is not used with `REGARD_REFERENCE=1`. PyTorch's fused kernel computes the update, so the parameters are
those of `torch.optim.AdamW(fused=True)`.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Moments = Mapping[str, Tensor]
"""State of a parameter: `step`, the number of updates; `mean` and `square`, the moments."""


@torch.no_grad()
def fused_adam_step(
    parameters: Sequence[Tensor],
    grads: Sequence[Tensor],
    moments: Sequence[Moments],
    *,
    lr: float,
    betas: tuple[float, float],
    epsilon: float,
    weight_decay: float = 0.0,
) -> None:
    """Update parameters and their first and second moments in place. `step` includes the current update."""
    torch._fused_adamw_(
        list(parameters),
        list(grads),
        [moment["mean"] for moment in moments],
        [moment["square"] for moment in moments],
        [],
        [moment["step"] for moment in moments],
        lr=lr,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=weight_decay,
        eps=epsilon,
        amsgrad=False,
        maximize=False,
    )


def fused_lerp(averages: Sequence[Tensor], parameters: Sequence[Tensor], weight: float) -> None:
    """Interpolate averages linearly toward parameters in place, as PyTorch's `swa_utils` does."""
    torch._foreach_lerp_(list(averages), list(parameters), weight)
