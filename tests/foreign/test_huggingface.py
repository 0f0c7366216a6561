"""Recording encoder-decoders of Hugging Face's, built from a config and never downloaded."""

from typing import Any

import pytest
import torch

from regard.foreign import record

transformers = pytest.importorskip("transformers", reason="needs the extra peers")

SMALL: dict[str, Any] = {
    "vocab_size": 50,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 20,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
}
T5: dict[str, Any] = {"vocab_size": 50, "d_model": 16, "d_kv": 8, "num_layers": 1, "num_heads": 2, "d_ff": 32}
MODELS = {
    "bart": ("BartModel", "BartConfig", SMALL, "encoder.layers.0.self_attn", "decoder.layers.0.encoder_attn"),
    "marian": (
        "MarianMTModel",
        "MarianConfig",
        SMALL,
        "model.encoder.layers.0.self_attn",
        "model.decoder.layers.0.encoder_attn",
    ),
    "t5": (
        "T5Model",
        "T5Config",
        T5,
        "encoder.block.0.layer.0.SelfAttention",
        "decoder.block.0.layer.1.EncDecAttention",
    ),
}


@pytest.mark.slow  # importing transformers takes seconds
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", MODELS)
def test_weights_are_those_that_the_model_itself_reports(name: str, implementation: str) -> None:
    model_class, config_class, sizes, encoder, cross = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, config_class)(**sizes)
    model = getattr(transformers, model_class)._from_config(config, attn_implementation=implementation).eval()
    inputs = {
        "input_ids": torch.randint(3, 50, (2, 5)),
        "attention_mask": torch.tensor([[1] * 5, [1, 1, 0, 0, 0]]),
        "decoder_input_ids": torch.randint(3, 50, (2, 3)),
    }
    with torch.no_grad():
        plain = model(**inputs)[0]
        with record(model) as records:
            recorded = model(**inputs)[0]
        assert torch.equal(model(**inputs)[0], plain)
        assert model.config._attn_implementation == implementation
        model.set_attn_implementation("eager")
        reported = model(**inputs, output_attentions=True)
    torch.testing.assert_close(recorded, plain, atol=1e-5, rtol=0)
    assert len(records) == 3
    # In rows past the end of a source nobody reads the weights: implementations fill them as they like.
    ends = torch.tensor([5, 2])
    for row, end in enumerate(ends.tolist()):
        found = records[encoder].weights[row, :, :end]
        torch.testing.assert_close(found, reported.encoder_attentions[0][row, :, :end], atol=1e-5, rtol=0)
    torch.testing.assert_close(records[cross].weights, reported.cross_attentions[0], atol=1e-5, rtol=0)
