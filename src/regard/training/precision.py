"""The dtype of matrix products in training."""

from collections.abc import Callable
from functools import partial

import torch

from regard.fast import onednn
from regard.machine import choose
from regard.training.distributed import SINGLE_PROCESS, DistributedContext
from regard.training.settings import Precision

PRECISION = "precision"
"""Name of the measured choice between float32 and bfloat16."""


def measure_choices(precision: Precision, context: DistributedContext = SINGLE_PROCESS) -> dict[str, str]:
    """Return the measured choices that affect the losses of a training run, by name. All processes use those of
    the first process.

    The run stores them, so that a resumed run has the same losses, even if the machine's choices have changed.
    """
    by_onednn = bool(context.agree(context.first and onednn.available()))
    dtype = str(product_type(precision, context)).removeprefix("torch.")
    return {onednn.PRODUCTS: "oneDNN" if by_onednn else "MKL", PRECISION: dtype}


def product_type(precision: Precision, context: DistributedContext = SINGLE_PROCESS) -> torch.dtype:
    """Return the dtype of matrix products. "auto" selects bfloat16 if the device computes products faster in
    bfloat16 than in float32.

    Without bfloat16 instructions, bfloat16 is emulated and slower. With them, a measurement decides on a CPU, in
    the first process.
    """
    if precision != "auto":
        dtype: torch.dtype = getattr(torch, precision)
        return dtype
    if context.device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    capabilities = torch.cpu.get_capabilities()
    native = any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    # Every process takes part, because the processors of several machines may differ.
    faster = context.agree(context.first and native and _faster_in_bfloat16())
    return torch.bfloat16 if faster else torch.float32


def _faster_in_bfloat16() -> bool:
    return choose(PRECISION, _products, version=f"torch {torch.__version__}") == "bfloat16"


def _products() -> dict[str, Callable[[], object]]:
    states, weight, grads = torch.ones(2048, 128), torch.ones(512, 128), torch.ones(2048, 512)

    def multiply(dtype: torch.dtype) -> None:
        left, right, back = states.to(dtype), weight.to(dtype), grads.to(dtype)
        left @ right.T, back @ right, back.T @ left

    return {name: partial(multiply, getattr(torch, name)) for name in ("float32", "bfloat16")}
