"""Records of Regard's layers: steps, selection, unchanged outputs, and the names of layers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import record
from regard.attention.blocks import Decoder, EncoderLayer
from regard.attention.layer import Attention, attention_layers
from regard.attention.multihead import MultiHeadAttention
from regard.attention.names import find_name, known_name, layer_name
from regard.attention.records import Record
from regard.data.vocabulary import EOS
from regard.decoding.search import beam_search, greedy_search
from regard.errors import InputError
from regard.models.base import Seq2Seq
from regard.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
from regard.models.transformer import Transformer, TransformerConfig
from tests.memory import grown_mib

SIZES: dict[str, Any] = {"source_symbols": 9, "target_symbols": 9}
MODELS: dict[str, Callable[[], Seq2Seq]] = {
    "transformer": lambda: Transformer(TransformerConfig(hidden=6, heads=2, inner=11), longest=12, **SIZES),
    "dot": lambda: Transformer(TransformerConfig(hidden=6, heads=2, inner=11, score="dot"), longest=12, **SIZES),
    "luong": lambda: RecurrentSeq2Seq(RecurrentConfig(hidden=6, embedding=5), **SIZES),
    "bahdanau": lambda: RecurrentSeq2Seq(RecurrentConfig(hidden=6, embedding=5, context="cell"), **SIZES),
}
SOURCE = torch.tensor([[4, 5, 6, 7], [8, 4, 3, 0]])
MASK = SOURCE > 0
TARGET = torch.tensor([[1, 4, 5, 6, 7], [1, 5, 4, 4, 8]])


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Seq2Seq:
    torch.manual_seed(0)
    model = MODELS[request.param]().eval()
    _, bias = model.vocabulary_layer
    if bias is not None:
        with torch.no_grad():
            bias[EOS] = -9.0  # an untrained model would stop immediately
    return model


def decoders_layers(model: Seq2Seq) -> list[str]:
    """Return the names of attention layers with steps."""
    return [layer_name(model, name) for name in attention_layers(model) if name.startswith("decoder")]


@pytest.mark.parametrize("limits", [{}, {"rows": [3, 0]}, {"rows": [4]}, {"heads": [0], "rows": [1, 2]}], ids=str)
def test_record_of_single_steps_equals_that_of_one_call(model: Seq2Seq, limits: dict[str, Any]) -> None:
    layers, names = decoders_layers(model), list("abcde")
    with record(model, layers=layers, query_labels=names, **limits) as stepped, torch.inference_mode():
        state = model.start(model.encode(SOURCE, MASK))
        for token in TARGET.split(1, dim=1):
            _, state = model.step(token, state)
    with record(model, layers=layers, query_labels=names, **limits) as whole, torch.inference_mode():
        model.read(TARGET, model.encode(SOURCE, MASK))
    assert list(stepped) == list(whole) == layers
    for name, expected in whole.items():
        found, shape = stepped[name], expected.weights.shape
        torch.testing.assert_close(found.weights, expected.weights, atol=1e-6, rtol=0)
        assert found.query_labels == expected.query_labels
        assert found.mask is not None and expected.mask is not None
        assert torch.equal(found.mask.expand(shape), expected.mask.expand(shape))


@pytest.mark.parametrize("limits", [{}, {"rows": [2, 0]}], ids=str)
def test_recording_steps_changes_nothing(model: Seq2Seq, limits: dict[str, Any]) -> None:
    with torch.inference_mode():
        state = plain = model.start(model.encode(SOURCE, MASK))
        for step in range(3):
            expected, plain = model.step(TARGET[:, step : step + 1], plain)
            with record(model, layers=decoders_layers(model), **limits):
                found, state = model.step(TARGET[:, step : step + 1], state)
            torch.testing.assert_close(found, expected, atol=1e-6 if not limits else 0, rtol=0)


def test_a_generation_is_one_record(model: Seq2Seq) -> None:
    with record(model) as records:
        [found] = greedy_search(model, SOURCE[:1], MASK[:1], max_len=6)
    steps = len(found.tokens) + 1  # row of the end symbol, or of the token beyond the limit
    assert steps > 2
    for name in decoders_layers(model):
        assert records[name].weights.shape[2] == steps
    with record(model) as again:
        greedy_search(model, SOURCE[:1], MASK[:1], max_len=6)
        greedy_search(model, SOURCE[:1], MASK[:1], max_len=1)  # starts a new record
    assert again[model.cross_layers[0]].weights.shape[2] == 2


def test_reordered_hypotheses_keep_only_their_last_step(model: Seq2Seq) -> None:
    seen = []
    step = model.step

    def counted(tokens: Tensor, state: Any) -> Any:
        seen.append(tokens.shape)
        return step(tokens, state)

    model.step = counted  # type: ignore[method-assign]
    with record(model, query_labels=list("abcdefg")) as records:
        beam_search(model, SOURCE[:1], MASK[:1], width=3, max_len=5)
    assert len(seen) > 2 and seen[-1] == (1, 3)
    cross = records[model.cross_layers[0]]
    assert cross.weights.shape[::2] == (1, 3)
    assert cross.query_labels == ["abcdefg"[len(seen) - 1]] * 3
    for name in decoders_layers(model):
        batch, _, queries, _ = records[name].weights.shape
        assert batch * queries == 3


@pytest.fixture
def layer() -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(6, 2)


def attend(layer: MultiHeadAttention, queries: int, step: int | None, *, batch: int = 2, keys: int = 5) -> None:
    """Attend with the same queries and keys in every call, truncated to the given lengths."""
    states = torch.randn(2, 7, 6, generator=torch.Generator().manual_seed(1))[:batch]
    first = step or 0
    layer.attend(states[:, first : first + queries], layer.project(states[:, :keys]), step=step)


Call = tuple[Any, ...]
"""Number of queries, step, and options of a call."""


def steps_of(layer: MultiHeadAttention, *calls: Call, **limits: Any) -> Record:
    with record(layer, query_labels=list("abcdefg"), **limits) as records:
        for queries, step, *sizes in calls:
            attend(layer, queries, step, **dict(*sizes))
    return records[""]


@pytest.mark.parametrize(
    "calls",
    [
        [(1, 0), (1, 1), (1, 2), (1, 3)],
        [(3, None), (1, 3)],  # after a prefix in one call
        [(2, None), (4, None)],
        [(1, 0), (1, 1), (4, None)],
    ],
    ids=str,
)
def test_consecutive_steps_extend_a_record(layer: MultiHeadAttention, calls: list[Call]) -> None:
    whole = steps_of(layer, (4, None)).weights
    torch.testing.assert_close(steps_of(layer, *calls).weights, whole, atol=1e-6, rtol=0)
    assert steps_of(layer, (1, 0), (1, 1), (1, 0)).weights.shape[2] == 1


@pytest.mark.parametrize(
    "calls",
    [
        [(2, None), (1, 3)],  # a step is missing
        [(1, 0), (1, 1), (1, 3)],
        [(4, None), (1, 3)],  # the step is already recorded
        [(3, None, {"batch": 1}), (1, 3)],  # steps of other sequences
        [(1, 2), (1, 3)],  # does not begin with the first step
        [(2, 0), (1, 1), (1, 2), (1, 3)],  # steps of hypotheses
    ],
    ids=str,
)
def test_other_calls_start_a_new_record(layer: MultiHeadAttention, calls: list[Call]) -> None:
    found = steps_of(layer, *calls)
    whole = steps_of(layer, (4, None)).weights
    torch.testing.assert_close(found.weights, whole[:, :, 3:], atol=1e-6, rtol=0)
    assert found.query_labels == ["d"]


def test_earlier_steps_have_zero_weight_on_later_keys(layer: MultiHeadAttention) -> None:
    found = steps_of(layer, (1, 0, {"keys": 2}), (1, 1, {"keys": 3}), (1, 2, {"keys": 5}))
    seen = torch.tensor([[True, True, False, False, False], [True, True, True, False, False], [True] * 5])
    assert found.mask is not None and torch.equal(found.mask.expand(2, 2, 3, 5), seen.expand(2, 2, 3, 5))
    assert torch.equal(found.weights > 0, seen.expand(2, 2, 3, 5))
    torch.testing.assert_close(found.weights.sum(-1), torch.ones(2, 2, 3))
    assert steps_of(layer, (1, 0), (1, 1)).mask is None


def test_steps_are_joined_once_on_first_access(layer: MultiHeadAttention, monkeypatch: pytest.MonkeyPatch) -> None:
    joined, cat = [], torch.cat
    layer.eval()  # in training, one product computes queries, keys and values, from a concatenated weight

    def counted(parts: list[Tensor], dim: int) -> Tensor:
        joined.append(len(parts))
        return cat(parts, dim=dim)

    monkeypatch.setattr(torch, "cat", counted)
    with record(layer) as records:
        for step in range(5):
            attend(layer, 1, step)
        assert joined == []
        early = records[""]
        assert joined == [5] and records[""] is early
        attend(layer, 1, 5)
    assert early.weights.shape[2] == 5
    assert records[""].weights.shape[2] == 6 and joined == [5, 2]
    assert torch.equal(records[""].weights[:, :, :5], early.weights)


def test_missing_row_is_refused_on_access(layer: MultiHeadAttention) -> None:
    with pytest.raises(InputError, match="rows 3 is out of range: choose from 0 to 1"):
        steps_of(layer, (1, 0), (1, 1), rows=[0, 3])
    with pytest.raises(InputError, match="rows 0 is out of range: choose from 3 to 3"):
        steps_of(layer, (1, 3), rows=[0])
    assert steps_of(layer, (1, 0), (1, 1), rows=[]).weights.shape == (2, 2, 0, 5)


def test_labels_are_those_of_existing_rows(layer: MultiHeadAttention) -> None:
    assert steps_of(layer, (1, 0), (1, 1), (1, 2), rows=[2, 0]).query_labels == ["c", "a"]
    assert steps_of(layer, (2, 5), rows=[5]).query_labels == ["f", "f"]
    with record(layer, query_labels=["a"], rows=[1]) as records:
        attend(layer, 2, None)
    assert records[""].query_labels is None


def test_repr_of_a_record_and_of_records(layer: MultiHeadAttention) -> None:
    with record(torch.nn.ModuleDict({"cross": layer})) as records:
        assert repr(records) == "<Records: nothing yet>"
        attend(layer, 1, None)
    assert repr(records) == "<Records: cross>"
    assert repr(records["cross"]) == "<Record: cross, weights (2, 2, 1, 5)>"
    with pytest.raises(KeyError):
        records["other"]


class Two(nn.Module):
    """A model with a single-head and a multi-head layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Attention()
        self.second = MultiHeadAttention(15, 3)

    def forward(self, query: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.second(self.first(query, memory, memory, mask), memory, memory, mask)


@pytest.fixture
def inputs(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    mask = torch.rand(2, 7, generator=generator) < 0.7
    return torch.randn(2, 5, 15, generator=generator), torch.randn(2, 7, 15, generator=generator), mask


def test_records_by_layer_name(inputs: tuple[Tensor, Tensor, Tensor]) -> None:
    model = Two()
    with record(model) as records:
        model(*inputs)
    assert set(records) == {"first", "second"}
    assert records["first"].weights.shape == (2, 1, 5, 7)
    assert records["second"].weights.shape == (2, 3, 5, 7)
    mask = records["second"].mask
    assert mask is not None
    assert (records["second"].weights[~mask.expand(2, 3, 5, 7)] == 0).all()
    torch.testing.assert_close(records["second"].weights.sum(-1), torch.ones(2, 3, 5))


def test_records_of_a_decoder_have_names_of_submodules() -> None:
    decoder = Decoder(2, 6, 2, 12)
    model = nn.ModuleDict({"decoder": decoder.layers})
    with record(model) as records:
        decoder(torch.zeros(1, 3, 6), decoder.project(torch.zeros(1, 4, 6)))
    assert list(records) == [
        "decoder.0.self_attention",
        "decoder.0.cross",
        "decoder.1.self_attention",
        "decoder.1.cross",
    ]
    assert records["decoder.1.cross"].weights.shape == (1, 2, 3, 4)


def test_some_layers_heads_and_rows(inputs: tuple[Tensor, Tensor, Tensor]) -> None:
    model = Two()
    plain = model(*inputs)
    with record(model) as everything:
        model(*inputs)
    with record(model, layers=["second"], heads=[2, 0], rows=[4, 1]) as records:
        recorded = model(*inputs)
    assert set(records) == {"second"}
    assert torch.equal(recorded, plain)
    expected = everything["second"].weights[:, [2, 0]][:, :, [4, 1]]
    torch.testing.assert_close(records["second"].weights, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("options", [{}, {"dropout": 0.3}, {"groups": 1}, {"rotary": True}])
@pytest.mark.parametrize("causal", [False, True])
def test_rows_of_a_masked_layer_are_the_rows_of_the_whole(
    generator: torch.Generator, options: dict[str, Any], causal: bool
) -> None:
    layer = MultiHeadAttention(12, 2, **options)
    states = torch.randn(2, 7, 12, generator=generator)
    mask = torch.rand(2, 7, 7, generator=generator) < 0.7
    found = []
    both: list[dict[str, Any]] = [{}, {"heads": [1], "rows": [0, 6, 3]}]
    for limits in both:
        torch.manual_seed(0)
        with record(layer, **limits) as records:
            layer(states, mask=mask, causal=causal)
        found.append(records[""])
    torch.testing.assert_close(found[1].weights, found[0].weights[:, [1]][:, :, [0, 6, 3]], atol=1e-6, rtol=0)
    allowed, rows = found[0].mask, found[1].mask
    assert allowed is not None and rows is not None
    whole = allowed.expand(2, 2, 7, 7)[:, [1]][:, :, [0, 6, 3]]
    assert torch.equal(rows.expand(whole.shape), whole)


def test_records_contain_labels(inputs: tuple[Tensor, Tensor, Tensor]) -> None:
    model = Two()
    with record(model, rows=[3, 0], query_labels=list("abcde"), key_labels=list("ABCDEFG")) as records:
        model(*inputs)
    assert records["first"].query_labels == ["d", "a"]
    assert records["first"].key_labels == list("ABCDEFG")


def test_unknown_layer_head_or_row_is_refused(inputs: tuple[Tensor, Tensor, Tensor]) -> None:
    model = Two()
    with pytest.raises(InputError, match="layer 'third' is unknown: choose first, second"):
        with record(model, layers=["third"]):
            pass
    with pytest.raises(InputError, match="heads 3 is out of range: choose from 0 to 2"):
        with record(model, layers=["second"], heads=[3]):
            model(*inputs)
    with pytest.raises(InputError, match="rows 5 is out of range: choose from 0 to 4"):
        with record(model, rows=[5]):
            model(*inputs)
    model(*inputs)


def test_hooks_are_removed_even_after_an_error(inputs: tuple[Tensor, Tensor, Tensor]) -> None:
    model = Two()
    with pytest.raises(ZeroDivisionError), record(model) as records:
        raise ZeroDivisionError
    model(*inputs)
    assert records == {}


def test_recordings_nest(inputs: tuple[Tensor, Tensor, Tensor]) -> None:
    model = Two()
    with record(model) as outer:
        with record(model.second) as inner:
            model(*inputs)
        assert set(inner) == {""}
        assert set(outer) == {"first"}
        model(*inputs)
        assert set(outer) == {"first", "second"}


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("limits", "time", "low", "high"), [("rows=[0, 17, 32_767]", 32_768, 0, 300), ("", 8_192, 1000, 9000)]
)
def test_rows_of_a_long_input_stay_small(causal: bool, limits: str, time: int, low: float, high: float) -> None:
    """Recording selected rows allocates no `T x T` matrix, which would take 4 GiB per head for 32,768 steps.
    All rows of 8,192 steps take 1 GiB.
    """
    grown = grown_mib(
        "import torch; from regard import record; from regard.attention.multihead import MultiHeadAttention;"
        f"layer, states = MultiHeadAttention(64, 4), torch.randn(1, {time}, 64)",
        f"with torch.no_grad(), record(layer, {limits}): layer(states, causal={causal})",
    )
    assert low <= grown < high


def test_own_models_leave_out_layers() -> None:
    assert layer_name(EncoderLayer(8, 2, 16), "decoder.layers.0.cross") == "decoder.0.cross"
    assert layer_name(nn.Linear(1, 1), "decoder.layers.0.cross") == "decoder.layers.0.cross"
    assert layer_name(nn.Linear(1, 1), "_orig_mod.decoder.layers.0") == "decoder.layers.0"


def test_both_forms_are_accepted() -> None:
    names = ["a.layers.0", "b.1", "b.1#1"]
    assert [find_name(name, names) for name in ("a.0", "a.layers.0", "b.layers.1", "b.layers.1#1", "c")] == [
        "a.layers.0",
        "a.layers.0",
        "b.1",
        "b.1#1",
        None,
    ]
    assert find_name("", ["", "a"]) == ""
    with pytest.raises(InputError, match=r"layer 'b\.2' is unknown"):
        known_name("b.2", names)
