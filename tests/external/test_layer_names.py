"""Each layer has one name everywhere; repeated calls are numbered; shared layers have the name of their part."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.attention.blocks import EncoderLayer
from regard.external.layer_maps import record_long
from tests.external.test_own_attention import OperatorCapture


def check_records(model: nn.Module, run: Callable[[], object]) -> dict[str, Tensor]:
    """Check that each call of a kernel has a record, in order; returns the recorded weights."""
    with OperatorCapture() as kernels:  # with gradients, PyTorch's layers do not take their fast path
        run()
    with torch.no_grad(), regard.record(model) as records:
        run()
    weights = {name: record.weights for name, record in records.items()}
    assert len(weights) == len(kernels.weights)
    for actual, expected in zip(weights.values(), kernels.weights, strict=True):
        torch.testing.assert_close(actual, expected.float(), atol=1e-5, rtol=1e-4)
    assert not records.left_out
    return weights


def check_interventions(model: nn.Module, run: Callable[[], object], changed: dict[str, list[str]]) -> None:
    """Check which calls an intervention on each name changes."""
    for name, expected in changed.items():
        with torch.no_grad(), regard.record(model) as records, regard.intervene(model, name, heads=[0]):
            run()
        assert [key for key in records if not records[key].weights[:, 0].any()] == expected


class Fused(nn.Module):
    """Two heads of the fused kernel over the states of one or of two sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)

    def forward(self, states: Tensor, memory: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """Return the context (B, T, D)."""
        query, key = (
            self.project(part).unflatten(-1, (2, 4)).transpose(1, 2)
            for part in (states, states if memory is None else memory)
        )
        return F.scaled_dot_product_attention(query, key, key, is_causal=causal).transpose(1, 2).flatten(2)


class Part(nn.Module):
    """An encoder or a decoder with the layers of another part."""

    def __init__(self, attention: nn.Module, cross: nn.Module | None = None) -> None:
        super().__init__()
        self.attention, self.cross = attention, cross

    def forward(self, states: Tensor, memory: Tensor | None = None) -> Tensor:
        """Return states (B, T, D)."""
        if memory is None:
            result: Tensor = self.attention(states)
            return result
        assert self.cross is not None
        context: Tensor = self.cross(self.attention(states, causal=True), memory)
        return context


class Tied(nn.Module):
    """An encoder-decoder whose encoder and decoder share their attention."""

    def __init__(self) -> None:
        super().__init__()
        shared = Fused()
        self.encoder, self.decoder = Part(shared), Part(shared, Fused())

    def forward(self, states: Tensor) -> Tensor:
        """Return the decoder's states."""
        result: Tensor = self.decoder(states[:, :3], self.encoder(states))
        return result


class Loop(nn.Module):
    """A model that runs one layer until its states are small, or all layers of a list of one shared layer."""

    def __init__(self, layer: nn.Module, *, shared: int = 0) -> None:
        super().__init__()
        self.layers = nn.ModuleList([layer] * max(shared, 1))
        self.shared = shared

    def forward(self, states: Tensor) -> Tensor:
        """Return the last states."""
        if self.shared:
            for layer in self.layers:
                states = layer(states)
            return states
        for _ in range(4):
            if states.norm() > 1e-3:
                states = self.layers[0](states)
        return states


@pytest.fixture
def states(generator: torch.Generator) -> Tensor:
    """Two sequences of five steps."""
    torch.manual_seed(0)
    return torch.randn(2, 5, 8, generator=generator)


def test_a_tied_encoder_decoder(states: Tensor) -> None:
    model = Tied()
    names = ["encoder.attention", "decoder.attention", "decoder.cross"]
    assert list(check_records(model, lambda: model(states))) == names
    check_interventions(model, lambda: model(states), {name: [name] for name in names})
    with regard.record(model) as records:
        model(states)
    assert [records[name].kind for name in names] == ["encoder", "decoder", "cross"]
    with regard.record(model, layers=["decoder.attention"]) as records:
        model(states)
    assert list(records) == ["decoder.attention"]


@pytest.mark.parametrize("shared", [0, 3])
@pytest.mark.parametrize("layer", ["fused", "pytorch", "regard"])
def test_repeated_calls(states: Tensor, layer: str, shared: int) -> None:
    layers: dict[str, Callable[[], nn.Module]] = {
        "fused": Fused,
        "pytorch": lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(),
        "regard": lambda: EncoderLayer(8, 2, 16).eval(),
    }
    model = Loop(layers[layer](), shared=shared)
    name = {"fused": "layers.0", "pytorch": "layers.0.self_attn", "regard": "layers.0.self_attention"}[layer]
    names = [name, *(f"{name}#{number}" for number in range(1, shared or 4))]
    assert list(check_records(model, lambda: model(states))) == names
    check_interventions(model, lambda: model(states), {name: names, names[1]: [names[1]]})
    with regard.record(model, layers=names[1:2], rows=[1, 2]) as records:
        model(states)
    assert list(records) == names[1:2]
    assert records[names[1]].weights.shape == (2, 2, 2, 5)
    with record_long(model) as long_records:
        model(states)
    assert list(long_records) == names
    with pytest.warns(UserWarning, match="nothing was changed"), regard.intervene(model, f"{name}#9"):
        model(states)


@pytest.mark.parametrize(
    "layer", [EncoderLayer(8, 2, 16), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)], ids=["regard", "torch"]
)
def test_a_shorter_pass_drops_the_calls_of_a_longer_one(states: Tensor, layer: nn.Module) -> None:
    model = nn.Sequential(Loop(layer), layer)
    with regard.record(model) as records:
        model(states)
        assert len(records) == 5
        model[1](states[:, :3])
    [record] = records.values()
    assert record.weights.shape[-2:] == (3, 3)


