"""A record has the rows of all steps, or a warning names the missing steps."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard

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
            part.unflatten(-1, (2, 4)).transpose(1, 2)
            for part in self.project(self.embedding(tokens)).chunk(3, dim=-1)
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
    transformers = pytest.importorskip("transformers")
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


def llama() -> Any:
    """Return a small language model."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(num_hidden_layers=1, intermediate_size=32, **sizes)
    return transformers.LlamaForCausalLM(config).eval()


def continued(model: Any) -> None:
    """Generate after a cached prefix."""
    cache = model(TOKENS[:, :4]).past_key_values
    model.generate(TOKENS, past_key_values=cache, **GREEDY)


RUNS: dict[str, Callable[[Any], object]] = {
    "at once": lambda model: model.generate(TOKENS, **GREEDY),
    "chunks": lambda model: model.generate(TOKENS, prefill_chunk_size=2, **GREEDY),
    "static": lambda model: model.generate(TOKENS, cache_implementation="static", **GREEDY),
    "no cache": lambda model: model.generate(TOKENS, use_cache=False, **GREEDY),
    "beams": lambda model: model.generate(TOKENS, num_beams=3, **GREEDY),
    "embeddings": lambda model: model.generate(inputs_embeds=model.get_input_embeddings()(TOKENS), **GREEDY),
    "continued": continued,
}


@pytest.mark.parametrize("name", RUNS)
def test_generation_gives_all_rows(name: str) -> None:
    model = llama()
    with torch.no_grad(), regard.record(model) as records, warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*(rows|recorded)")
        RUNS[name](model)
    assert records["model.layers.0.self_attn"].weights.shape == (2, 2, 10, 10)


def test_steps_before_the_recording_are_named() -> None:
    model = llama()
    with torch.no_grad():
        cache = model(TOKENS[:, :4]).past_key_values
        with pytest.warns(UserWarning, match="no rows for steps 0 to 3"), regard.record(model) as records:
            model.generate(TOKENS, past_key_values=cache, **GREEDY)
    assert records["model.layers.0.self_attn"].weights.shape == (2, 2, 6, 10)
