"""Recording, and an intervention without effect, leave the outputs of every model unchanged.

Each model runs with each mask and each dtype, with and without each kind of recording. If outputs differ, a
warning reports the difference. Fully masked rows have zero weights, and gradients do not change.
"""

import contextlib
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.activations import transformers_attention as interface_inputs
from regard.attention.multihead import MultiHeadAttention
from tests.external.test_own_attention import Form, fused

B, T, D, H = 3, 6, 16, 4
MASKS = ("none", "causal", "padding", "blind")
LIMITS = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 1e-2, torch.float16: 1e-2}


def padding_of(mask: str) -> Tensor | None:
    """Return a padding mask, True = padding: some steps of the first sample, all steps of the last sample."""
    if mask in ("none", "causal"):
        return None
    padding = torch.zeros(B, T, dtype=torch.bool)
    padding[0, -2:] = True
    padding[-1] = mask == "blind"
    return padding


def causal_of(mask: str, kind: type = bool) -> Tensor | None:
    """Return a causal mask (T, T), True = forbidden."""
    return torch.ones(T, T, dtype=torch.bool).triu(1) if mask == "causal" else None


class Layer(nn.Module):
    """An attention layer that runs the function `call`."""

    def __init__(self, layer: nn.Module, call: Callable[[Any, Tensor, str], Tensor]) -> None:
        super().__init__()
        self.layer, self.call = layer, call

    def forward(self, states: Tensor, mask: str) -> Tensor:
        return self.call(self.layer, states, mask)


def of_regard(layer: Any, states: Tensor, mask: str) -> Tensor:
    padding = padding_of(mask)
    allowed = None if padding is None else ~padding[:, None, :].expand(B, T, T)
    output: Tensor = layer(states, mask=allowed, causal=mask == "causal")
    return output


def of_torch(layer: Any, states: Tensor, mask: str, **options: Any) -> Tensor:
    future = causal_of(mask)
    output: Tensor = layer(states, states, states, key_padding_mask=padding_of(mask), attn_mask=future, **options)[0]
    return output


def of_torch_with_numbers(layer: Any, states: Tensor, mask: str) -> Tensor:
    """Masks are added to the scores as the smallest number of the dtype, as in many models."""
    padding, future = padding_of(mask), causal_of(mask)
    least = torch.finfo(states.dtype).min

    def added(forbidden: Tensor | None) -> Tensor | None:
        if forbidden is None:
            return None
        return torch.zeros(forbidden.shape, dtype=states.dtype).masked_fill(forbidden, least)

    output: Tensor = layer(
        states, states, states, key_padding_mask=added(padding), attn_mask=added(future), need_weights=False
    )[0]
    return output


def of_encoder(layer: Any, states: Tensor, mask: str) -> Tensor:
    output: Tensor = layer(states, causal_of(mask), src_key_padding_mask=padding_of(mask))
    return output


class SDPAAttention(nn.Module):
    """Calls SDPA directly."""

    def __init__(self, *, numbers: bool) -> None:
        super().__init__()
        self.projection, self.numbers = nn.Linear(D, 3 * D), numbers

    def forward(self, states: Tensor, mask: str) -> Tensor:
        query, key, value = (
            each.unflatten(-1, (H, -1)).transpose(1, 2) for each in self.projection(states).chunk(3, -1)
        )
        padding, allowed = padding_of(mask), None
        if padding is not None:
            allowed = ~padding[:, None, None, :].expand(B, 1, T, T)
            if self.numbers:
                allowed = torch.zeros(allowed.shape).masked_fill(~allowed, -torch.inf).to(states)
        return F.scaled_dot_product_attention(query, key, value, allowed, is_causal=mask == "causal").mean(1)


def encoder_layer() -> Any:
    return nn.TransformerEncoderLayer(D, H, 2 * D, 0.0, batch_first=True)


