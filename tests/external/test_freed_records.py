"""Dropped records are freed at once, without the garbage collector."""

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.activations.capture_session import CaptureSession
from regard.attention.blocks import EncoderLayer
from regard.attention.records import Recorder
from regard.external.layer_maps import record_long

STATES = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
TOKENS = torch.arange(5, 11).unsqueeze(0)


class Fused(nn.Module):
    """Attention by the fused kernel."""

    def forward(self, states: Tensor) -> Tensor:
        """Return the context (B, T, D)."""
        return F.scaled_dot_product_attention(states[:, None], states[:, None], states[:, None])[:, 0]


class Explicit(nn.Module):
    """Attention whose weights pass through a module."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.0)

    def forward(self, states: Tensor) -> Tensor:
        """Return the context (B, T, D)."""
        weights: Tensor = self.drop((states @ states.transpose(-1, -2)).softmax(-1)[:, None])
        return weights[:, 0] @ states


def tensors_and_sessions() -> dict[int, Any]:
    """Return the live objects that a recording creates, by id."""
    kinds = (Tensor, Recorder, CaptureSession)
    return {id(value): value for value in gc.get_objects() if issubclass(type(value), kinds)}


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """Switch the garbage collector off."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def check_freed(use: Callable[[], object]) -> None:
    """Check that a function leaves no objects; the first call fills caches."""
    use()
    gc.collect()
    before = set(tensors_and_sessions())
    use()
    assert not [type(value) for key, value in tensors_and_sessions().items() if key not in before]


OWN: dict[str, tuple[Callable[[], nn.Module], str, dict[str, Any]]] = {
    "fused": (Fused, "", {}),
    "named": (Explicit, "drop", {"modules": "drop"}),
    "pytorch": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), "self_attn", {}),
    "regard": (lambda: EncoderLayer(8, 2, 16), "self_attention", {}),
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("changed", [False, True])
def test_custom_modules(name: str, changed: bool) -> None:
    build, layer, options = OWN[name]
    model = build()

    def use() -> None:
        with ExitStack() as stack:
            records = stack.enter_context(regard.record(model, **options))
            if changed:
                stack.enter_context(regard.intervene(model, layer, heads=[0], **options))
            model(STATES)
        assert records[layer].weights.shape[0] == 2
        assert not records.left_out

    check_freed(use)


def test_weights_are_freed_with_the_records() -> None:
    model = Fused()
    with regard.record(model) as records:
        model(STATES)
    reference = weakref.ref(records[""].weights)
    del records
    assert reference() is None


def test_an_exception_in_the_block() -> None:
    model = Fused()

    def use() -> None:
        with pytest.raises(ZeroDivisionError), regard.record(model):
            assert model(STATES).shape[0] / 0

    check_freed(use)


def test_records_with_the_inside_of_layers_and_of_long_inputs() -> None:
    own, fused = EncoderLayer(8, 2, 16), Fused()

    def use() -> None:
        with regard.record(own, "*") as cache:
            own(STATES)
        assert cache["self_attention.z"].shape == cache["z"].shape
        for model in (own, fused):
            with record_long(model) as long_records:
                model(STATES)
            [record] = long_records.values()
            record.rows([1])

    check_freed(use)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("run", ["pass", "generation", "beams", "intervention"])
def test_transformers_models(small: Any, implementation: str, run: str) -> None:
    model: Any = small.build(small.known["llama"], implementation)
    options = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    layer = "model.layers.0.self_attn"

    def use() -> None:
        changes = regard.intervene(model, layer, heads=[0]) if run == "intervention" else nullcontext()
        with torch.no_grad(), regard.record(model) as records, changes:
            if run in ("generation", "beams"):
                model.generate(TOKENS, num_beams=2 if run == "beams" else 1, **options)
            else:
                model(TOKENS)
        assert records[layer].weights.shape[-1] >= 6

    check_freed(use)


def test_models_that_return_their_weights(small: Any) -> None:
    model = small.build(small.known["longformer"])
    inputs = small.make_inputs(small.known["longformer"])

    def use() -> None:
        with torch.no_grad(), regard.record(model) as records:
            model(**inputs)
        assert len(records)

    check_freed(use)


def test_looked_at_models(model_of: Callable[[str], Any], tokenizer: Any) -> None:
    model = model_of("llama")

    def use() -> None:
        subject = regard.look(model, tokenizer)
        shown = subject.attend("the cat sat on the mat")
        with subject.intervene(subject.layers[0].name, heads=[0]):
            assert subject.attend("the cat sat on the mat").original is not None
        with regard.record(model, tokenizer=tokenizer) as records:
            model(TOKENS)
        assert len(regard.make_maps(records)[0].layers) == len(shown.layers)

    check_freed(use)
