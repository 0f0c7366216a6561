"""Recordings of external models: the mechanisms, layers without a record, steps, and freed records."""

import gc
import warnings
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
from tests.external.test_transforms import Explicit, Fused


@pytest.fixture(scope="module")
def every(small: Any) -> Any:
    """The module that builds small models of all architectures."""
    import every_architecture

    return every_architecture


def record_of(every: Any, name: str) -> tuple[regard.Records, list[str]]:
    """Run a small model; returns its records and the warnings."""
    model = every.build(name)
    inputs = every.first_accepted_inputs(model)
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        with regard.record(model) as records:
            model(**inputs)
    return records, [str(each.message) for each in caught]


@pytest.mark.parametrize(
    ("name", "layer", "kind"),
    [
        ("jamba", "model.layers.0.mamba", "JambaMambaMixer"),
        ("zamba2", "model.layers.0.mamba", "Zamba2MambaMixer"),
        ("qwen3_next", "model.layers.0.linear_attn", "Qwen3NextGatedDeltaNet"),
    ],
)
def test_hybrid_layers_without_softmax_are_named(every: Any, name: str, layer: str, kind: str) -> None:
    records, said = record_of(every, name)
    assert records.left_out[layer] == f"{kind} without softmax attention"
    assert f"{kind} without softmax attention" in str(records)
    assert all("self_attn" in each for each in records) and records
    assert not any("not recorded" in each for each in said)


class HiddenAttention(nn.Module):
    """Attention whose weights are no result of a softmax."""

    def forward(self, states: Tensor) -> Tensor:
        return (states @ states.mT).log_softmax(-1).exp() @ states


def test_hidden_weights_next_to_recorded_layers_give_a_warning() -> None:
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), HiddenAttention()).eval()
    with torch.no_grad(), pytest.warns(UserWarning, match="1 .HiddenAttention.*with modules=, name"):
        with regard.record(model) as records:
            model(torch.randn(1, 4, 8))
    assert list(records) == ["0.self_attn"]
    assert records.left_out == {"1": "HiddenAttention with weights that no hook sees"}


def test_layers_whose_weights_the_model_does_not_return_are_recorded(every: Any) -> None:
    records, said = record_of(every, "timesformer")
    assert not records.left_out and not said
    assert {f"encoder.layer.{layer}.temporal_attention.attention" for layer in (0, 1)} <= set(records)


def test_fully_recorded_model_misses_no_layer(every: Any) -> None:
    records, said = record_of(every, "bert")
    assert records.left_out == {} and "not recorded" not in str(records) and not said


def test_subject_names_missing_layers(every: Any) -> None:
    model = every.build("jamba")
    subject = regard.look(model, lambda text: torch.tensor([[5, 6, 7]]), inputs=["a text"])
    assert "JambaMambaMixer without softmax attention" in subject.left_out
    assert subject.left_out in subject.about()["summary"]


class StepAttention(nn.Module):
    """Attention of one query (B, D) to a memory (B, T, D), computed with one of three methods."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.drop = way, nn.Dropout(0.0)
        self.heads = nn.MultiheadAttention(8, 2, batch_first=True)
        self.kept: list[Tensor] = []

    def forward(self, query: Tensor, memory: Tensor) -> Tensor:
        """Return the context (B, D)."""
        if self.way == "heads":
            context: Tensor = self.heads(query[:, None], memory, memory, need_weights=False)[0][:, 0]
            return context
        if self.way == "kernel":
            return F.scaled_dot_product_attention(query[:, None, None], memory[:, None], memory[:, None])[:, 0, 0]
        weights: Tensor = self.drop((memory @ query[:, :, None])[..., 0].softmax(-1))  # (B, T)
        self.kept.append(weights.detach())
        return (weights[:, None] @ memory)[:, 0]


class Decoder(nn.Module):
    """Four steps of a recurrent decoder."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.cell, self.attends = nn.GRUCell(8, 8), StepAttention(way)

    def forward(self, memory: Tensor) -> Tensor:
        """Return the states (B, 4, D)."""
        state, states = memory.mean(1), []
        for _ in range(4):
            state = self.cell(self.attends(state, memory), state)
            states.append(state)
        return torch.stack(states, dim=1)