MODELS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "regard": ("layer", lambda: Layer(MultiHeadAttention(D, H), of_regard)),
    "torch": ("layer", lambda: Layer(nn.MultiheadAttention(D, H, batch_first=True), of_torch)),
    "torch, no weights": (
        "layer",
        lambda: Layer(nn.MultiheadAttention(D, H, batch_first=True), partial(of_torch, need_weights=False)),
    ),
    "torch, numbers": ("layer", lambda: Layer(nn.MultiheadAttention(D, H, batch_first=True), of_torch_with_numbers)),
    "torch, more keys": (
        "layer",
        lambda: Layer(
            nn.MultiheadAttention(D, H, batch_first=True, add_bias_kv=True, add_zero_attn=True),
            partial(of_torch, need_weights=False),
        ),
    ),
    "encoder layer": ("layer.self_attn", lambda: Layer(encoder_layer(), of_encoder)),
    "encoder": (
        "layer.layers.1.self_attn",
        lambda: Layer(nn.TransformerEncoder(encoder_layer(), 2, nn.LayerNorm(D)), of_encoder),
    ),
    "kernel": ("", lambda: SDPAAttention(numbers=False)),
    "kernel, numbers": ("", lambda: SDPAAttention(numbers=True)),
}


def ways_of(model: nn.Module, layer: str) -> dict[str, Callable[[], contextlib.AbstractContextManager[Any]]]:
    """Return recordings and interventions that must not change a model."""
    return {
        "record": lambda: regard.record(model),
        "some rows": lambda: regard.record(model, rows=[1, 2], heads=[0]),
        "record_long": lambda: regard.record_long(model, largest=2),
        "no head off": lambda: regard.intervene(model, layer, heads=[]),
    }