def test_shared_regard_layers_have_the_name_of_their_part(states: Tensor) -> None:
    shared = EncoderLayer(8, 2, 16)
    model = nn.Sequential(Loop(shared, shared=1), Loop(shared, shared=1))
    names = ["0.layers.0.self_attention", "1.layers.0.self_attention"]
    with regard.record(model) as records:
        model(states)
    assert list(records) == names
    check_interventions(model, lambda: model(states), {name: [name] for name in names})


def test_steps_of_own_decoding_are_no_repeated_calls(states: Tensor) -> None:
    layer = EncoderLayer(8, 2, 16)
    with regard.record(layer) as records:
        for number in range(3):
            layer.self_attention(states[:, number : number + 1], states, states)
    assert list(records) == ["self_attention"]


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("owner", ["encoder", "decoder"])
def test_a_tied_transformers_model(small: Any, owner: str, implementation: str) -> None:
    import transformers

    sizes: dict[str, Any] = {"vocab_size": 60, "hidden_size": 16, "intermediate_size": 32}
    sizes |= {"num_attention_heads": 2, "num_hidden_layers": 1, "attn_implementation": implementation}
    encoder = transformers.BertModel(transformers.BertConfig(**sizes))
    decoder = transformers.BertLMHeadModel(transformers.BertConfig(is_decoder=True, add_cross_attention=True, **sizes))
    model: Any = transformers.EncoderDecoderModel(encoder=encoder, decoder=decoder).eval()
    layers = model.encoder.encoder.layer[0], model.decoder.bert.encoder.layer[0]
    for layer in layers:
        layer.attention = layers[owner == "decoder"].attention
    tokens = torch.randint(5, 60, (2, 6))
    names = [
        "encoder.encoder.layer.0.attention.self",
        "decoder.bert.encoder.layer.0.attention.self",
        "decoder.bert.encoder.layer.0.crossattention.self",
    ]

    def run() -> object:
        return model(input_ids=tokens, decoder_input_ids=tokens[:, :4])

    assert list(check_records(model, run)) == names
    check_interventions(model, run, {name: [name] for name in names})
    options = {"max_new_tokens": 3, "do_sample": False, "decoder_start_token_id": 1, "pad_token_id": 0}
    for call in (run, lambda: model.generate(tokens, **options)):
        with torch.no_grad(), regard.record(model) as records:
            call()
        assert {name: record.kind for name, record in records.items()} == dict(
            zip(names, ["encoder", "decoder", "cross"], strict=True)
        )


