"""Named activations equal independent hooks, and replacing them equals a change by a hook."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard import InputError
from regard.activations.interface import Activations
from regard.attention.blocks import DecoderLayer, EncoderLayer
from regard.attention.multihead import MultiHeadAttention
from regard.models.decoder_only import DecoderOnly, DecoderOnlyConfig

HEADS, WIDTH, STEPS = 2, 24, 6


def make_model(**options: Any) -> DecoderOnly:
    torch.manual_seed(0)
    config = DecoderOnlyConfig(**({"hidden": WIDTH, "heads": HEADS, "layers": 2, "inner": 20} | options))
    return DecoderOnly(config, symbols=11, longest=20).double().eval()


def tokens() -> Tensor:
    return torch.randint(1, 11, (3, STEPS), generator=torch.Generator().manual_seed(1))


def by_hooks(model: DecoderOnly, inputs: Tensor) -> dict[str, Tensor]:
    """Return all activations, from hooks on the modules and the equations."""
    read: dict[str, Tensor] = {}
    hooks = []

    def keep(name: str, form: Callable[[Any], Tensor]) -> Callable[..., None]:
        return lambda module, args, output: read.__setitem__(name, form((args, output)))

    blocks: list[Any] = list(model.decoder.layers)
    for number, block in enumerate(blocks):
        layer = block.self_attention
        for name, module in (("q", layer.query), ("k", layer.key), ("v", layer.value)):
            hooks.append(
                module.register_forward_hook(
                    keep(f"layer.{number}.{name}", lambda both: both[1].unflatten(-1, (-1, WIDTH // HEADS)))
                )
            )
        places: list[tuple[str, nn.Module, Callable[[Any], Tensor]]] = [
            ("z", layer.output, lambda both: both[0][0].unflatten(-1, (HEADS, -1))),
            ("out", layer.output, lambda both: both[1]),
            ("mlp_out", block.feed_forward, lambda both: both[1]),
            ("resid_pre", block, lambda both: both[0][0]),
            ("resid_post", block, lambda both: both[1].states),
        ]
        hooks += [module.register_forward_hook(keep(f"layer.{number}.{name}", form)) for name, module, form in places]
    model(inputs)
    for hook in hooks:
        hook.remove()
    for number, block in enumerate(blocks):
        query, key = (read[f"layer.{number}.{name}"].transpose(1, 2) for name in ("q", "k"))
        key = key.repeat_interleave(HEADS // key.shape[1], 1)
        scores = query @ key.mT * block.self_attention.head_width**-0.5
        read[f"layer.{number}.scores"] = scores
        future = torch.ones(STEPS, STEPS, dtype=torch.bool).triu(1)
        read[f"layer.{number}.weights"] = scores.masked_fill(future, -torch.inf).softmax(-1)
    return read


@pytest.mark.parametrize("options", [{}, {"key_value_heads": 1}, {"pre_norm": False}, {"norm": "rms", "bias": True}])
def test_activations_equal_independent_hooks(options: dict[str, Any]) -> None:
    model, inputs = make_model(**options), tokens()
    expected, names = by_hooks(model, inputs), regard.activation_names(model)
    assert set(names) == set(expected) and not names.left_out
    with regard.record(model, "*") as cache:
        output = model(inputs)
    torch.testing.assert_close(output, model(inputs), atol=1e-12, rtol=0)
    assert set(cache) == set(expected) and not cache.left_out
    for name, value in expected.items():
        torch.testing.assert_close(cache[name], value, atol=1e-12, rtol=0)
    for name in expected:
        with regard.record(model, name) as single:  # the fused kernel computes what it computes without a record
            assert name in ("scores", "weights") or model(inputs).shape == output.shape
        torch.testing.assert_close(single[name], expected[name], atol=1e-12, rtol=0)


def test_replacing_by_itself_changes_nothing_and_zeros_equal_a_hook() -> None:
    model, inputs = make_model(), tokens()
    plain = model(inputs)
    modules = {
        "z": lambda block: (block.self_attention.output, "before"),
        "out": lambda block: (block.self_attention.output, "after"),
        "mlp_out": lambda block: (block.feed_forward, "after"),
        "q": lambda block: (block.self_attention.query, "after"),
        "k": lambda block: (block.self_attention.key, "after"),
        "v": lambda block: (block.self_attention.value, "after"),
        "resid_pre": lambda block: (block, "before"),
    }
    for name in regard.activation_names(model):
        with regard.replace(model, name, lambda value: value):
            torch.testing.assert_close(model(inputs), plain, atol=1e-12, rtol=0)
        number, kind = int(name.split(".")[1]), name.split(".")[2]
        if kind not in modules:
            continue
        module, side = modules[kind](model.decoder.layers[number])
        if side == "before":
            hook: Any = module.register_forward_pre_hook(lambda module, args: (args[0] * 0, *args[1:]))
        else:
            hook = module.register_forward_hook(lambda module, args, output: output * 0)
        expected = model(inputs)
        hook.remove()
        with regard.replace(model, name, torch.zeros_like):
            torch.testing.assert_close(model(inputs), expected, atol=1e-12, rtol=0)
        assert not torch.allclose(expected, plain)


def test_scores_and_weights_are_replaced() -> None:
    model, inputs = make_model(), tokens()
    with regard.replace(model, "layer.1.scores", torch.zeros_like), regard.record(model, "layer.1.weights") as cache:
        changed = model(inputs)
    torch.testing.assert_close(cache["layer.1.weights"][0, 0, 1, :2], torch.tensor([0.5, 0.5]).double())
    with regard.intervene(model, "decoder.1.self_attention", to="uniform"):
        torch.testing.assert_close(changed, model(inputs), atol=1e-12, rtol=0)
    with regard.replace(model, "layer.1.weights", torch.zeros_like):
        zeroed = model(inputs)
    with regard.replace(model, "decoder.1.self_attention.z", torch.zeros_like):  # also the name in records
        torch.testing.assert_close(zeroed, model(inputs), atol=1e-12, rtol=0)


def test_gradients_flow_and_blocks_nest() -> None:
    model, inputs = make_model(), tokens()
    with regard.record(model, "layer.0.z") as cache:
        output = model(inputs)
    [gradient] = torch.autograd.grad(output.square().sum(), [cache["layer.0.z"]])
    moved = 1e-6 * torch.randn(gradient.shape, generator=torch.Generator().manual_seed(0)).double()
    with regard.replace(model, "layer.0.z", lambda z: z + moved):
        change = model(inputs).square().sum() - output.square().sum()
    torch.testing.assert_close((gradient * moved).sum(), change, rtol=1e-3, atol=0)
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    with (
        regard.replace(model, "layer.0.z", lambda z: z * scale),
        regard.replace(model, "layer.0.z", lambda z: z + 1),
        regard.record(model, "layer.0.z") as inner,
    ):
        model(inputs).sum().backward()
    assert scale.grad is not None and scale.grad.abs() > 0
    torch.testing.assert_close(inner["layer.0.z"], cache["layer.0.z"] + 1, atol=1e-12, rtol=0)
    assert inner["layer.0.z"].requires_grad
    assert not any(layer.hook for layer in model.modules() if isinstance(layer, MultiHeadAttention))


def test_no_grad_and_autocast() -> None:
    model, inputs = make_model().float(), tokens()
    with torch.no_grad(), regard.record(model, "*.z") as cache:
        model(inputs)
    assert not cache["layer.0.z"].requires_grad
    with torch.autocast("cpu", torch.bfloat16), regard.record(model, "*.z", "*.weights") as half:
        output = model(inputs)
    assert half["layer.0.z"].dtype == torch.bfloat16 and half["layer.0.weights"].dtype == torch.float32
    assert output.isfinite().all()


def test_steps_of_a_generation_are_joined() -> None:
    torch.manual_seed(0)
    layer, memory = DecoderLayer(12, 3, 24).double().eval(), torch.randn(1, 5, 12, dtype=torch.float64)
    states, past = torch.randn(1, 4, 12, dtype=torch.float64), None
    keys = layer.project(memory)
    with regard.record(layer, "*") as whole:
        layer(states, keys)
    with regard.record(layer, "*") as cache:
        for _repetition in range(2):  # the second generation replaces the first
            past = None
            for step in range(4):
                _, past = layer(states[:, step : step + 1], keys, past=past)
    assert len(cache) == len(whole) > 0
    for name, value in whole.items():
        allowed = torch.ones(4, 4).tril().bool() if value.shape[-2:] == (4, 4) else torch.ones(()).bool()
        expected = value.masked_fill(~allowed, -torch.inf if name.endswith("scores") else 0)
        torch.testing.assert_close(cache[name], expected, atol=1e-12, rtol=0)


def test_unknown_names_and_other_shapes_are_refused() -> None:
    layer = EncoderLayer(12, 3, 24)
    with pytest.raises(InputError, match="choose"), regard.record(layer, "layer.7.z"):
        pass
    with pytest.raises(InputError, match="keep the shape"), regard.replace(layer, "z", lambda z: z[..., :1]):
        layer(torch.zeros(1, 2, 12))
    with pytest.raises(InputError, match="select weights"):
        regard.record(layer, "z", heads=[0])  # type: ignore[call-overload]
    linear = MultiHeadAttention(12, 3, mechanism="linear")
    assert "recurrence" in regard.activation_names(linear).left_out["scores"]


def test_an_empty_cache_says_so() -> None:
    assert repr(Activations()) == "<Activations: nothing yet>"


@pytest.mark.slow
def test_recording_the_contexts_of_one_layer_costs_little() -> None:
    model, inputs = make_model(hidden=256, heads=8, layers=6, inner=1024).float(), tokens().repeat(8, 3)
    times: dict[bool, list[float]] = {True: [], False: []}
    with torch.no_grad():
        for turn in range(40):
            recorded = bool(turn % 2)
            with regard.record(model, "layer.3.z") if recorded else nullcontext():
                start = time.process_time()
                model(inputs)
                times[recorded].append(time.process_time() - start)
    assert min(times[True]) < 1.05 * min(times[False])
