"""Activations of models that Regard did not build equal independent hooks, and can be replaced."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import regard
from regard import InputError

WIDTH, HEADS, SYMBOLS = 16, 4, 50
SIZES = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "num_hidden_layers": 2, "intermediate_size": 20}


def ids(seed: int = 0, steps: int = 7) -> Tensor:
    return torch.randint(2, SYMBOLS, (2, steps), generator=torch.Generator().manual_seed(seed))


def make(name: str) -> tuple[nn.Module, dict[str, Any], str]:
    """Return a model of transformers, its inputs, and the end of the names of its output projections."""
    transformers = pytest.importorskip("transformers", reason="needs the extra peers")
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    text, symbols = {"input_ids": ids()}, {"vocab_size": SYMBOLS}
    pair = {"input_ids": ids(), "decoder_input_ids": ids(1, 5)}
    bart = {"d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20}
    bart |= {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}
    gpt2 = {"n_embd": WIDTH, "n_head": HEADS, "n_layer": 2, "bos_token_id": 0, "eos_token_id": 0}
    grouped = {**SIZES, "num_key_value_heads": 2}
    classes: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
        "gpt2": ("GPT2", {**gpt2, **symbols}, text, "attn.c_proj"),
        "llama": ("Llama", {**grouped, **symbols}, text, "o_proj"),
        "qwen3": ("Qwen3", {**grouped, **symbols, "head_dim": 4}, text, "o_proj"),
        "bert": ("Bert", {**SIZES, **symbols}, text, "attention.output.dense"),
        "t5": (
            "T5",
            {"d_model": WIDTH, "d_kv": 4, "num_heads": HEADS, "num_layers": 2, "d_ff": 20, **symbols},
            pair,
            ".o",
        ),
        "bart": ("Bart", {**bart, **symbols}, pair, "out_proj"),
        "vit": ("ViT", {**SIZES, "image_size": 16, "patch_size": 8}, {"pixel_values": pixels}, "o_proj"),
    }
    kind, options, inputs, projection = classes[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**options)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    return model, inputs, projection


@contextmanager
def kernel_calls() -> Iterator[list[tuple[Tensor, ...]]]:
    """Yield a list of query, key, value and context of each call of the fused kernel."""
    calls: list[tuple[Tensor, ...]] = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            if function is F.scaled_dot_product_attention:
                calls.append((*args[:3], result))
            return result

    with Mode():
        yield calls


ARCHITECTURES = ["gpt2", "llama", "qwen3", "bert", "t5", "bart", "vit"]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_transformers_models(name: str) -> None:
    model, inputs, projection = make(name)
    names = regard.activation_names(model, **inputs)
    assert not names.left_out
    read: dict[str, tuple[Tensor, Tensor]] = {}
    hooks = [
        module.register_forward_hook(lambda m, args, output, path=path: read.__setitem__(path, (args[0], output)))
        for path, module in model.named_modules()
        if path.endswith((projection, "attention.o_proj", "attention.output.dense"))
    ]
    with torch.no_grad(), kernel_calls() as calls:
        plain = model(**inputs, output_hidden_states=True)
    for hook in hooks:
        hook.remove()
    with torch.no_grad(), regard.record(model, "*") as cache:
        again = model(**inputs)
    assert not cache.left_out and set(cache) == set(names)
    torch.testing.assert_close(again.last_hidden_state, plain.last_hidden_state, atol=1e-6, rtol=0)
    layers = [name.removesuffix(".z") for name in names if name.endswith(".z")]
    assert len(layers) == len(read)
    for layer, (states, output) in zip(layers, read.values(), strict=True):
        torch.testing.assert_close(cache[f"{layer}.z"].flatten(2), states, atol=0, rtol=0)
        torch.testing.assert_close(cache[f"{layer}.out"], output, atol=0, rtol=0)
        weights, value = cache[f"{layer}.weights"], cache[f"{layer}.v"].transpose(1, 2)
        context = weights @ value.repeat_interleave(HEADS // value.shape[1], 1)
        torch.testing.assert_close(context.transpose(1, 2), cache[f"{layer}.z"], atol=1e-6, rtol=0)
        seen = [
            call
            for call in calls
            if call[3].shape == context.shape
            if torch.allclose(call[3].transpose(1, 2), cache[f"{layer}.z"], atol=0, rtol=0)
        ]
        if calls:  # T5 has its own kernel
            query, key, value, _ = seen[0]
            for kind, expected in (("q", query), ("k", key), ("v", value)):
                value = cache[f"{layer}.{kind}"].transpose(1, 2)
                value = value.repeat_interleave(HEADS // value.shape[1], 1) if expected.shape[1] == HEADS else value
                torch.testing.assert_close(value, expected, atol=0, rtol=0)
    states = getattr(plain, "encoder_hidden_states", None) or plain.hidden_states
    side = "encoder.layer" if "encoder.layer.0.resid_pre" in names else "layer"
    torch.testing.assert_close(cache[f"{side}.0.resid_pre"], states[0], atol=0, rtol=0)
    torch.testing.assert_close(cache[f"{side}.0.resid_post"], states[1], atol=0, rtol=0)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "bart", "vit"])
def test_replacing(name: str) -> None:
    model, inputs, _projection = make(name)
    with torch.no_grad():
        plain = model(**inputs).last_hidden_state
        for activation in regard.activation_names(model, **inputs):
            with regard.replace(model, activation, lambda value: value):
                torch.testing.assert_close(model(**inputs).last_hidden_state, plain, atol=0, rtol=0)
            with regard.replace(model, activation, torch.clone):
                torch.testing.assert_close(model(**inputs).last_hidden_state, plain, atol=1e-6, rtol=0)
            with regard.replace(model, activation, torch.zeros_like):
                changed = model(**inputs).last_hidden_state
            assert not torch.equal(changed, plain), activation
            if activation.endswith((".z", ".weights", ".v")):
                layer = activation.rpartition(".")[0]
                with regard.replace(model, f"{layer}.z", torch.zeros_like):
                    torch.testing.assert_close(model(**inputs).last_hidden_state, changed, atol=1e-6, rtol=0)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_a_softmax_in_float32_in_a_model_of_float64_has_scores_and_no_warning(implementation: str) -> None:
    model: Any
    model, inputs, _ = make("llama")
    model.double()
    model.set_attn_implementation(implementation)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        with regard.record(model, "*") as cache:
            model(**inputs)
    weights = cache["layer.1.weights"]
    scores = cache["layer.1.scores"].masked_fill(weights == 0, -torch.inf)
    torch.testing.assert_close(scores.softmax(-1), weights, atol=1e-6, rtol=0)


def test_gradients_flow_through_external_activations() -> None:
    model, inputs, _ = make("llama")
    with regard.record(model, "layer.0.*") as cache:
        model(**inputs).last_hidden_state.square().sum().backward(retain_graph=True)
        output = model(**inputs).last_hidden_state.square().sum()
    for kind in ("resid_pre", "q", "k", "v", "z", "out", "mlp_out", "resid_post"):
        [gradient] = torch.autograd.grad(output, [cache[f"layer.0.{kind}"]], retain_graph=True)
        assert gradient.abs().sum() > 0, kind
    assert cache["layer.0.weights"].requires_grad


@pytest.mark.parametrize("batch_first", [True, False])
def test_layers_of_pytorch(batch_first: bool) -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors need batch_first
        model = nn.Transformer(WIDTH, HEADS, 2, 2, 20, batch_first=batch_first).eval()
    source, target = torch.randn(2, 7, WIDTH), torch.randn(2, 5, WIDTH)
    inputs = (source, target) if batch_first else (source.transpose(0, 1), target.transpose(0, 1))
    names = regard.activation_names(model, *inputs)
    assert not names.left_out and len(names) == 2 * 10 + 2 * 17
    with torch.no_grad(), regard.record(model, "*") as cache:
        output = model(*inputs)
    layer = model.decoder.layers[0].multihead_attn
    prefix = "decoder.layer.0.cross"
    query = F.linear(cache[f"{prefix}.q"].flatten(2), torch.eye(WIDTH))
    torch.testing.assert_close(cache[f"{prefix}.q"].shape, torch.Size([2, 5, HEADS, WIDTH // HEADS]))
    key = F.linear(cache["encoder.layer.1.resid_post"], torch.eye(WIDTH))
    key = F.linear(
        model.encoder.norm(key), layer.in_proj_weight[WIDTH : 2 * WIDTH], layer.in_proj_bias[WIDTH : 2 * WIDTH]
    )
    torch.testing.assert_close(cache[f"{prefix}.k"].flatten(2), key, atol=1e-6, rtol=0)
    scores = cache[f"{prefix}.scores"]
    torch.testing.assert_close(scores.softmax(-1), cache[f"{prefix}.weights"], atol=1e-6, rtol=0)
    assert query.shape == (2, 5, WIDTH)
    out = F.linear(cache[f"{prefix}.z"].flatten(2), layer.out_proj.weight, layer.out_proj.bias)
    torch.testing.assert_close(cache[f"{prefix}.out"], out, atol=1e-6, rtol=0)
    with torch.no_grad():
        torch.testing.assert_close(model(*inputs), output, atol=1e-5, rtol=0)
        for name in names:
            with regard.replace(model, name, lambda value: value):
                torch.testing.assert_close(model(*inputs), output, atol=1e-5, rtol=0)
        with regard.replace(model, f"{prefix}.v", torch.zeros_like):
            first = model(*inputs)
        with regard.replace(model, f"{prefix}.z", torch.zeros_like):
            torch.testing.assert_close(model(*inputs), first, atol=1e-6, rtol=0)
        assert not torch.allclose(first, output)


class Custom(nn.Module):
    """A block that calls the kernel itself, or computes the softmax itself."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused, self.norm = fused, nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 20), nn.ReLU(), nn.Linear(20, WIDTH))

    def forward(self, states: Tensor) -> Tensor:
        parts = self.qkv(self.norm(states)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        if self.fused:
            context = F.scaled_dot_product_attention(*parts)
        else:
            context = (parts[0] @ parts[1].mT / 2).softmax(-1) @ parts[2]
        states = states + self.proj(context.transpose(1, 2).flatten(2))
        return states + self.mlp(states)


def test_custom_modules() -> None:
    torch.manual_seed(0)
    for fused in (True, False):
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sequential(*(Custom(fused) for _ in range(2)))).eval()
        states = torch.randn(2, 5, WIDTH)
        names = regard.activation_names(model, states)
        prefix = next(name for name in names if name.endswith("weights")).rpartition(".")[0]
        expected = {"weights"} if not fused else {"q", "k", "v", "scores", "weights", "z", "out"}
        assert {name.rpartition(".")[2] for name in names if name.startswith(prefix)} >= expected
        assert fused or any("own code" in reason or "sees" in reason for reason in names.left_out.values())
        plain = model(states)
        with regard.replace(model, f"{prefix}.weights", lambda weights: weights * 0):
            assert not torch.allclose(model(states), plain)


def test_names_of_other_models_need_inputs() -> None:
    with pytest.raises(InputError, match="give its inputs"):
        regard.activation_names(nn.TransformerEncoderLayer(WIDTH, HEADS))