def assert_unchanged(model: nn.Module, layer: str, run: Callable[[], Tensor], limit: float) -> None:
    """Compare each run with the unchanged run; NaN must remain NaN."""
    plain = run()
    most = limit * float(plain[plain.isfinite()].abs().max().clamp(min=1))
    for name, way in ways_of(model, layer).items():
        with way() as records:
            output = run()
        assert records is None or len(records), name
        torch.testing.assert_close(output, plain, rtol=0, atol=most, equal_nan=True)
        torch.testing.assert_close(run(), plain, rtol=0, atol=0, equal_nan=True)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("number", LIMITS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_unchanged(name: str, mask: str, number: torch.dtype, training: bool) -> None:
    torch.manual_seed(0)
    layer, make = MODELS[name]
    model, states = make().to(number).train(training), torch.randn(B, T, D).to(number)
    if name == "regard" and mask == "causal" and number in (torch.float16, torch.bfloat16):
        states = states * 4
    with torch.set_grad_enabled(training):
        assert_unchanged(model, layer, lambda: model(states, mask).detach(), LIMITS[number])


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_fully_masked_rows_have_no_weights(name: str, training: bool) -> None:
    model, states = MODELS[name][1]().train(training), torch.randn(B, T, D)
    with regard.record(model) as records, torch.set_grad_enabled(training):
        model(states, "blind")
    for record in records.values():
        shown = record.weights[..., :T] if name == "torch, more keys" else record.weights
        sums = record.weights.sum(-1)
        assert record.weights.isfinite().all()
        torch.testing.assert_close(sums[:-1], torch.ones_like(sums[:-1]))
        assert (shown[-1] == 0).all()
    with regard.record_long(model, largest=2) as long:
        model(states, "blind")
    assert all((record.values[-1] == 0).all() or name == "torch, more keys" for record in long.values())


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_unchanged(name: str, mask: str) -> None:
    torch.manual_seed(0)
    layer, make = MODELS[name]
    model, states = make(), torch.randn(B, T, D)

    def gradients() -> list[Tensor]:
        model.zero_grad()
        model(states, mask).square().sum().backward()
        return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    plain = gradients()
    for way in ways_of(model, layer).values():
        with way():
            torch.testing.assert_close(gradients(), plain, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("number", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["regard", "torch, no weights", "kernel", "encoder layer"])
@torch.no_grad()
def test_scores_above_the_largest_number_stay_finite(name: str, number: torch.dtype) -> None:
    """Scores are up to 400,000: the largest float16 number is 65,504, and the kernel computes in float32."""
    torch.manual_seed(0)
    model, states = MODELS[name][1]().to(number).train(), torch.randn(B, T, D).to(number)
    for parameter in model.parameters():
        if parameter.dim() == 2 and "linear" not in name:
            parameter.mul_(60)
    plain = model(states, "none")
    assert plain.isfinite().all()
    with regard.record(model) as records:
        output = model(states, "none")
    torch.testing.assert_close(output, plain, rtol=0, atol=LIMITS[number] * float(plain.abs().max()))
    (record,) = records.values()
    assert record.weights.dtype == torch.float32 and record.weights.isfinite().all()
    torch.testing.assert_close(record.weights.sum(-1), torch.ones(B, H, T))


@pytest.mark.parametrize("name", ["regard", "torch", "torch, no weights", "kernel"])
@torch.no_grad()
def test_setting_a_weight_to_its_value_changes_nothing(name: str) -> None:
    layer, make = MODELS[name]
    model, states = make(), torch.randn(B, T, D)[:1].expand(B, T, D)
    with regard.record(model) as records:
        plain = model(states, "none")
    weight = float(next(iter(records.values())).weights[0, 2, 3, 1])
    with regard.intervene(model, layer, heads=[2], to=weight, query=3, key=1):
        torch.testing.assert_close(model(states, "none"), plain, rtol=0, atol=1e-5)


@torch.no_grad()
def test_zero_head_of_a_padded_encoder_has_no_importance() -> None:
    """The pass without changes takes the fast path, which drops padding; that with an ablated head must, too."""
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(encoder_layer(), 2).eval()
    layers: Any = encoder.layers
    layers[0].self_attn.out_proj.weight[:, 4:8] = 0  # head 1
    states, padding = torch.randn(2, 2, T, D), torch.zeros(2, T, dtype=torch.bool)
    padding[:, -3:] = True

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder

        def forward(self, states: Tensor) -> Tensor:
            output: Tensor = self.encoder(states, src_key_padding_mask=padding).mean(1)
            return output

    subject = regard.look(Pooled(), lambda given: given, inputs=list(states))
    added = subject.importance().added["encoder.layers.0.self_attn"]
    assert added[1] == pytest.approx(0, abs=1e-9) and added[0] > 1e-4


class ThreeCallModel(nn.Module):
    """Calls one layer three times, with a single query as in a decoder step or several as in an encoder."""

    def __init__(self, queries: int) -> None:
        super().__init__()
        self.queries = queries
        self.attention = nn.MultiheadAttention(D, H, batch_first=True)

    def forward(self, states: Tensor) -> Tensor:
        found = states[:, : self.queries]
        for _ in range(3):
            found = self.attention(found, states, states, need_weights=False)[0]
        return found


@pytest.mark.parametrize("queries", [1, 2])
@torch.no_grad()
def test_all_calls_of_a_layer_share_their_heads(queries: int) -> None:
    """Calls with a single query are the steps of one record; other calls have separate records."""
    torch.manual_seed(0)
    model, states = ThreeCallModel(queries).eval(), torch.randn(2, T, D)
    plain = model(states)

    def by_hand(off: tuple[int, ...]) -> Tensor:
        layer, output = model.attention, states[:, :queries]
        for call in range(3):
            if call in off:
                output = layer.out_proj.bias.expand(2, queries, D)
            else:
                output = layer(output, states, states, need_weights=False)[0]
        return output

    with regard.record(model) as records:
        model(states)
    assert list(records) == (["attention"] if queries == 1 else ["attention", "attention#1", "attention#2"])
    for layer, off in {"attention": (0, 1, 2), "attention#1": (1,), "attention#2": (2,)}.items():
        with regard.intervene(model, layer), regard.record(model) as records:
            output = model(states)
        torch.testing.assert_close(output, by_hand(off), rtol=0, atol=1e-6)
        calls = [call for each in records.values() for call in each.weights.split(queries, dim=2)]
        zero = [bool((weights == 0).all()) for weights in calls]
        assert zero == [call in off for call in range(3)]
    subject = regard.look(model, lambda given: given, inputs=list(states[:, None]))
    assert [each.name for each in subject.layers] == ["attention"]
    assert list(subject.importance().added) == ["attention"]
    assert not torch.allclose(plain, by_hand((0, 1, 2)))


# Hugging Face models.

IMPLEMENTATIONS = ("eager", "sdpa", "own", "own with weights", "other mathematics")


def own_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, scaling: float, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Attend as a user's function that hides the future itself and receives no mask."""
    del mask, options
    key, value = (each.repeat_interleave(module.num_key_value_groups, 1) for each in (key, value))
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling).transpose(1, 2), None


def own_attention_with_weights(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, scaling: float, **options: Any
) -> tuple[Tensor, Tensor]:
    """Attend with doubled scores, and return the weights."""
    del mask, options
    key, value = (each.repeat_interleave(module.num_key_value_groups, 1) for each in (key, value))
    scores = 2 * scaling * query @ key.mT
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    weights = scores.masked_fill(future, -torch.inf).softmax(-1)
    return (weights @ value).transpose(1, 2), weights


def other_mathematics(*args: Any, **options: Any) -> tuple[Tensor, None]:
    """Attend with doubled scores, and return no weights."""
    return own_attention_with_weights(*args, **options)[0], None


def llama(small: Any, implementation: str) -> Any:
    import transformers

    functions = {
        "own": own_attention,
        "own with weights": own_attention_with_weights,
        "other mathematics": other_mathematics,
    }
    name = implementation.replace(" ", "_")
    if implementation in functions:
        transformers.AttentionInterface.register(name, functions[implementation])
    return small.build(small.known["llama"], name)


def run_of(model: Any, mask: str) -> Callable[[], Tensor]:
    tokens = torch.arange(B * T).reshape(B, T) * 7 % 50 + 3
    padding = padding_of(mask)
    given = {"input_ids": tokens, "use_cache": False}
    if padding is not None:
        given["attention_mask"] = (~padding.flip(1)).long()
    return lambda: model(**given).logits


LAYER = "model.layers.0.self_attn"


@pytest.mark.parametrize("number", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mask", ["none", "padding", "blind"])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS[:4])
@torch.no_grad()
def test_transformers_model_is_unchanged(small: Any, implementation: str, mask: str, number: torch.dtype) -> None:
    model = llama(small, implementation).to(number)
    if mask != "none" and implementation.startswith("own"):
        pytest.skip("it has no mask for padding")
    assert_unchanged(model, LAYER, run_of(model, mask), 0)
    assert model.config._attn_implementation == implementation.replace(" ", "_")
    with regard.record(model) as records:
        run_of(model, mask)()
    weights, seen = records[LAYER].weights, torch.ones(B, H, T)
    if mask != "none":
        seen[0, :, :2] = 0
    if mask == "blind":
        seen[-1] = 0
    torch.testing.assert_close(weights.sum(-1), seen, rtol=0, atol=1e-2)


@torch.no_grad()
def test_users_attention_function_is_called_and_recorded(small: Any) -> None:
    model = llama(small, "own with weights")
    run = run_of(model, "none")
    seen: list[Tensor] = []
    model.model.layers[0].self_attn.register_forward_hook(lambda module, given, output: seen.append(output[1]))
    with regard.record(model) as records:
        run()
    torch.testing.assert_close(records[LAYER].weights, seen[0], rtol=0, atol=0)
    with regard.record(model, rows=[3]) as records:
        run()
    torch.testing.assert_close(records[LAYER].weights, seen[0][:, :, 3:4], rtol=0, atol=0)


@torch.no_grad()
def test_function_with_unknown_weights_gives_a_warning(small: Any) -> None:
    model = llama(small, "other mathematics")
    run = run_of(model, "none")
    plain = run()
    for way in ways_of(model, LAYER).values():
        with pytest.warns(UserWarning) as said, way():
            torch.testing.assert_close(run(), plain, rtol=0, atol=0)
        assert str(said[0].message).startswith(
            f"weights of '{LAYER}' differ from the weights that the model used: output of other_mathematics differs"
        )


@torch.no_grad()
def test_wrong_weights_give_a_warning(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault makes the weights slightly too large."""
    model = llama(small, "sdpa")
    attend = interface_inputs.InterfaceCall._attend

    def wrong(self: Any, chosen: Any) -> Any:
        context, weights, mask = attend(self, chosen)
        return context * 1.01, weights * 1.01, mask

    monkeypatch.setattr(interface_inputs.InterfaceCall, "_attend", wrong)
    for way in ways_of(model, LAYER).values():
        with pytest.warns(UserWarning) as said, way():
            run_of(model, "none")()
        assert f"weights of '{LAYER}' differ from the weights that the model used" in str(said[0].message)


@torch.no_grad()
def test_layers_see_the_configured_implementation() -> None:
    """Sparse attention (DeepSeek V3.2) is disabled for all implementations except eager and sdpa."""
    transformers = pytest.importorskip("transformers")
    if not hasattr(transformers, "DeepseekV32Config"):
        pytest.skip("transformers has no DeepSeek V3.2")
    config = transformers.DeepseekV32Config(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=48,
        moe_intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_rope_head_dim=4,
        qk_nope_head_dim=8,
        v_head_dim=8,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        index_n_heads=2,
        index_head_dim=8,
        index_topk=4,
    )
    for implementation in ("eager", "sdpa"):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()
        run = run_of(model, "none")
        assert_unchanged(model, LAYER, run, 0)
        with regard.record(model) as records:
            run()
        assert ((records[LAYER].weights > 0).sum(-1) == torch.arange(1, T + 1).clamp(max=4)).all()


# On a whole model.


def test_compiled_models_are_recorded_and_run_afterwards() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(D, H, 2 * D, 0.0, batch_first=True).eval()
    states = torch.randn(2, T, D)
    plain = layer(states)
    compiled: Any = torch.compile(layer, backend="eager")
    around = torch.compile(lambda given: layer(given), backend="eager")
    held: Any = nn.Sequential(compiled)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="The CUDA Graph is empty|Dynamo does not know")
        cases = ((compiled, "self_attn", compiled), (layer, "self_attn", around), (held, "0.self_attn", held))
        for model, name, run in cases:
            for _ in range(2):
                with regard.record(model) as records:
                    torch.testing.assert_close(run(states), plain, rtol=0, atol=1e-6)
                assert list(records) == [name]
                with regard.intervene(model, name):
                    assert (run(states) - plain).abs().max() > 1e-3
                torch.testing.assert_close(run(states), plain, rtol=0, atol=1e-6)


def test_torchscript_attention_gives_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(Form(fused), torch.randn(2, T, D))
    model = nn.Sequential(nn.Linear(D, D), traced)
    with pytest.warns(
        UserWarning, match="1 computes attention with compiled TorchScript code, which cannot be recorded: record"
    ):
        with regard.record(model):
            model(torch.randn(2, T, D))


def test_gradient_checkpointing_is_unchanged() -> None:
    from torch.utils.checkpoint import checkpoint

    layer, states = nn.TransformerEncoderLayer(D, H, 2 * D, 0.0, batch_first=True), torch.randn(2, T, D)

    def gradient(*, inside: bool, **options: Any) -> Tensor:
        given = states.clone().requires_grad_()
        with regard.record(layer):
            output: Any = checkpoint(layer, given, **options) if options else layer(given)
            if inside:
                output.sum().backward()
        if not inside:
            output.sum().backward()
        assert given.grad is not None
        return given.grad

    expected = gradient(inside=True)
    for again in (True, False):
        for inside in (True, False):
            torch.testing.assert_close(gradient(inside=inside, use_reentrant=again), expected, rtol=0, atol=1e-5)


def test_everything_is_restored_after_an_exception() -> None:
    from torch.nn.modules import module as modules

    model, states = MODELS["encoder"][1]().eval(), torch.randn(B, T, D)
    for way in ways_of(model, MODELS["encoder"][0]).values():
        with pytest.raises(ZeroDivisionError), way():
            model(states, "padding")
            raise ZeroDivisionError
    for name, hooks in vars(modules).items():
        assert not (name.startswith("_global") and isinstance(hooks, dict) and hooks), name
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())
