"""In which numbers matrices are multiplied."""

import torch

from regard.training.settings import Precision


def dtype_of(precision: Precision, device: torch.device) -> torch.dtype:
    """Return the dtype of matrix products; "auto" is bfloat16 where `device` multiplies it natively.

    Elsewhere bfloat16 is emulated, which is slower than float32.
    """
    if precision != "auto":
        found: torch.dtype = getattr(torch, precision)
        return found
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    able = torch.cpu.get_capabilities()
    native = any(able.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    return torch.bfloat16 if native else torch.float32
