"""Recording of transformers models, in addition to the checks of every architecture."""

import copy
import pickle
import threading
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.errors import InputError
from tests.external.test_token_labels import NumberTokenizer

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=["bert", "llama", "t5", "gptj"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(model: nn.Module, inputs: dict[str, Any], **options: Any) -> tuple[Any, Any]:
    with torch.no_grad(), regard.record(model, **options) as records:
        output = model(**inputs)
    return output, records


def test_selected_heads_and_rows_equal_those_of_all(small: Any, name: str) -> None:
    model, inputs = small.build(small.known[name]), small.make_inputs(small.known[name])
    _, whole = run(model, inputs)
    with torch.no_grad():
        plain = model(**inputs)[0]
    output, some = run(model, inputs, heads=[3, 1], rows=[5, 0])
    assert list(some) == list(whole)
    torch.testing.assert_close(output[0], plain, atol=1e-5, rtol=1e-5)
    for layer, kept in some.items():
        expected = whole[layer].weights[:, [3, 1]][:, :, [5, 0]]
        torch.testing.assert_close(kept.weights, expected, atol=1e-5, rtol=0)
        mask, every = kept.mask, whole[layer].mask
        assert (mask is None) == (every is None)
        if mask is not None and every is not None:
            assert torch.equal(mask, every.expand_as(whole[layer].weights)[:, [3, 1]][:, :, [5, 0]])


def test_only_requested_layers_are_computed(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.activations import transformers_attention

    model, inputs = small.build(small.known["llama"]), small.make_inputs(small.known["llama"])
    asked: list[str] = []
    eager = transformers_attention.InterfaceCall.weights

    def count(self: Any, chosen: Any) -> Any:
        asked.append("eager")
        return eager(self, chosen)

    monkeypatch.setattr(transformers_attention.InterfaceCall, "weights", count)
    _, records = run(model, inputs, layers=["model.layers.1.self_attn"])
    assert list(records) == ["model.layers.1.self_attn"] and len(asked) == 1
    with pytest.raises(
        InputError, match=r"'model.layers.7.self_attn' is unknown: .*did you mean model.layers.1.self_attn"
    ):
        run(model, inputs, layers=["model.layers.7.self_attn"])
    with pytest.raises(InputError, match="heads 4 is out of range: choose from 0 to 3"):
        run(model, inputs, heads=[4])
    assert model.config._attn_implementation == "sdpa"


def test_caller_gets_the_outputs_it_asked_for(small: Any, name: str) -> None:
    model, inputs = small.build(small.known[name], "eager"), small.make_inputs(small.known[name])
    with torch.no_grad():
        expected = model(**inputs, output_attentions=True)
        as_tuple = model(**inputs, return_dict=False)
        with regard.record(model):
            recorded = model(**inputs, output_attentions=True)
            plain, recorded_tuple = model(**inputs), model(**inputs, return_dict=False)
    key = "encoder_attentions" if name == "t5" else "attentions"
    for one, other in zip(recorded[key], expected[key], strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
    assert not plain.get(key) and len(recorded_tuple) == len(as_tuple)


def test_masks_equal_those_of_the_model(small: Any) -> None:
    """T5 adds its biases and the smallest float32 number to the scores."""
    model, inputs = small.build(small.known["t5"]), small.make_inputs(small.known["t5"])
    _, records = run(model, inputs)
    present = inputs["attention_mask"].bool()[:, None, None]
    encoder = records["encoder.block.0.layer.0.SelfAttention"]
    cross = records["decoder.block.1.layer.1.EncDecAttention"]
    decoder = records["decoder.block.1.layer.0.SelfAttention"]
    assert torch.equal(encoder.mask.expand_as(encoder.weights), present.expand_as(encoder.weights))
    assert torch.equal(cross.mask.expand_as(cross.weights), present.expand_as(cross.weights))
    assert torch.equal(decoder.mask.expand_as(decoder.weights)[0, 0], torch.ones(7, 7).tril() > 0)
    assert [record.kind for record in (encoder, decoder, cross)] == ["encoder", "decoder", "cross"]


def test_half_precision_uses_float32_softmax(small: Any) -> None:
    known = small.known["bert"]
    inputs = small.make_inputs(known)
    model = small.build(known).to(torch.bfloat16)
    _, records = run(model, inputs)
    _, exact = run(copy.deepcopy(model).float(), inputs)
    for layer, kept in records.items():
        assert kept.weights.dtype == torch.float32
        sums = kept.weights.sum(-1)
        torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-6, rtol=0)
        torch.testing.assert_close(kept.weights, exact[layer].weights, atol=0.05, rtol=0)


def test_gradients_flow(small: Any, name: str) -> None:
    model, inputs = small.build(small.known[name]), small.make_inputs(small.known[name])
    plain = torch.autograd.grad(model(**inputs)[0].square().mean(), list(model.parameters()), allow_unused=True)
    with regard.record(model):
        loss = model(**inputs)[0].square().mean()
    recorded = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    for actual, expected in zip(recorded, plain, strict=True):
        assert (actual is None) == (expected is None)
        if actual is not None and expected is not None:
            torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-3)


def test_threads_do_not_mix(small: Any) -> None:
    """Two threads run and record the same model, and either thread ends first."""
    known = small.known["llama"]
    model, inputs = small.build(known), small.make_inputs(known)
    other = {"input_ids": torch.full((1, 4), 7)}
    other_records: dict[str, Any] = {}
    inside, done = threading.Event(), threading.Event()

    def run_too() -> None:
        with torch.no_grad(), regard.record(model) as records:
            model(**other)
            inside.set()
            done.wait(20)
            model(**other)
        other_records.update(records)

    thread = threading.Thread(target=run_too)
    with torch.no_grad(), regard.record(model) as records:
        thread.start()
        assert inside.wait(20)
        assert not records
        model(**inputs)
    done.set()
    thread.join()
    assert [each.weights.shape for each in records.values()] == [(2, 4, 9, 9)] * 2
    assert [each.weights.shape for each in other_records.values()] == [(1, 4, 4, 4)] * 2
    assert model.config._attn_implementation == "sdpa"


def test_copies_made_while_recording_are_not_recorded(small: Any, name: str) -> None:
    known = small.known[name]
    model, inputs = small.build(known), small.make_inputs(known)
    with torch.no_grad(), regard.record(model) as records:
        copies = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        for duplicate in copies:
            duplicate(**inputs)
        assert not records
        plain = model(**inputs)[0]
    with torch.no_grad():
        for duplicate in copies:
            torch.testing.assert_close(duplicate(**inputs)[0], plain, atol=1e-5, rtol=1e-5)
    assert records


def test_finished_beams_have_no_more_rows(small: Any) -> None:
    """Each returned hypothesis has the rows of its ancestors."""
    known = small.known["bart"]
    model, inputs = small.build(known), small.make_inputs(known, batch=3)
    inputs.pop("decoder_input_ids")
    model.final_logits_bias[0, 2] = 2.5  # so that they end
    options = {"num_beams": 4, "max_new_tokens": 9, "num_return_sequences": 2, "early_stopping": True}
    with torch.no_grad(), regard.record(model) as records:
        sequences = model.generate(**inputs, **options)
    lengths = (sequences[:, 1:] == 2).int().argmax(1) + 1
    assert len(set(lengths.tolist())) > 1
    model.set_attn_implementation("eager")
    with torch.no_grad():
        inputs = {key: value.repeat_interleave(2, dim=0) for key, value in inputs.items()}
        whole = model(**inputs, decoder_input_ids=sequences[:, :-1], output_attentions=True)
    for layer in (0, 1):
        for kind, expected in (("self_attn", whole.decoder_attentions), ("encoder_attn", whole.cross_attentions)):
            weights = records[f"model.decoder.{layer}.{kind}"].weights
            for row, length in enumerate(lengths.tolist()):
                actual, rows = weights[row, :, :length], expected[layer][row, :, :length]
                torch.testing.assert_close(actual, rows[..., : actual.shape[-1]], atol=1e-5, rtol=0)
                assert (weights[row, :, length:] == 0).all()


def test_rows_of_later_steps(small: Any) -> None:
    known = small.known["llama"]
    model, inputs = small.build(known), small.make_inputs(known, "none")
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
    with torch.no_grad(), regard.record(model) as whole:
        model.generate(**inputs, **options)
    with torch.no_grad(), regard.record(model, rows=[11, 2]) as some:
        model.generate(**inputs, **options)
    for selected, complete in zip(some.values(), whole.values(), strict=True):
        torch.testing.assert_close(selected.weights, complete.weights[:, :, [11, 2]], atol=1e-6, rtol=0)
    with torch.no_grad(), regard.record(model, rows=[12]) as none:
        model.generate(**inputs, **options)
    with pytest.raises(InputError, match="rows 12 is out of range: choose from 0 to 11"):
        none["model.layers.0.self_attn"].weights  # noqa: B018


def test_model_that_replaces_layers_in_its_first_pass(small: Any) -> None:
    """BigBird replaces sparse attention with full attention for short inputs."""
    known = small.known["big_bird"]
    model, inputs = small.build(known), small.make_inputs(known)
    _, first = run(model, inputs)
    _, second = run(model, inputs)
    assert list(first) == ["encoder.layer.0.attention.self", "encoder.layer.1.attention.self"]
    for one, other in zip(first.values(), second.values(), strict=True):
        assert torch.equal(one.weights, other.weights)


def test_expanded_windows_give_the_context_of_the_layer(small: Any) -> None:
    """The comparison includes global keys, and the rows of global queries, which use other projections."""
    known = small.known["longformer"]
    model, inputs = small.build(known), small.make_inputs(known)
    seen: Tensor = torch.zeros_like(inputs["input_ids"])
    seen[0, [0, 6]] = 1
    seen[1, 2] = 1
    _, records = run(model, inputs | {"global_attention_mask": seen})
    kept: list[Tensor] = []
    layer = model.encoder.layer[0].attention.self
    layer.register_forward_hook(lambda _, args, output: kept.extend([args[0], output[0]]))
    with torch.no_grad():
        model(**inputs, global_attention_mask=seen)
        states, context = kept[0], kept[1][:, :9]
        weights = records["encoder.layer.0.attention.self"].weights
        value, everywhere = layer.value(states)[:, :9], layer.value_global(states)[:, :9]
    for row in range(2):
        found = (weights[row] @ value[row].unflatten(-1, (4, 8)).transpose(0, 1)).transpose(0, 1).flatten(1)
        other = (weights[row] @ everywhere[row].unflatten(-1, (4, 8)).transpose(0, 1)).transpose(0, 1).flatten(1)
        expected = torch.where(seen[row, :, None] > 0, other, found)
        present = inputs["attention_mask"][row].bool()
        torch.testing.assert_close(context[row][present], expected[present], atol=1e-4, rtol=1e-4)


def test_equal_lengths_of_source_and_target_keep_their_own_tokens(small: Any) -> None:
    known = small.known["bart"]
    model, inputs = small.build(known), small.make_inputs(known)
    inputs["decoder_input_ids"] = torch.arange(20, 38).view(2, 9)

    output, records = run(model, inputs, tokenizer=NumberTokenizer())
    source = [str(each) for each in inputs["input_ids"][1].tolist()[:6]] + ["<pad>"] * 3
    read = [str(each) for each in range(29, 38)]
    target = [*read[1:], str(int(output.logits[1, -1].argmax()))]
    assert records["model.encoder.layers.1.self_attn"].labels_of(1) == (source, source)
    assert records["model.decoder.layers.1.self_attn"].labels_of(1) == (target, read)
    assert records["model.decoder.layers.1.encoder_attn"].labels_of(1) == (target, source)
    shown = regard.make_maps(records)[1].layers["model.decoder.layers.1.encoder_attn"]
    assert (shown.query_labels, shown.key_labels) == (target, source)


def test_models_without_attention_give_a_warning(small: Any) -> None:
    model, inputs = small.build(small.known["fnet"]), small.make_inputs(small.known["fnet"])
    with pytest.warns(UserWarning, match="FNetModel ran, and nothing was recorded"):
        run(model, inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with regard.record(model):
            pass


BY_HAND = ["bloom", "codegen", "ctrl", "deberta-v2", "gptj", "mpt", "roformer", "xlnet"]
"""Models that compute attention in their own code, and return weights but no mask."""
TOKENS = torch.arange(3, 10).expand(2, 7)


@pytest.mark.parametrize(
    ("name", "implementation"),
    [("gpt2", "eager"), ("gpt2", "sdpa"), ("llama", "eager"), ("llama", "sdpa"), ("llama", "flex_attention")],
)
def test_causal_mask_is_recorded_with_every_implementation(small: Any, name: str, implementation: str) -> None:
    model = small.build(small.known[name])
    model.set_attn_implementation(implementation)
    past = torch.ones(7, 7).tril().bool()
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        with regard.record(model) as records:
            model(TOKENS)
        layer = next(iter(records))
        with regard.intervene(model, layer, heads=[0], to="uniform"), regard.record(model) as changed:
            model(TOKENS)
    for record in records.values():
        assert record.mask is not None and torch.equal(record.mask.expand(2, 1, 7, 7)[1, 0], past)
    even = past / past.sum(-1, keepdim=True)
    torch.testing.assert_close(changed[layer].weights[:, 0], even.expand(2, 7, 7))


@torch.no_grad()
@pytest.mark.parametrize("masked", ["row", "left"])
@pytest.mark.parametrize("name", BY_HAND)
def test_fully_masked_rows_have_no_weight_without_the_interface(small: Any, name: str, masked: str) -> None:
    from every_architecture import build, first_accepted_inputs, run

    inputs = first_accepted_inputs(build(name), masked)
    plain = run(build(name), inputs)
    model = build(name)
    with regard.record(model) as records:
        output = run(model, inputs)
    assert torch.equal(plain[0], output[0]) and records
    for record in records.values():
        assert record.mask is not None
        sees = record.mask.expand_as(record.weights).any(-1)
        sums = record.weights.sum(-1)
        torch.testing.assert_close(sums, sees.float(), atol=1e-5, rtol=0)
        assert sees[0].all() and not (masked == "row" and sees[1].any())
        there = inputs["attention_mask"][1] != 0  # XLNet's padding attends to itself
        assert not record.weights[1][:, there][..., ~there].any()


@torch.no_grad()
def test_even_row_without_padding_keeps_its_weights(small: Any) -> None:
    model = small.build(small.known["bloom"])
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.zero_()
    model.transformer.build_alibi_tensor = lambda mask, heads, dtype: torch.zeros(len(mask) * heads, 1, 7)
    with regard.record(model) as records:
        model(TOKENS, attention_mask=torch.tensor([[1] * 7, [0] + [1] * 6]))
    weights = next(iter(records.values())).weights
    torch.testing.assert_close(weights[0, :, -1], torch.full((weights.shape[1], 7), 1 / 7))
    torch.testing.assert_close(weights[1, :, -1, 1:], torch.full((weights.shape[1], 6), 1 / 6))