@pytest.fixture
def memory(generator: torch.Generator) -> Tensor:
    """Three sequences of six steps."""
    return torch.randn(3, 6, 8, generator=generator)


@pytest.mark.parametrize(("way", "layer", "heads"), [("heads", "attends.heads", 2), ("kernel", "attends", 1)])
def test_steps_are_rows_of_one_record(memory: Tensor, way: str, layer: str, heads: int) -> None:
    torch.manual_seed(0)
    decoder = Decoder(way).eval()
    with torch.no_grad(), regard.record(decoder) as records:
        states = decoder(memory)
    assert list(records) == [layer]
    assert records[layer].weights.shape == (3, heads, 4, 6)
    if way == "kernel":
        queries = torch.cat([memory.mean(1, keepdim=True), states[:, :3]], dim=1)
        expected = (queries @ memory.transpose(1, 2) * 8**-0.5).softmax(-1)
        torch.testing.assert_close(records[layer].weights[:, 0], expected)
    with torch.no_grad(), regard.record(decoder, rows=[2]) as some:
        decoder(memory)
    torch.testing.assert_close(some[layer].weights, records[layer].weights[:, :, [2]])


def test_steps_at_a_named_module_keep_samples_apart(memory: Tensor) -> None:
    torch.manual_seed(0)
    decoder = Decoder("by hand").eval()
    with torch.no_grad(), regard.record(decoder, modules="attends.drop") as records:
        decoder(memory)
    expected = torch.stack(decoder.attends.kept, dim=1)
    torch.testing.assert_close(records["attends.drop"].weights, expected[:, None])


def test_calls_with_other_keys_have_own_records(memory: Tensor) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attends = StepAttention("kernel")

        def forward(self, memory: Tensor) -> Tensor:
            first: Tensor = self.attends(memory[:, 0], memory)
            second: Tensor = self.attends(first, memory[:, :3])
            return second

    model = Twice()
    with torch.no_grad(), regard.record(model) as records:
        model(memory)
    assert {name: tuple(record.weights.shape) for name, record in records.items()} == {
        "attends": (3, 1, 1, 6),
        "attends#1": (3, 1, 1, 3),
    }


STATES = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
TOKENS = torch.arange(5, 11).unsqueeze(0)


def tensors_and_sessions() -> dict[int, Any]:
    """Return the live objects that a recording creates, by id."""
    kinds = (Tensor, Recorder, CaptureSession)
    return {id(value): value for value in gc.get_objects() if issubclass(type(value), kinds)}


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Switch the garbage collector off, and ignore all objects from before the test, which are many."""
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


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


@pytest.mark.usefixtures("no_collection")
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


@pytest.mark.usefixtures("no_collection")
def test_weights_are_freed_with_the_records() -> None:
    model = Fused()
    with regard.record(model) as records:
        model(STATES)
    reference = weakref.ref(records[""].weights)
    del records
    assert reference() is None


@pytest.mark.usefixtures("no_collection")
def test_an_exception_in_the_block() -> None:
    model = Fused()

    def use() -> None:
        with pytest.raises(ZeroDivisionError), regard.record(model):
            assert model(STATES).shape[0] / 0

    check_freed(use)


@pytest.mark.usefixtures("no_collection")
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


@pytest.mark.usefixtures("no_collection")
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


@pytest.mark.usefixtures("no_collection")
def test_models_that_return_their_weights(small: Any) -> None:
    model = small.build(small.known["longformer"])
    inputs = small.make_inputs(small.known["longformer"])

    def use() -> None:
        with torch.no_grad(), regard.record(model) as records:
            model(**inputs)
        assert len(records)

    check_freed(use)


@pytest.mark.usefixtures("no_collection")
def test_looked_at_models(model_of: Callable[[str], Any], tokenizer: Any) -> None:
    model = model_of("llama")

    def use() -> None:
        subject = regard.look(model, tokenizer)
        shown = subject.attend("the cat sat on the mat")
        with regard.intervene(subject, subject.layers[0].name, heads=[0]):
            assert subject.attend("the cat sat on the mat").original is not None
        with regard.record(model, tokenizer=tokenizer) as records:
            model(TOKENS)
        assert len(regard.make_maps(records)[0].layers) == len(shown.layers)

    check_freed(use)
