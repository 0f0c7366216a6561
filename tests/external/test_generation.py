"""Rows of generated tokens equal the rows of a single pass over the whole result without a cache."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import regard

transformers = pytest.importorskip("transformers", reason="needs the extra peers")
pytestmark = pytest.mark.filterwarnings("ignore")

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
SHARED = {
    "num_hidden_layers": 6,
    "num_kv_shared_layers": 3,
    "sliding_window": 4,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "vocab_size_per_layer_input": 99,
    "hidden_size_per_layer_input": 8,
    "laurel_rank": 8,
    "intermediate_size": [48] * 6,
    "activation_sparsity_pattern": [0.0] * 6,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "full": ("LlamaConfig", {"num_hidden_layers": 2}),
    "window": ("Gemma3TextConfig", WINDOW),
    "shared keys": ("Gemma3nTextConfig", SHARED),
}
PROMPT = torch.tensor([[86, 74, 12, 80, 86, 74, 22, 86, 74], [60, 61, 30, 31, 60, 61, 70, 60, 61]])
STEPS = {"min_new_tokens": 8, "max_new_tokens": 8, "do_sample": False}
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "guidance": {"guidance_scale": 1.5},
    "lookup": {"prompt_lookup_num_tokens": 3},
    "static": {"cache_implementation": "static"},
    "beams": {"num_beams": 3, "num_return_sequences": 2},
}


class WordTokenizer:
    """A tokenizer whose token 7 is `w7`."""

    all_special_tokens: tuple[str, ...] = ()

    def get_vocab(self) -> dict[str, int]:
        """Return all tokens."""
        return {f"w{token}": token for token in range(99)}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        """Return the token of each number."""
        return [f"w{token}" for token in ids]


def build(name: str, implementation: str = "sdpa") -> Any:
    """Build a small model with fixed random weights."""
    kind, more = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**SIZES | more)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=1.2 * parameter[0].numel() ** -0.5)
    return model


def check(name: str, records: regard.Records, sequences: Tensor, padded: int = 0) -> None:
    """Compare records with the weights that the model returns for a whole result; the first sequence has `padded`
    steps."""
    read = sequences[:, :-1]
    there = torch.ones_like(read)
    there[0, :padded] = 0
    inputs = {"input_ids": read, "attention_mask": there, "position_ids": (there.cumsum(1) - 1).clamp(min=0)}
    with torch.no_grad():
        expected = build(name, "eager")(**inputs, output_attentions=True, use_cache=False).attentions
    assert len(records) == len(expected)
    labels = [
        "<pad>" if not step else f"w{token}" for token, step in zip(read[0].tolist(), there[0], strict=True)
    ]
    for record, weights in zip(records.values(), expected, strict=True):
        assert record.weights.shape == weights.shape
        sees = there[:, None, :, None]
        torch.testing.assert_close(record.weights * sees, weights * sees, atol=1e-5, rtol=0)
        assert record.labels_of(0) == (labels, labels)


QUICK = [
    ("full", "guidance"),
    ("full", "lookup"),
    ("window", "static"),
    ("window", "beams"),
    ("shared keys", "greedy"),
]


@pytest.mark.parametrize(
    ("name", "way"),
    [
        pytest.param(name, way, marks=() if (name, way) in QUICK else pytest.mark.slow)
        for name in MODELS
        for way in WAYS
    ],
)
def test_generated_rows_have_columns_and_labels(name: str, way: str) -> None:
    model, prompt = build(name), PROMPT if way == "beams" else PROMPT[:1]
    with torch.no_grad(), regard.record(model, tokenizer=WordTokenizer()) as records:
        sequences = model.generate(prompt, attention_mask=torch.ones_like(prompt), **STEPS, **WAYS[way])
    check(name, records, sequences)


@pytest.mark.parametrize("way", ["greedy", "static"])
def test_padding_keeps_its_label(way: str) -> None:
    model, there = build("window"), torch.ones_like(PROMPT)
    there[0, :3] = 0
    with torch.no_grad(), regard.record(model, tokenizer=WordTokenizer()) as records:
        sequences = model.generate(PROMPT, attention_mask=there, **STEPS, **WAYS[way])
    check("window", records, sequences, padded=3)


def test_rejected_drafts_of_an_assistant_leave_no_rows() -> None:
    model, helper = build("window"), build("window")
    for parameter in helper.parameters():
        parameter.data += 0.02 * torch.randn_like(parameter)
    with torch.no_grad(), regard.record(model, tokenizer=WordTokenizer()) as records:
        sequences = model.generate(PROMPT[:1], attention_mask=torch.ones(1, 9), assistant_model=helper, **STEPS)
    check("window", records, sequences)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_generation_continues_a_given_cache(kind: str) -> None:
    model = build("window")
    make: dict[str, Callable[[], Any]] = {
        "dynamic": lambda: transformers.DynamicCache(config=model.config),
        "static": lambda: transformers.StaticCache(config=model.config, max_cache_len=40),
    }
    cache, ids = make[kind](), PROMPT[:1]
    with torch.no_grad(), regard.record(model, tokenizer=WordTokenizer()) as records:
        model(ids[:, :6], past_key_values=cache)
        sequences = model.generate(ids, attention_mask=torch.ones_like(ids), past_key_values=cache, **STEPS)
    check("window", records, sequences)


def test_encoder_input_is_new_while_the_decoder_continues(small: Any) -> None:
    model, source = small.build(small.known["bart"]), torch.arange(5, 14)[None]
    with torch.no_grad(), regard.record(model, tokenizer=WordTokenizer()) as records:
        first = model(source, decoder_input_ids=torch.tensor([[1, 9, 8]]), use_cache=True)
        model(source, decoder_input_ids=torch.tensor([[7]]), past_key_values=first.past_key_values)
    encoder = records["model.encoder.layers.0.self_attn"]
    assert encoder.weights.shape == (1, 4, 9, 9)
    decoder = records["model.decoder.layers.0.self_attn"]
    written, read = decoder.labels_of(0)
    assert written is not None and list(written)[:3] == ["w9", "w8", "w7"] and read == ["w1", "w9", "w8", "w7"]
    assert records["model.decoder.layers.0.encoder_attn"].weights.shape == (1, 4, 4, 9)
