"""Rows of generated tokens equal the rows of a single pass over the whole result without a cache, or a warning
names the missing steps.
"""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_models import GROUPED
from torch import Tensor, nn

import regard
from tests.external.test_token_labels import NumberTokenizer

transformers = pytest.importorskip("transformers", reason="needs the extra peers")
pytestmark = pytest.mark.filterwarnings("ignore")

SIZES = GROUPED | {"vocab_size": 99, "num_hidden_layers": 3, "max_position_embeddings": 128}
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
    """Compare records with the weights that the model returns; the first sequence has `padded` steps."""
    read = sequences[:, :-1]
    there = torch.ones_like(read)
    there[0, :padded] = 0
    inputs = {"input_ids": read, "attention_mask": there, "position_ids": (there.cumsum(1) - 1).clamp(min=0)}
    with torch.no_grad():
        expected = build(name, "eager")(**inputs, output_attentions=True, use_cache=False).attentions
    assert len(records) == len(expected)
    labels = ["<pad>" if not step else str(token) for token, step in zip(read[0].tolist(), there[0], strict=True)]
    for record, weights in zip(records.values(), expected, strict=True):
        assert record.weights.shape == weights.shape
        sees = there[:, None, :, None]
        torch.testing.assert_close(record.weights * sees, weights * sees, atol=1e-5, rtol=0)
        assert record.labels_of(0) == (labels, labels)


QUICK = [("full", "guidance"), ("full", "lookup"), ("window", "static"), ("window", "beams"), ("shared keys", "greedy")]


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
    with torch.no_grad(), regard.record(model, tokenizer=NumberTokenizer()) as records:
        sequences = model.generate(prompt, attention_mask=torch.ones_like(prompt), **STEPS, **WAYS[way])
    check(name, records, sequences)


@pytest.mark.parametrize("way", ["greedy", "static"])
def test_padding_keeps_its_label(way: str) -> None:
    model, there = build("window"), torch.ones_like(PROMPT)
    there[0, :3] = 0
    with torch.no_grad(), regard.record(model, tokenizer=NumberTokenizer()) as records:
        sequences = model.generate(PROMPT, attention_mask=there, **STEPS, **WAYS[way])
    check("window", records, sequences, padded=3)


def test_rejected_drafts_of_an_assistant_leave_no_rows() -> None:
    model, helper = build("window"), build("window")
    for parameter in helper.parameters():
        parameter.data += 0.02 * torch.randn_like(parameter)
    with torch.no_grad(), regard.record(model, tokenizer=NumberTokenizer()) as records:
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
    with torch.no_grad(), regard.record(model, tokenizer=NumberTokenizer()) as records:
        model(ids[:, :6], past_key_values=cache)
        sequences = model.generate(ids, attention_mask=torch.ones_like(ids), past_key_values=cache, **STEPS)
    check("window", records, sequences)


def test_encoder_input_is_new_while_the_decoder_continues(small: Any) -> None:
    model, source = small.build(small.known["bart"]), torch.arange(5, 14)[None]
    with torch.no_grad(), regard.record(model, tokenizer=NumberTokenizer()) as records:
        first = model(source, decoder_input_ids=torch.tensor([[1, 9, 8]]), use_cache=True)
        model(source, decoder_input_ids=torch.tensor([[7]]), past_key_values=first.past_key_values)
    encoder = records["model.encoder.layers.0.self_attn"]
    assert encoder.weights.shape == (1, 4, 9, 9)
    decoder = records["model.decoder.layers.0.self_attn"]
    written, read = decoder.labels_of(0)
    assert written is not None and list(written)[:3] == ["9", "8", "7"] and read == ["1", "9", "8", "7"]
    assert records["model.decoder.layers.0.encoder_attn"].weights.shape == (1, 4, 4, 9)


TOKENS = torch.tensor([[5, 9, 7, 12, 6, 8], [7, 7, 11, 5, 20, 9]])
GREEDY = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "pad_token_id": 0}


class Cached(nn.Module):
    """A decoder layer that keeps its own cache, of all steps or of the last `window` steps."""

    def __init__(self, window: int | None = None) -> None:
        super().__init__()
        self.embedding, self.project = nn.Embedding(60, 8), nn.Linear(8, 24)
        self.window = window
        self.cache: tuple[Tensor, Tensor] | None = None

    def forward(self, tokens: Tensor, *, fresh: bool = False) -> Tensor:
        """Return the contexts (B, H, T, D) of new tokens; `fresh` begins new sequences."""
        query, key, value = (
            part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.project(self.embedding(tokens)).chunk(3, dim=-1)
        )
        if self.cache is not None and not fresh:
            key, value = (torch.cat(parts, dim=2) for parts in zip(self.cache, (key, value), strict=True))
        if self.window is not None:
            key, value = key[:, :, -self.window :], value[:, :, -self.window :]
        self.cache = key, value
        mask = torch.ones(query.shape[2], key.shape[2]).tril(key.shape[2] - query.shape[2]).bool()
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


