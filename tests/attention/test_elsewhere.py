"""Layers can be exported, copied and used in `vmap`; parts equal the implementations of other packages."""

import copy
import importlib.util
import math
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import record
from regard.attention.blocks import Encoder
from regard.attention.layer import Attention, LayerCall, trace_layer
from regard.attention.multihead import MultiHeadAttention
from regard.attention.parts import AttentionKind, LayerSizes
from regard.attention.positions import Alibi, T5Bias
from regard.attention.scores import SCORES, Additive
from regard.errors import InputError

SIZES = {0: torch.export.Dim("batch"), 1: torch.export.Dim("time")}


class Causal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = MultiHeadAttention(8, 4, groups=2, rotary=True)

    def forward(self, states: Tensor) -> Tensor:
        return self.layer(states, causal=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layer", [Causal(), MultiHeadAttention(8, 2, score=Additive)], ids=["causal", "additive"])
def test_exported_for_any_batch_and_length(layer: nn.Module) -> None:
    exported = torch.export.export(layer, (torch.randn(3, 5, 8),), dynamic_shapes=(SIZES,)).module()
    for shape in ((2, 9, 8), (7, 4, 8)):
        states = torch.randn(shape)
        torch.testing.assert_close(exported(states), layer(states), atol=1e-6, rtol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_a_stack_with_padding_is_exported_for_any_size() -> None:
    encoder = Encoder(1, 8, 2, 16)
    given = torch.randn(3, 5, 8), torch.ones(3, 5, dtype=torch.bool)
    exported = torch.export.export(encoder, given, dynamic_shapes=(SIZES, SIZES)).module()
    states, padding = torch.randn(4, 6, 8), torch.rand(4, 6) > 0.3
    torch.testing.assert_close(exported(states, padding), encoder(states, padding), atol=1e-6, rtol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SCORES)
def test_layers_work_under_vmap(name: str, generator: torch.Generator) -> None:
    layer = Attention(SCORES[name](8))
    queries, keys = torch.randn(3, 2, 4, 8, generator=generator), torch.randn(3, 2, 5, 8, generator=generator)
    found = torch.vmap(lambda query, key: layer(query, key, key))(queries, keys)
    expected = torch.stack([layer(query, key, key) for query, key in zip(queries, keys, strict=True)])
    torch.testing.assert_close(found, expected)


def test_several_energies_at_once(generator: torch.Generator) -> None:
    layers = [Attention(Additive(6)) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(layers)
    states = torch.randn(2, 4, 6, generator=generator)

    def call(own: dict[str, Tensor], rest: dict[str, Tensor]) -> Tensor:
        found: Tensor = torch.func.functional_call(layers[0], (own, rest), (states, states, states))
        return found

    found = torch.vmap(call)(parameters, buffers)
    expected = torch.stack([layer(states, states, states) for layer in layers])
    torch.testing.assert_close(found, expected)


def test_copies_have_no_hooks() -> None:
    layer = MultiHeadAttention(8, 2)
    with record(layer) as records:
        copies = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), copy.copy(layer)]
        for each in copies:
            each(torch.randn(1, 3, 8))
        assert not records and all(each.hook is None for each in copies)
        layer(torch.randn(1, 3, 8))
    assert len(records) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"heads": 0}, "heads 0 is out of range: choose from 1"),
        ({"heads": -2}, "heads -2 is out of range"),
        ({"heads": 2, "head_width": 0}, "head_width 0 is out of range"),
        ({"heads": 4, "groups": 0}, "groups 0 is out of range: choose from 1 to 4"),
        ({"heads": 4, "groups": 8}, "groups 8 is out of range"),
        ({"heads": 2.0}, "heads 2.0 is of type float: give int"),
        ({"heads": 3}, "width 8 cannot be split into 3 heads: choose a multiple of 3, or a head_width"),
        ({"heads": 4, "groups": 3}, "heads 4 cannot share 3 groups of keys: choose a number of groups that divides 4"),
    ],
)
def test_arguments_are_checked(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        MultiHeadAttention(8, **given)


WIDTH, HEADS, TIME = 32, 4, 12
close: dict[str, Any] = {"atol": 1e-5, "rtol": 0}


def peer(name: str) -> Any:
    """Return a module of another package, or skip the test."""
    return pytest.importorskip(name)


def fla(path: str) -> Any:
    """Return a file of flash-linear-attention, whose other files need Triton."""
    spec = importlib.util.find_spec("fla")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("flash-linear-attention is not installed")
    pytest.importorskip("einops")
    file = Path(spec.submodule_search_locations[0]) / "ops" / path
    name = f"fla_{file.parent.name}"
    source = importlib.util.spec_from_file_location(name, file)
    assert source is not None
    assert source.loader is not None
    module = importlib.util.module_from_spec(source)
    sys.modules[name] = module
    source.loader.exec_module(module)
    return module


def run(text: str, kind: AttentionKind = "causal", **options: Any) -> tuple[MultiHeadAttention, Tensor, LayerCall]:
    """Return a layer with random parameters, its inputs (2, T, D), and the tensors inside it."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(WIDTH, HEADS, mechanism=text, kind=kind, **options).eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3 if parameter.dim() > 1 else 1.0)
    states = torch.randn(2, TIME, WIDTH)
    with trace_layer(layer) as calls, torch.no_grad():
        layer(states)
    return layer, states, calls[0]


def attend(layer: MultiHeadAttention, inside: LayerCall, bias: Tensor | None = None, **options: Any) -> Tensor:
    """Return the context that x-transformers computes from the queries, keys and values of a layer."""
    module = peer("x_transformers.attend")
    core = module.Attend(causal=layer.kind == "causal", heads=HEADS, **options)
    return core, core(inside.query, inside.key, inside.value, attn_bias=bias)[0]  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("softmax", {}),
        ("soft_capped:2", {"softclamp_logits": True, "logit_softclamp_value": 2.0}),
        ("topk:3", {"sparse_topk": 3}),
        ("softmax_one", {"add_zero_kv": True}),
    ],
)
def test_scores_and_normalizers_of_x_transformers(text: str, options: dict[str, Any]) -> None:
    kind: AttentionKind = "self" if text == "softmax_one" else "causal"  # its added key makes its causal mask too wide
    layer, _, inside = run(text, kind)
    torch.testing.assert_close(inside.context, attend(layer, inside, **options)[1], **close)


def test_selective_attention_of_x_transformers() -> None:
    layer, _, inside = run("selective")
    assert (inside.weights < 1e-4).float().mean() > 0.5  # the selection acts
    torch.testing.assert_close(inside.context, attend(layer, inside, selective=True)[1], **close)


def test_sigmoid_attention_of_x_transformers() -> None:
    """There, a bias stands for the logarithm of the number of keys."""
    layer, _, inside = run("sigmoid", "self")
    bias = torch.full((HEADS, TIME, TIME), -math.log(TIME))
    torch.testing.assert_close(inside.context, attend(layer, inside, bias, sigmoid=True)[1], **close)


def test_learned_sinks_of_x_transformers_and_gpt_oss() -> None:
    layer, _, inside = run("sink")
    module = peer("x_transformers.attend")
    core = module.Attend(causal=True, heads=HEADS, head_learned_sink=True)
    core.head_attn_sink.data.copy_(layer.normalizer.sink)  # type: ignore[union-attr]
    context = core(inside.query, inside.key, inside.value)[0]
    torch.testing.assert_close(inside.context, context, **close)
    gpt = peer("transformers.models.gpt_oss.modeling_gpt_oss")
    owner = SimpleNamespace(num_key_value_groups=1, sinks=layer.normalizer.sink, training=False)  # type: ignore[union-attr]
    scale = inside.query.shape[-1] ** -0.5
    expected = gpt.eager_attention_forward(owner, inside.query, inside.key, inside.value, causal(), scaling=scale)
    torch.testing.assert_close(inside.context, expected[0].transpose(1, 2), **close)


def causal() -> Tensor:
    """Return a causal mask of numbers, (T, T)."""
    return torch.zeros(TIME, TIME).masked_fill(torch.ones(TIME, TIME).triu(1).bool(), torch.finfo(torch.float32).min)


def test_soft_capped_scores_of_grouped_heads_of_gemma2() -> None:
    layer, states, inside = run("soft_capped:2,grouped:2")
    gemma = peer("transformers.models.gemma2.modeling_gemma2")
    owner = SimpleNamespace(num_key_value_groups=2, training=False, head_dim=8)
    split = [projection(states).unflatten(-1, (-1, 8)).transpose(1, 2) for projection in (layer.key, layer.value)]
    assert split[0].shape[1] == 2
    expected = gemma.eager_attention_forward(owner, inside.query, *split, causal(), softcap=2.0)
    torch.testing.assert_close(inside.context, expected[0].transpose(1, 2), **close)


def test_cosine_scores_of_x_transformers() -> None:
    layer, states, inside = run("cosine")
    module = peer("x_transformers.x_transformers")
    with torch.no_grad():
        layer.score.gain.fill_(10.0)  # type: ignore[operator]
    other = module.Attention(WIDTH, dim_head=8, heads=HEADS, causal=True, qk_norm=True, qk_norm_scale=10)
    copy_projections(layer, other)
    torch.testing.assert_close(layer(states), other(states), **close)
    assert inside.key.norm(dim=-1).allclose(torch.ones(1))


def copy_projections(layer: MultiHeadAttention, other: Any) -> None:
    """Copy the projections of a layer to one of x-transformers."""
    pairs = {"to_q": layer.query, "to_k": layer.key, "to_v": layer.value, "to_out": layer.output}
    for name, projection in pairs.items():
        getattr(other, name).weight.data.copy_(projection.weight)


@pytest.mark.parametrize("text", ["output_gate", "head_gate", "multi_query"])
def test_gates_and_shared_keys_of_x_transformers(text: str) -> None:
    layer, states, _ = run(text)
    module = peer("x_transformers.x_transformers")
    options = {"gate_values": "gate" in text, "gate_values_headwise": text == "head_gate"}
    one = {"one_kv_head": True} if text == "multi_query" else {}
    other = module.Attention(WIDTH, dim_head=8, heads=HEADS, causal=True, **options, **one)
    copy_projections(layer, other)
    if layer.gate is not None:
        other.to_v_gate.bias.data.zero_() if other.to_v_gate.bias is not None else None
        other.to_v_gate.weight.data.copy_(layer.gate.gate.weight)
    torch.testing.assert_close(layer(states), other(states), **close)


def test_talking_heads_of_x_transformers() -> None:
    """There, the mixture is added to the scores."""
    layer, _, inside = run("talking_heads")
    module = peer("x_transformers.attend")
    core = module.Attend(causal=True, heads=HEADS, pre_talking_heads=True, post_talking_heads=True)
    part: Any = layer.combination
    core.pre_softmax_talking_heads.weight.data.copy_((part.scores - torch.eye(HEADS))[:, :, None, None])
    core.post_softmax_talking_heads.weight.data.copy_(part.weights[:, :, None, None])
    torch.testing.assert_close(inside.context, core(inside.query, inside.key, inside.value)[0], **close)


def sizes(kind: AttentionKind, heads: int = 8) -> LayerSizes:
    return LayerSizes(width=64, memory_width=64, heads=heads, head_width=8, kind=kind)


def test_alibi_of_x_transformers_and_bloom() -> None:
    steps = torch.arange(20)
    biases = Alibi(sizes("causal"))(steps.unsqueeze(1), steps.unsqueeze(0)).float()
    module = peer("x_transformers.x_transformers")
    torch.testing.assert_close(biases, module.AlibiPositionalBias(8)(20, 20), **close)
    bloom = peer("transformers.models.bloom.modeling_bloom")
    last = bloom.build_alibi_tensor(torch.ones(1, 20), 8, torch.float32)[:, 0]
    torch.testing.assert_close(biases[:, -1] - biases[:, -1, :1], last, **close)  # equal after the softmax


@pytest.mark.parametrize("kind", ["causal", "self"])
@pytest.mark.parametrize("numbers", [(32, 128), (16, 64), (8, 1000)])
def test_t5_biases_of_x_transformers_and_transformers(kind: AttentionKind, numbers: tuple[int, int]) -> None:
    buckets, farthest = numbers
    part = T5Bias(sizes(kind), buckets, farthest)
    torch.nn.init.normal_(part.bias)
    distances = torch.arange(-2000, 2000)
    t5 = peer("transformers.models.t5.modeling_t5").T5Attention
    expected = t5._relative_position_bucket(-distances, kind == "self", buckets, farthest)
    assert torch.equal(part.bucket(distances), expected)
    module = peer("x_transformers.x_transformers")
    other = module.RelativePositionBias(1.0, kind == "causal", buckets, farthest, heads=8)
    other.relative_attention_bias.weight.data.copy_(part.bias.t())
    steps = torch.arange(200)
    torch.testing.assert_close(part(steps.unsqueeze(1), steps.unsqueeze(0)), other(200, 200), **close)


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_rotary_positions_of_gpt_j(fraction: float) -> None:
    layer, states, inside = run(f"rotary:10000:{fraction}")
    gpt = peer("transformers.models.gptj.modeling_gptj")
    width = int(8 * fraction)
    sin, cos = gpt.create_sinusoidal_positions(TIME, width).split(width // 2, dim=1)
    query = layer.query(states).unflatten(-1, (HEADS, -1))
    rotated = gpt.apply_rotary_pos_emb(query[..., :width], sin.unsqueeze(0), cos.unsqueeze(0))
    expected = torch.cat([rotated, query[..., width:]], dim=-1).transpose(1, 2)
    torch.testing.assert_close(inside.query, expected, **close)


def test_windows_of_transformers() -> None:
    _, _, inside = run("window:3")
    masks = peer("transformers.masking_utils")
    allowed = masks.sliding_window_causal_mask_function(3)
    steps = torch.arange(TIME)
    expected = allowed(0, 0, steps.unsqueeze(1), steps.unsqueeze(0))
    assert torch.equal(inside.weights[0, 0] > 0, expected)


def test_differential_attention_of_diff_llama() -> None:
    """There, a head of ours is a pair of heads, and the initial factor of a deep layer is 0.8."""
    layer, states, _ = run("differential")
    llama = peer("transformers.models.diffllama.modeling_diffllama")
    config = llama.DiffLlamaConfig(
        hidden_size=WIDTH, num_attention_heads=2 * HEADS, num_key_value_heads=2 * HEADS, rms_norm_eps=1e-5
    )
    config._attn_implementation = "eager"
    other = llama.DiffLlamaAttention(config, layer_idx=1000)
    part: Any = layer.combination
    torch.nn.init.ones_(part.norm.weight)
    with torch.no_grad():
        for name in ("query", "key", "value"):
            rows = getattr(layer, name).weight.unflatten(0, (HEADS, 2, -1)).transpose(0, 1).flatten(0, 2)
            getattr(other, f"{name[0]}_proj").weight.copy_(rows)
        other.o_proj.weight.copy_(layer.output.weight)
        for name, ours in (("q1", "query_first"), ("k1", "key_first"), ("q2", "query_second"), ("k2", "key_second")):
            getattr(other, f"lambda_{name}").copy_(getattr(part, ours))
        positions = torch.ones(1, TIME, 4), torch.zeros(1, TIME, 4)  # rotations by zero
        expected = other(states, positions, causal()[None, None])[0]
        torch.testing.assert_close(layer(states), expected, **close)


@pytest.mark.parametrize("name", ["sparsemax", "entmax"])
@pytest.mark.parametrize("kind", ["causal", "self"])
def test_normalizers_of_the_entmax_package(name: str, kind: AttentionKind) -> None:
    module = peer("entmax")
    _, _, inside = run(name, kind)
    scores = inside.scores
    if kind == "causal":
        scores = scores.masked_fill(torch.ones(TIME, TIME).triu(1).bool(), -1e9)
    expected = (module.sparsemax if name == "sparsemax" else module.entmax15)(scores, dim=-1)
    torch.testing.assert_close(inside.weights, expected, **close)
    assert (expected == 0).float().mean() > 0.6


@pytest.mark.parametrize("name", ["sparsemax", "entmax"])
def test_gradients_of_the_entmax_package(name: str) -> None:
    module = peer("entmax")
    layer, _, inside = run(name, "self")
    torch.manual_seed(1)
    upper = torch.randn_like(inside.scores)
    assert layer.normalizer is not None
    gradients = []
    for function in (
        lambda scores: layer.normalizer(scores, None),
        lambda scores: (module.sparsemax if name == "sparsemax" else module.entmax15)(scores, dim=-1),
    ):
        scores = inside.scores.clone().requires_grad_()
        function(scores).backward(upper)
        gradients.append(scores.grad)
    torch.testing.assert_close(*gradients, **close)


@pytest.mark.parametrize("name", ["forgetting", "gated_linear"])
def test_gates_of_flash_linear_attention(name: str) -> None:
    layer, states, inside = run(name)
    part: Any = layer.combination if name == "forgetting" else layer.linear
    heads = [states.transpose(1, 2) for states in (inside.query, inside.key, inside.value)]
    gates = F.logsigmoid(part.gate(states) + part.offset)
    if name == "gated_linear":
        context = fla("simple_gla/naive.py").naive_recurrent_simple_gla(*heads, gates)[0]
    else:
        naive = fla("forgetting_attn/naive.py").naive_forgetting_attn
        context, windowed = naive(*heads, gates), run("forgetting,window:3")[2].context.transpose(1, 2)
        torch.testing.assert_close(windowed, naive(*heads, gates, window_size=3), **close)
    torch.testing.assert_close(inside.context.transpose(1, 2), context, **close)


def test_linear_attention_of_flash_linear_attention() -> None:
    _, _, inside = run("linear")
    naive = fla("linear_attn/naive.py").naive_recurrent_linear_attn
    query, key = (F.elu(part.transpose(1, 2)) + 1 for part in (inside.query, inside.key))
    expected = naive(query, key, inside.value.transpose(1, 2), normalize=True)[0]
    torch.testing.assert_close(inside.context.transpose(1, 2), expected, **close)


def test_the_delta_rule_of_flash_linear_attention() -> None:
    """There, the queries are also divided by the root of the head width."""
    layer, states, inside = run("delta_rule")
    naive = fla("delta_rule/naive.py").delta_rule_recurrence
    query, key = (F.normalize(F.silu(part), dim=-1) for part in (inside.query, inside.key))
    part: Any = layer.linear
    rates = part.rate(states).sigmoid().transpose(1, 2)
    expected = naive(query * 8**0.5, key, inside.value, rates)[0]
    torch.testing.assert_close(inside.context, expected, **close)
