"""What an answer depends on, asked in two ways that know nothing of attention.

- Gradient times input: how the log-probability of what was predicted changes with each input's embedding, times
  that embedding (Jain and Wallace 2019, section 4.1; here the size of the sum over its dimensions).
- Ablation: by how much it changes where an input's embedding is set to zero.

Both are (Tq, Tk) for one sample: output steps by input steps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import Record, short_name

Recording = Callable[[Sequence[str]], AbstractContextManager[Mapping[str, Record]]]
"""Records some layers of a model while a block runs."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One sample: what was attended to, and what the answer depends on."""

    weights: dict[str, np.ndarray]
    """(H, Tq, Tk) for each layer that was asked for, by its name without `.layers`."""
    gradient: np.ndarray
    """(Tq, Tk), not negative."""
    ablation: np.ndarray
    """(Tq, Tk), not negative."""


def probe(
    recording: Recording, embedding: nn.Module, run: Callable[[int], Tensor], layers: Sequence[str]
) -> Probe:
    """Probe one sample: `run(N)` feeds N copies of it to a model and returns logits (N, Tq, classes).

    `recording`: what records layers of that model. `embedding`: the module whose first output in a run, (N, Tk,
    D), is the inputs'. The model is to be in evaluation mode.
    """
    with torch.no_grad(), recording(layers) as records:
        likely, predicted = run(1)[0].log_softmax(-1).max(-1)
    steps = len(predicted)
    leaves: list[Tensor] = []

    def trace_answer(embedded: Tensor) -> Tensor:
        leaves.append(embedded.detach().requires_grad_())
        return leaves[0]

    # A copy for each output step: the gradient of the sum is that of every step in its own copy. On a GPU cuDNN's
    # recurrent layers have no gradient in evaluation mode, and PyTorch's own have.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False), _changing(embedding, trace_answer):
        found = run(steps).log_softmax(-1)[range(steps), range(steps), predicted]
        [gradient] = torch.autograd.grad(found.sum(), leaves)
    gradient = (gradient * leaves[0]).sum(-1).abs().detach()
    inputs = leaves[0].shape[1]

    def leave_out(embedded: Tensor) -> Tensor:
        return embedded * (1 - torch.eye(inputs, dtype=embedded.dtype, device=embedded.device)).unsqueeze(-1)

    with torch.no_grad(), _changing(embedding, leave_out):
        without = run(inputs).log_softmax(-1)[:, range(steps), predicted]
    return Probe(
        weights={short_name(name): each.weights[0].float().cpu().numpy() for name, each in records.items()},
        gradient=gradient.cpu().numpy(),
        ablation=(likely - without).abs().T.cpu().numpy(),
    )


@contextmanager
def _changing(embedding: nn.Module, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Change the first output of `embedding` in the block; a decoder may share it, and call it again."""
    calls = 0

    def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        nonlocal calls
        calls += 1
        return change(output) if calls == 1 else None

    handle = embedding.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
