"""Activations of many architectures equal independent hooks."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.external.adapters import call_model
from tests.external.any_models import MODELS, build

OWN_CODE = ("bloom", "codegen", "deberta")
"""Architectures that compute the softmax without an attention function."""


@pytest.mark.parametrize("name", MODELS)
def test_contexts_and_outputs_equal_hooks_on_the_projection(name: str, tokenizer: Any) -> None:
    case = MODELS[name]
    subject: Any = regard.look(build(case), None if name == "vit" else tokenizer)
    prepared = subject.prepare(case.inputs[0])
    read: list[Tensor] = []
    model = subject.model
    hook = model.get_submodule(case.projection).register_forward_hook(
        lambda module, args, output: read.extend([args[0].clone(), output.clone()])
    )
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore" if name in OWN_CODE else "error")
        with regard.record(model, "*") as cache:
            call_model(model, prepared.arguments)
    hook.remove()
    if name in OWN_CODE:
        [reason] = set(cache.left_out.values())
        assert reason == "the layer computes attention in its own code, which shows only its softmax"
        assert {key.rpartition(".")[2] for key in cache} == {"resid_pre", "weights", "scores", "mlp_out", "resid_post"}
        for activation, scores in cache.items():
            if activation.endswith(".scores"):
                weights = cache[activation.replace(".scores", ".weights")]
                torch.testing.assert_close(scores.softmax(-1), weights, rtol=1e-5, atol=1e-6)
        return
    assert not cache.left_out
    [layer] = [
        activation.removesuffix(".z")
        for activation, value in cache.items()
        if activation.endswith(".z") and value.numel() == read[0].numel()
        if torch.equal(value.reshape(-1), read[0].reshape(-1))
    ]
    assert torch.equal(cache[f"{layer}.out"].reshape(-1), read[1].reshape(-1))
    context = cache[f"{layer}.weights"] @ cache[f"{layer}.v"].transpose(1, 2).repeat_interleave(
        cache[f"{layer}.weights"].shape[1] // cache[f"{layer}.v"].shape[2], 1
    )
    torch.testing.assert_close(context.transpose(1, 2), cache[f"{layer}.z"], atol=1e-5, rtol=0)
    with torch.no_grad(), regard.replace(model, f"{layer}.z", torch.zeros_like):
        changed = subject.patchable.outputs(prepared)
    zero = model.get_submodule(case.projection).register_forward_pre_hook(lambda module, args: (args[0] * 0,))
    with torch.no_grad():
        torch.testing.assert_close(changed, subject.patchable.outputs(prepared), atol=1e-6, rtol=0)
    zero.remove()
