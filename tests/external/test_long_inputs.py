"""Records of long inputs equal the records of all weights."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import regard
from regard.activations import capture_session
from regard.activations.weights import record_weights
from regard.errors import InputError
from regard.external import layer_maps
from regard.external.layer_maps import record_long


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_maps, "BLOCK", 32)


def compare(long: Any, whole: Any) -> None:
    assert list(long) == list(whole)
    for name, each in long.items():
        weights = whole[name].weights
        values = weights.topk(5, dim=-1).values
        torch.testing.assert_close(each.values, values, atol=1e-6, rtol=0)
        torch.testing.assert_close(weights.gather(-1, each.keys.long()), values, atol=1e-6, rtol=0)
        for side in (16, 48):
            expected = torch.stack(
                [
                    torch.stack([square.amax((-2, -1)) for square in row.split(side, dim=-1)], -1)
                    for row in weights.split(side, dim=-2)
                ],
                -2,
            )
            torch.testing.assert_close(each.maxima(side), expected, atol=1e-6, rtol=0)
        torch.testing.assert_close(each.rows([69, 3]), weights[:, :, [69, 3]], atol=1e-6, rtol=0)


def test_long_inputs_of_pytorch_layers(generator: torch.Generator) -> None:
    class Own(nn.Module):
        def forward(self, states: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(states, states, states, is_causal=True)

    model, states = Own(), torch.randn(2, 3, 70, 4, generator=generator)
    with record_weights(model) as whole:
        plain = model(states)
    with record_long(model, largest=5, side=16) as long:
        assert torch.equal(model(states), plain)
    compare(long, whole)
    with pytest.raises(InputError, match="side=24 is not a multiple of 16: choose 16, 32, 64"):
        long[""].maxima(24)
    with pytest.raises(InputError, match="rows 70 is out of range: choose from 0 to 69"):
        long[""].rows([70])
    with pytest.raises(InputError, match="largest 0 is out of range"):
        with record_long(model, largest=0, side=16):
            pass


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["llama", "gemma2", "gptj"])
def test_long_inputs_of_transformers_models(small: Any, name: str) -> None:
    model = small.build(small.known[name])
    given = {"input_ids": torch.arange(140).view(2, 70) % 57 + 3}
    with torch.no_grad():
        with record_weights(model) as whole:
            plain = model(**given)[0]
        with record_long(model, largest=5, side=16) as long:
            found = model(**given)[0]
    torch.testing.assert_close(found, plain, atol=1e-5, rtol=1e-5)
    compare(long, whole)


@pytest.mark.filterwarnings("ignore")
def test_at_most_one_block_of_rows_is_computed_at_once(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.activations import transformers_attention

    asked: list[int] = []
    weights = transformers_attention.InterfaceCall.weights

    def count(self: Any, chosen: Any) -> Any:
        found = weights(self, chosen)
        asked.append(found[0].shape[2])
        return found

    monkeypatch.setattr(transformers_attention.InterfaceCall, "weights", count)
    monkeypatch.setattr(capture_session, "BLOCK", 8)
    model = small.build(small.known["llama"])
    given = {"input_ids": torch.arange(70).view(1, 70) % 57 + 3}
    with torch.no_grad(), record_long(model, side=16):
        model(**given)
    assert asked == [32, 32, 6] * 2
    asked.clear()
    with torch.no_grad(), record_weights(model, heads=[1]):
        model(**given)
    assert max(asked) == 8 and sum(asked) == 140


@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
def test_map_of_a_long_input_has_the_largest_weights(
    small: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = regard.look(small.build(small.known["llama"]), tokenizer)
    text = " ".join(["the cat sat on a mat and then"] * 9)  # 72 tokens
    whole = subject.attend(text)
    monkeypatch.setattr(layer_maps, "LONG", 50)
    found = subject.attend(text)
    assert found.prediction == whole.prediction
    for name, layer in found.layers.items():
        assert layer.weights.shape == (4, 5, 5) and layer.kind == "decoder"
        for row, column in ((0, 0), (4, 1), (3, 3)):
            square = whole.layers[name].weights[:, row * 16 : row * 16 + 16, column * 16 : column * 16 + 16]
            np.testing.assert_allclose(layer.weights[:, row, column], square.max((1, 2)), atol=1e-6)
    assert layer.key_labels[1] == "16 the" and "in each square of 16 by 16 steps" in layer.title


class WordModel(nn.Module):
    """A layer over words; each word has its own vector."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        states = 3 * self.embedding(input_ids)
        found: torch.Tensor = self.attention(states, states, states)[0]
        return found


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A subject for which forty words are a long input."""
    monkeypatch.setattr(layer_maps, "LONG", 39)
    torch.manual_seed(0)
    ids = {"input_ids": torch.arange(40).unsqueeze(0)}
    return regard.look(WordModel(), lambda text: ids, inputs=["long"])


def whole_weights(subject: Any) -> Any:
    with torch.no_grad(), record_weights(subject.model) as records:
        subject.model(torch.arange(40).unsqueeze(0))
    return records["attention"].weights[0].numpy()


def test_every_row_of_a_map_is_exact(words: Any) -> None:
    [layer] = words.attend("long").layers.values()
    weights = whole_weights(words)
    assert layer.weights.shape == (2, 3, 3) and layer.rows.side == 16
    for step in (0, 17, 39):
        assert abs(layer.rows.of(step) - weights[:, step]).max() < 1e-6
    assert len(layer.rows.queries) == len(layer.rows.keys) == 40
    with pytest.raises(InputError, match="rows 40 is out of range: choose from 0 to 39"):
        layer.rows.of(40)


def test_explorer_returns_a_row(words: Any) -> None:
    app = pytest.importorskip("regard.server.app")
    from tests.server.test_app import Client

    client = Client(app.make_app(app.Explorer(words)))
    asked: dict[str, Any] = {"input": "long", "layer": "attention", "head": 1, "step": 30}
    for _ in range(2):  # before and after the map is requested
        found = client.post("/api/row", asked).json()
        assert abs(torch.tensor(found["weights"]) - torch.tensor(whole_weights(words)[1, 30])).max() < 1e-6
        order = [each["weight"] for each in found["largest"]]
        assert order == sorted(found["weights"], reverse=True)[:12] and found["query"] == "30"
        assert client.post("/api/attend", {"input": "long"}).json()["map"]["layers"][0]["square"] == 16
    touched = [{"layer": "attention", "heads": [1], "to": "uniform"}]
    even = client.post("/api/row", {**asked, "interventions": touched}).json()["weights"]
    assert even == pytest.approx([1 / 40] * 40)
    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"step": 40}, "step 40 is out of range: choose from 0 to 39"),
        ({"head": 2}, "head 2 is out of range: choose from 0 to 1"),
        ({"layer": "other"}, "layer 'other' is unknown: choose attention"),
    ]
    for wrong, said in wrongs:
        refused = client.post("/api/row", {**asked, **wrong})
        assert (refused.status_code, refused.json()["error"]) == (422, said)


def test_a_row_of_a_short_input_is_that_of_its_map(words: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    app = pytest.importorskip("regard.server.app")
    from tests.server.test_app import Client

    monkeypatch.setattr(layer_maps, "LONG", 40)
    asked = {"input": "long", "layer": "attention", "step": 2}
    answer = Client(app.make_app(app.Explorer(words))).post("/api/row", asked)
    expected = words.attend("long").layers["attention"]
    assert expected.rows is None and answer.status_code == 200
    np.testing.assert_array_equal(answer.json()["weights"], expected.weights[0, 2])


def test_dropped_steps_of_a_generation_give_a_warning(small: Any) -> None:
    model, tokens = small.build(small.known["llama"]), torch.arange(5, 13)[None]
    with pytest.warns(UserWarning, match="stores only the last pass of each layer") as warned:
        with torch.no_grad(), record_long(model) as records:
            model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=3, do_sample=False)
    assert len(warned) == 1 and next(iter(records.values())).values.shape[2] == 1


def test_keys_of_a_sliding_window_are_numbered_from_the_first_step(small: Any) -> None:
    """A cache with a window drops keys, and the keys of a record keep their steps."""
    model, tokens = small.build(small.known["mistral"]), torch.arange(5, 13)[None]
    model.config.sliding_window = 4

    def generate() -> None:
        with torch.no_grad():
            model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=3, do_sample=False)

    with pytest.warns(UserWarning, match="stores only the last pass"), record_long(model, largest=4) as long_records:
        generate()
    with record_weights(model) as records:
        generate()
    for name, long_record in long_records.items():
        assert long_record.keys.min() > 0
        weights = records[name].weights[:, :, -1:].gather(-1, long_record.keys.long())
        torch.testing.assert_close(long_record.values, weights)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_of_a_causal_layer_are_computed_in_blocks_of_queries(
    generator: torch.Generator, dtype: torch.dtype
) -> None:
    """Several blocks give the weights of eager attention, in a pass, under vmap, and for single rows."""
    transformers = pytest.importorskip("transformers", reason="needs the extra peers")
    config = {"n_layer": 2, "n_embd": 16, "n_head": 2, "vocab_size": 50, "n_positions": 300}
    model = transformers.GPT2Model(transformers.GPT2Config(**config)).eval()
    eager = transformers.GPT2Model(transformers.GPT2Config(**config, attn_implementation="eager")).eval()
    eager.load_state_dict(model.state_dict())
    model, tokens = model.to(dtype), torch.randint(50, (2, 290), generator=generator)
    with torch.no_grad(), record_weights(model) as records:
        model(tokens)
    states = model.wte(tokens)[:, None]
    with torch.no_grad(), record_weights(model) as mapped:
        torch.func.vmap(lambda each: model(inputs_embeds=each).last_hidden_state)(states)
    with record_weights(model, heads=[1], rows=[0, 150, 289]) as rows:
        model(tokens)
    tolerance: Any = {"atol": 1e-6 if dtype == torch.float32 else 1e-3, "rtol": 0}
    for name, expected in zip(records, eager(tokens, output_attentions=True).attentions, strict=True):
        torch.testing.assert_close(records[name].weights, expected, **tolerance)
        torch.testing.assert_close(mapped[name].weights, expected, **tolerance)
        torch.testing.assert_close(rows[name].weights, expected[:, [1]][:, :, [0, 150, 289]], **tolerance)
