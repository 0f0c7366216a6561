"""Named activations equal those of TransformerLens for the same weights, by the names that both have.

The table of `docs/how-to/from-other-tools.md` lists the names. TransformerLens is not a dependency.
"""

from typing import Any

import pytest
import torch

import regard

NAMES = {
    "resid_pre": "hook_resid_pre",
    "v": "attn.hook_v",
    "weights": "attn.hook_pattern",
    "z": "attn.hook_z",
    "out": "hook_attn_out",
    "mlp_out": "hook_mlp_out",
    "resid_post": "hook_resid_post",
}
# The bridge runs the eager functions; that of Llama computes its softmax in float32, and the kernel in float64.
SIZES = {"vocab_size": 50, "bos_token_id": 1, "eos_token_id": 1, "attn_implementation": "eager"}


def gpt2() -> tuple[str, torch.nn.Module]:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_head=4, n_embd=32, n_positions=32, **SIZES)
    return "gpt2", transformers.GPT2LMHeadModel(config)


def llama() -> tuple[str, torch.nn.Module]:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 32}
    config = transformers.LlamaConfig(
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, **sizes, **SIZES
    )
    return "meta-llama/Llama-3.2-1B", transformers.LlamaForCausalLM(config)


@pytest.mark.parametrize("make", [gpt2, llama])
def test_activations_equal_those_of_transformer_lens(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformer_lens")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    torch.manual_seed(0)
    name, model = make()
    model, ids = model.double().eval(), torch.randint(3, 50, (2, 7))
    with torch.no_grad(), regard.record(model, "*") as ours:
        model(ids)
    assert not ours.left_out
    # TransformerLens' bridge runs the module itself and needs a tokenizer.
    bridge = pytest.importorskip("transformer_lens.model_bridge")
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    words = tokenizers.models.WordLevel({f"word{index}": index for index in range(50)}, unk_token="word0")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(words), eos_token="word1", pad_token="word2"
    )
    tokenizer.init_kwargs |= {"name_or_path": "none", "add_bos_token": True}
    with torch.no_grad():
        bridged = bridge.TransformerBridge.boot_transformers(
            name, hf_model=model, tokenizer=tokenizer, device="cpu", dtype=torch.float64
        )
        theirs = bridged.run_with_cache(ids)[1]
    rotary = make is llama
    close: dict[str, Any] = {"atol": 1e-12, "rtol": 1e-12}
    future = torch.ones(7, 7, dtype=torch.bool).triu(1)
    for layer in range(2):
        block, prefix = f"blocks.{layer}", f"layer.{layer}"
        for kind, hook in NAMES.items():
            torch.testing.assert_close(ours[f"{prefix}.{kind}"], theirs[f"{block}.{hook}"], **close)
        for kind in ("q", "k"):
            hooked = theirs[f"{block}.attn.hook_{'rot_' * rotary}{kind}"]
            hooked = hooked if hooked.shape[1] == ids.shape[1] else hooked.transpose(1, 2)
            torch.testing.assert_close(ours[f"{prefix}.{kind}"], hooked, **close)
        scores, masked = ours[f"{prefix}.scores"], theirs[f"{block}.attn.hook_attn_scores"]
        torch.testing.assert_close(scores.masked_fill(future, 0), masked.masked_fill(future, 0), **close)
        assert masked.masked_select(future).max() < -1e30 and scores.isfinite().all()
        middle = ours[f"{prefix}.resid_pre"] + ours[f"{prefix}.out"]
        torch.testing.assert_close(middle, theirs[f"{block}.hook_resid_mid"], **close)