@pytest.fixture
def cached() -> Cached:
    """A layer with a cache of all steps."""
    torch.manual_seed(0)
    return Cached()


@pytest.mark.parametrize("lengths", [[6], [2, 4], [1] * 6, [3, 1, 1, 1]])
@pytest.mark.parametrize("options", [{}, {"rows": [0, 1]}, {"heads": [1]}])
def test_a_cache_of_the_model(cached: Cached, lengths: list[int], options: dict[str, Any]) -> None:
    with warnings.catch_warnings(), regard.record(cached, **options) as records:
        warnings.simplefilter("error")
        for _ in range(2):  # the second sequence replaces the first
            for number, part in enumerate(TOKENS.split(lengths, dim=1)):
                cached(part, fresh=number == 0)
    with regard.record(cached, **options) as whole:
        cached(TOKENS, fresh=True)
    torch.testing.assert_close(records[""].weights, whole[""].weights)


def test_a_cache_that_drops_steps_is_named() -> None:
    model = Cached(window=4)
    with pytest.warns(UserWarning, match="1 step and 4 keys, and only this pass is recorded"):
        with regard.record(model) as records:
            model(TOKENS, fresh=True)
            model(TOKENS[:, :1])
        assert records[""].weights.shape == (2, 2, 1, 4)


def test_independent_passes_replace_each_other(cached: Cached) -> None:
    with warnings.catch_warnings(), regard.record(cached) as records:
        warnings.simplefilter("error")
        for length in (6, 4, 5):
            cached(TOKENS[:, :length], fresh=True)
    assert records[""].weights.shape == (2, 2, 5, 5)


@pytest.mark.filterwarnings("ignore:.*is not a recognized input")
def test_a_model_that_cuts_its_prompt_off() -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "hidden_size": 16, "num_attention_heads": 2, "dim_head": 8, "dim_ff": 32}
    kinds = {"num_hidden_layers": 2, "prompt_types": 4, "prompt_length": 4, "segment_types": 4}
    model = transformers.CpmAntForCausalLM(transformers.CpmAntConfig(**sizes, **kinds)).eval()
    captured: list[Tensor] = []
    softmaxes = [module for module in model.modules() if isinstance(module, nn.Softmax)]
    hooks = [each.register_forward_hook(lambda *call: captured.append(call[-1])) for each in softmaxes]
    with torch.no_grad(), regard.record(model) as records:
        model.generate(TOKENS[:1], eos_token_id=None, **GREEDY)
    for hook in hooks:
        hook.remove()
    assert len(records) == len(softmaxes) == 2
    for number, record in enumerate(records.values()):
        passes = captured[number::2]
        assert [part.shape[2] for part in passes] == [10, 1, 1, 1, 1]
        rows = [F.pad(part, (0, 14 - part.shape[-1])) for part in passes]
        torch.testing.assert_close(record.weights, torch.cat(rows, dim=2))


def continued(model: Any) -> None:
    """Generate after a cached prefix."""
    cache = model(TOKENS[:, :4]).past_key_values
    model.generate(TOKENS, past_key_values=cache, **GREEDY)


RUNS: dict[str, Callable[[Any], object]] = {
    "chunks": lambda model: model.generate(TOKENS, prefill_chunk_size=2, **GREEDY),
    "no cache": lambda model: model.generate(TOKENS, use_cache=False, **GREEDY),
    "embeddings": lambda model: model.generate(inputs_embeds=model.get_input_embeddings()(TOKENS), **GREEDY),
    "continued": continued,
}


@pytest.mark.parametrize("name", RUNS)
def test_generation_gives_all_rows(name: str) -> None:
    model = build("full")
    with torch.no_grad(), regard.record(model) as records, warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*(rows|recorded)")
        RUNS[name](model)
    assert records["model.layers.0.self_attn"].weights.shape == (2, 4, 10, 10)


def test_steps_before_the_recording_are_named() -> None:
    model = build("full")
    with torch.no_grad():
        cache = model(TOKENS[:, :4]).past_key_values
        with pytest.warns(UserWarning, match="no rows for steps 0 to 3"), regard.record(model) as records:
            model.generate(TOKENS, past_key_values=cache, **GREEDY)
    assert records["model.layers.0.self_attn"].weights.shape == (2, 4, 6, 10)