def test_a_model_that_returns_the_weights_of_one_call() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    layers = {"l_layers": 1, "x_layers": 2, "r_layers": 1, "visual_feat_dim": 8, "visual_pos_dim": 4}
    model = transformers.LxmertModel(transformers.LxmertConfig(**sizes, **layers)).eval()
    inputs = {"visual_feats": torch.randn(2, 3, 8), "visual_pos": torch.rand(2, 3, 4)}

    def run() -> object:
        return model(input_ids=torch.randint(5, 60, (2, 5)), **inputs)

    torch.manual_seed(1)
    with torch.no_grad(), OperatorCapture() as kernels:
        run()
    torch.manual_seed(1)
    with torch.no_grad(), regard.record(model) as records:
        run()
    assert not records.left_out
    assert len(records) == len(kernels.weights) == 10
    unmatched = list(kernels.weights)
    for record in records.values():
        found = [
            index
            for index, weights in enumerate(unmatched)
            if weights.shape == record.weights.shape and torch.allclose(weights.float(), record.weights, atol=1e-6)
        ]
        del unmatched[found[0]]
    layer = "encoder.x_layers.1.visual_attention.att"
    assert records[layer].kind == records[f"{layer}#1"].kind == "cross"
    assert records[layer].weights.shape[2:] == records[f"{layer}#1"].weights.shape[:1:-1] == (5, 3)
    check_interventions(model, run, {layer: [layer, f"{layer}#1"], f"{layer}#1": [f"{layer}#1"]})


def models(small: Any) -> Iterator[tuple[str, nn.Module, dict[str, Any]]]:
    """Yield models with shared layers, several towers or cross-attention, and their inputs."""
    for name in ("albert", "bart", "clip", "t5", "gemma2", "mbart", "blenderbot", "marian", "pegasus", "opt"):
        if name in small.known:
            architecture = small.known[name]
            yield name, small.build(architecture), small.make_inputs(architecture)


def test_every_call_of_a_layer_is_recorded(small: Any) -> None:
    tried = 0
    for name, model, inputs in models(small):
        with torch.no_grad(), OperatorCapture() as kernels:
            model(**inputs)
        with warnings.catch_warnings(), torch.no_grad(), regard.record(model) as records:
            warnings.simplefilter("error")
            model(**inputs)
        assert len(records) == len(kernels.weights), name
        tried += 1
    assert tried >= 6


def test_one_name_everywhere(model_of: Callable[[str], Any], tokenizer: Any) -> None:
    model = model_of("llama")
    subject = regard.look(model, tokenizer)
    clean, corrupted = "the cat sat on the mat", "a big dog ran the mat"
    with torch.no_grad(), regard.record(model) as records:
        model(**tokenizer(clean, return_tensors="pt", return_token_type_ids=False))
    names = list(records)
    assert all(isinstance(model.get_submodule(name), nn.Module) for name in names)
    answers = ("cat", "dog")
    patched = regard.patch(subject, clean, corrupted, answers=answers)
    paths = regard.patch_paths(subject, clean, corrupted, answers=answers)
    assert names == [layer.name for layer in subject.layers] == list(subject.attend(clean).layers)
    assert names == list(patched.heads) == list(patched.layers) == list(paths.heads) == list(subject.removable)
    blocks = {f"{name.rpartition('.')[0]}.mlp" for name in names}
    assert blocks == set(patched.feed_forward) == set(paths.others) - {"inputs"}
    importance = subject.over([clean, corrupted]).importance()
    assert all(name in str(importance) for name in names)
    short = names[1].replace(".layers.", ".")
    for name in (names[1], short):
        assert records[name] is records[names[1]]
        assert list(subject.attend(clean).select(layers=[name]).layers) == [names[1]]
        with regard.intervene(subject, name, heads=[0]):
            assert not subject.attend(clean).layers[names[1]].weights[0].any()
        regard.patch_paths(subject, clean, corrupted, f"{name}.0.query", answers=answers)


def test_own_models_have_one_name() -> None:
    from regard.models.decoder_only import DecoderOnly, DecoderOnlyConfig

    model = DecoderOnly(DecoderOnlyConfig(layers=2, hidden=8, heads=2), symbols=9, longest=9)
    with regard.record(model) as records:
        model(torch.zeros(1, 4, dtype=torch.int64))
    names = ["decoder.0.self_attention", "decoder.1.self_attention"]
    assert list(records) == names == list(regard.make_maps(records)[0].layers)
    assert records["decoder.layers.1.self_attention"] is records[names[1]]
    for name in (names[1], "decoder.layers.1.self_attention"):
        with regard.record(model, layers=[name]) as records, regard.intervene(model, name):
            model(torch.zeros(1, 4, dtype=torch.int64))
        assert list(records) == names[1:]
        assert not records[name].weights.any()
