"""Families of timm are recorded exactly beside a capture of PyTorch's operators, or a warning names the layer.

Slow; needs timm (`pip install timm`). Models have random weights.
"""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from tests.external.test_own_attention import OperatorCapture

timm = pytest.importorskip("timm", reason="needs timm")
pytestmark = pytest.mark.slow

EXACT = """
beit_base_patch16_224 cait_xxs24_224 caformer_s18 coatnet_nano_rw_224 convit_tiny
crossvit_9_240 efficientformer_l1 efficientformerv2_s0 efficientvit_m0 eva02_tiny_patch14_224 fastvit_sa12
gcvit_xxtiny halonet26t hiera_tiny_224 levit_128s maxvit_tiny_tf_224 mobilenetv4_hybrid_medium mobilevit_xxs
mvitv2_tiny nest_tiny_jx nextvit_small pit_ti_224 pvt_v2_b0 samvit_base_patch16_224
shvit_s1 swin_tiny_patch4_window7_224 swinv2_tiny_window8_256 swinv2_cr_tiny_ns_224 tiny_vit_5m_224
tnt_s_legacy_patch16_224 twins_pcpvt_small twins_svt_small visformer_tiny vit_medium_patch16_gap_240
vit_relpos_small_patch16_224 vit_tiny_patch16_224 vitamin_small_224 volo_d1_224
"""
"""Every softmax is recorded."""
NAMED = [
    "botnet26t_256",
    "sebotnet33ts_256",
    "coat_lite_tiny",
    "davit_tiny",
    "edgenext_xx_small",
    "mobilevitv2_050",
    "xcit_nano_12_p16_224",
]
"""Some layers attend over channels, with one global query, or pool the heads before they are joined; a warning
names them."""


def find(weights: Tensor, records: dict[str, list[Tensor]]) -> str | None:
    """Return the name of the record with the same weights in any layout, and remove these weights.

    A call may compute all heads of a record, or one head.
    """
    values = weights.float().flatten().sort()[0]
    for name, parts in records.items():
        heads = [part for part in parts if part.numel() == values.numel()] if len(parts) > 1 else []
        for part in [torch.cat(parts), *heads]:
            if part.numel() == values.numel() and torch.allclose(part.flatten().sort()[0], values, atol=1e-3):
                records[name] = [head for head in heads if head is not part]
                if not records[name]:
                    del records[name]
                return name
    return None


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", [*EXACT.split(), *NAMED])
@torch.no_grad()
def test_family_is_recorded_exactly(name: str, fused: bool) -> None:
    timm.layers.set_fused_attn(fused)
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.normal_(std=1.2 * parameter[0].numel() ** -0.5)
    images = torch.randn(2, *model.default_cfg["input_size"])
    with OperatorCapture() as capture:
        plain = model(images)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with regard.record(model) as records:
            assert torch.equal(model(images), plain)
    left = {name: list(record.weights.unbind(1)) for name, record in records.items()}
    modules = dict(model.named_modules())
    missing = [weights for weights in capture.weights if find(weights, left) is None]
    assert not left, "records equal no softmax"
    named = [layer for layer, reason in records.left_out.items() if not reason.endswith("without softmax attention")]
    assert len(missing) == len(named) and bool(missing) == (name in NAMED)
    assert any("not recorded" in str(warning.message) for warning in caught) == bool(missing)
    for layer, record in records.items():
        module: Any = modules[layer.partition("#")[0]]
        heads = getattr(module, "num_heads", getattr(module, "heads", record.weights.shape[1]))
        assert record.weights.shape[1] == heads, layer
    check_head(model, images, plain, records)


def check_head(model: Any, images: Tensor, plain: Tensor, records: regard.Records) -> None:
    """Compare a head that is off with a zero in its part of the input of the layer's output projection."""
    for layer, record in records.items():
        module: Any = model.get_submodule(layer.partition("#")[0])
        heads, projection = record.weights.shape[1], getattr(module, "proj", None)
        if not isinstance(projection, torch.nn.Linear) or heads < 2 or hasattr(module, "proj_w"):
            continue  # no projection, or heads are mixed after the softmax

        def zero(_: Any, inputs: tuple[Tensor, ...], heads: int = heads) -> tuple[Tensor]:
            states = inputs[0].unflatten(-1, (heads, -1)).clone()
            states[..., 1, :] = 0
            return (states.flatten(-2),)

        handle = projection.register_forward_pre_hook(zero)
        expected = model(images)
        handle.remove()
        with regard.intervene(model, layer, heads=[1]):
            actual = model(images)
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
        assert not torch.equal(expected, plain)
        return
