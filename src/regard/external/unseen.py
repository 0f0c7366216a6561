"""Layers that ran beside the recorded ones and are not in the record, with the reason.

Two kinds: layers that mix steps without a softmax (Mamba, gated delta rules, short convolutions, linear
attention), and attention by hand whose weights no hook reaches.
"""

import re
from collections.abc import Collection
from functools import cache
from typing import Any

from torch import nn

from regard.external.capture_session import CaptureSession
from regard.external.output_attentions import names_in_code
from regard.external.token_labels import is_inside

MIXER = re.compile(
    r"(Attention|Attn|Mixer|MambaLayer|DeltaNet|DeltaRule|ShortConv|ShortConvolution|RecurrentBlock|SSM|FourierTransform"
    r"|Retention|mLSTMLayer)(V?[0-9]+)?$"
)
"""Ends of the names of classes whose modules mix the steps of a sequence."""
SOFTMAX = re.compile(r"softmax|scaled_dot_product|multi_head_attention|attention_forward|flex_attention", re.I)
WITHOUT = "without softmax attention"
BY_HAND = "with weights that are not seen: name the module that they pass, with at="


def is_sequence_mixer(module: nn.Module) -> bool:
    """Say whether a module mixes the steps of a sequence, as far as the name of its class tells."""
    kind = type(module)
    return MIXER.search(kind.__name__) is not None and not kind.__module__.startswith(("torch.", "regard."))


def left_out(session: CaptureSession, recorded: Collection[str]) -> dict[str, str]:
    """Return the layers that ran and are not among the recorded ones: by name, the class and the reason.

    `recorded`: names of records. A layer inside a recorded one, or around one, is not left out.
    """
    names = {name.split("#")[0].rpartition(".stream")[0] or name.split("#")[0] for name in recorded}
    if not names <= session.tracker.modules.keys():  # whose weights were returned without the layer's name
        return {}
    found: dict[str, str] = {}
    for name, module in session.tracker.modules.items():
        if name not in session.tracker.seen or not is_sequence_mixer(module) or not session.wants(name):
            continue
        if any(is_inside(name, each) or is_inside(each, name) for each in names):
            continue
        if not any(is_inside(name, each) for each in found):
            found[name] = f"{type(module).__name__} {BY_HAND if _takes_softmax(module) else WITHOUT}"
    return found


def _takes_softmax(module: nn.Module) -> bool:
    kinds: list[Any] = [type(part) for part in module.modules()]
    return nn.Softmax in kinds or any(SOFTMAX.search(name) for kind in kinds for name in _names(kind))


@cache
def _names(kind: Any) -> set[str]:
    """Return the names that the code of a class and of its bases uses."""
    bases = (base for base in kind.__mro__ if not base.__module__.startswith("torch."))
    return {name for base in bases for name in names_in_code(base)}
