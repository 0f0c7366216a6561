"""Scores and all other parts equal float64 loops of the papers' equations and keep the contracts of attention."""

import copy
import math
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from regard import intervene, record
from regard.attention.layer import Attention
from regard.attention.masks import Window
from regard.attention.mechanism import PARTS, Mechanism, custom_parts, list_parts
from regard.attention.multihead import MultiHeadAttention
from regard.attention.parts import AttentionKind, Gate, LayerSizes, positions_of
from regard.attention.scores import SCORES, Additive, Concat, Dot, ScaledDot, Score, find_score
from regard.errors import InputError
from tests.attention.catalogue import CASES, HEADS, KINDS, PARTS_OF_LAYERS, SLOTS, WIDTH, fits, make_layer, make_states
from tests.attention.reference import attend_by_loops, score_of, weights_by_loops

each_case = pytest.mark.parametrize(("part", "kind"), CASES)
each_part = pytest.mark.parametrize("part", PARTS_OF_LAYERS)
LINEAR = SLOTS["linear"]


def test_the_tests_cover_every_part() -> None:
    embeddings = {"none", "learned", "sinusoidal", "concatenated"}
    assert {part.split(":")[0] for part in PARTS_OF_LAYERS} == set(PARTS) - embeddings
    for part in PARTS_OF_LAYERS:
        (choice,) = Mechanism.parse(part).choices
        assert part in SLOTS[choice.slot]
        assert set(choice.kinds) == {kind for kind in KINDS if fits(part, kind)}


def padding(time: int) -> Tensor:
    """Return a mask (2, time) in which the second sample has two steps of padding."""
    return torch.arange(time) < torch.tensor([[time], [time - 2]])


def loops_agree(text: str, kind: AttentionKind) -> None:
    """Compare outputs and weights with the loops, for a sample with padding and one without."""
    layer, (query, memory) = make_layer(text, kind), make_states(kind)
    mask = padding(memory.shape[1])
    with record(layer) as records:
        output = layer(query, memory, mask=mask)
    expected = attend_by_loops(layer, text, query, memory, mask)
    torch.testing.assert_close(output, expected, atol=1e-10, rtol=0)
    weights = records[""].weights
    if not any(part in text for part in LINEAR):
        reference = weights_by_loops(layer, text, query, memory, mask)
        torch.testing.assert_close(weights, reference, atol=1e-10, rtol=0)
    if layer.normalized:
        sums = weights.sum(-1)
        assert ((sums - 1).abs() < 1e-9).logical_or(sums == 0).all()


@each_case
def test_equals_float64_loops(part: str, kind: AttentionKind) -> None:
    loops_agree(part, kind)


@st.composite
def mechanisms(draw: st.DrawFn) -> tuple[str, AttentionKind]:
    """Draw a kind of layer, and at most one fitting part for each slot."""
    kind = draw(st.sampled_from(KINDS))
    linear = draw(st.integers(0, 4)) == 0
    slots = ("position", "gate", "sharing", "linear") if linear else tuple(SLOTS)[:-1]
    parts = []
    for slot in slots:
        choices = [part for part in SLOTS[slot] if fits(part, kind)]
        choices = [part for part in choices if not linear or part not in ("alibi", "t5:4:6")]
        part = draw(st.sampled_from(choices or [""]) if slot == "linear" else st.sampled_from(["", *choices]))
        parts.append(part)
    # The halves of a head of width 6 have the odd width 3, which rotary positions refuse.
    chosen = [part for part in parts if part and not ("rotary" in part and "differential" in parts)]
    return ",".join(chosen) or "softmax", kind


@settings(max_examples=60)
@given(mechanisms())
def test_combinations_equal_float64_loops(case: tuple[str, AttentionKind]) -> None:
    loops_agree(*case)


@settings(max_examples=40)
@given(mechanisms())
def test_combinations_record_without_changing_and_decode_with_a_cache(case: tuple[str, AttentionKind]) -> None:
    text, kind = case
    layer, (query, memory) = make_layer(text, kind), make_states(kind)
    plain = layer(query, memory)
    with record(layer):
        torch.testing.assert_close(layer(query, memory), plain, atol=1e-12, rtol=0)
    if kind == "causal":
        torch.testing.assert_close(decode(layer, query), plain, atol=1e-12, rtol=0)


def decode(layer: MultiHeadAttention, states: Tensor) -> Tensor:
    """Return the outputs of two steps at once, and then of single steps with the KV cache."""
    past = layer.project(states[:, :2])
    outputs = [layer.attend(states[:, :2], past)]
    for time in range(2, states.shape[1]):
        step = states[:, time : time + 1]
        past = layer.project(step, past=past)
        outputs.append(layer.attend(step, past))
    return torch.cat(outputs, dim=1)


@each_part
def test_a_kv_cache_gives_the_same_outputs(part: str) -> None:
    layer, (states, _) = make_layer(part), make_states("causal", time=8)
    torch.testing.assert_close(decode(layer, states), layer(states), atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("softmax", 2 * WIDTH),
        ("multi_query", 2 * WIDTH // HEADS),
        ("latent:3", 3),
        ("latent:3,rotary", 3),
        ("latent:3,differential", 3),
        ("latent:3,forgetting", 3 + HEADS),
    ],
)
def test_numbers_in_the_kv_cache_of_each_step(text: str, numbers: int) -> None:
    layer, (states, _) = make_layer(text), make_states("causal")
    past = layer.project(states[:, :2])
    for time in range(3, 7):
        past = layer.project(states[:, time - 1 : time], past=past)
        stored = sum(part.numel() for part in past if part is not None)
        assert stored == len(states) * time * numbers
    torch.testing.assert_close(decode(layer, states), layer(states), atol=1e-12, rtol=0)


@pytest.mark.parametrize("text", ["latent:3", "latent:3,rotary", "latent:3,general"])
def test_values_of_latent_attention_can_come_from_other_states_than_keys(text: str) -> None:
    layer, (states, _) = make_layer(text, "self"), make_states("self")
    others = states.flip(1)
    assert layer.sharing is not None
    plain = make_layer(text.replace("latent:3,", "").replace("latent:3", "softmax"), "self", memory_width=3)
    weights = {name: value for name, value in layer.state_dict().items() if not name.startswith("sharing")}
    plain.load_state_dict(weights)
    expected = plain(states, layer.sharing(states), layer.sharing(others))
    torch.testing.assert_close(layer(states, states, others), expected, atol=1e-12, rtol=0)


@each_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fully_masked_rows_are_zero_with_finite_gradients(part: str, kind: AttentionKind, dtype: torch.dtype) -> None:
    layer = make_layer(part, kind).to(dtype)
    query, memory = (states.to(dtype).requires_grad_() for states in make_states(kind))
    mask = torch.ones(2, memory.shape[1], dtype=torch.bool)
    mask[1] = False
    with record(layer) as records:
        output = layer(query, memory, mask=mask)
    assert output[0].any()
    assert not output[1].any()
    assert not records[""].weights[1].any()
    torch.testing.assert_close(layer(query, memory, mask=mask), output)
    (50 * output).square().sum().backward()
    for tensor in (query, memory, *layer.parameters()):
        assert tensor.grad is None or tensor.grad.isfinite().all()


@each_case
def test_a_sample_depends_neither_on_its_batch_nor_on_padding(part: str, kind: AttentionKind) -> None:
    layer, (query, memory) = make_layer(part, kind), make_states(kind, batch=3)
    time = memory.shape[1]
    mask = torch.arange(time) < torch.tensor([[time], [time - 2], [time - 1]])
    together = layer(query, memory, mask=mask)
    changed = memory.clone()
    changed[~mask] = 100.0
    torch.testing.assert_close(
        layer(changed if kind != "cross" else query, changed, mask=mask)[:, : time - 2],
        together[:, : time - 2],
        atol=1e-12,
        rtol=0,
    )
    for row, length in enumerate(mask.sum(1).tolist()):
        states = query[row : row + 1] if kind == "cross" else query[row : row + 1, :length]
        alone = layer(states, memory[row : row + 1, :length])
        torch.testing.assert_close(alone[0], together[row, : alone.shape[1]], atol=1e-12, rtol=0)


@each_part
def test_causal_layers_do_not_read_later_steps(part: str) -> None:
    layer, (states, _) = make_layer(part), make_states("causal")
    changed = states.clone()
    changed[:, 4:] = 7.0
    torch.testing.assert_close(layer(changed)[:, :4], layer(states)[:, :4], atol=1e-12, rtol=0)


@each_case
def test_gradients_are_those_of_finite_differences(part: str, kind: AttentionKind) -> None:
    layer, (query, memory) = make_layer(part, kind), make_states(kind, time=4)
    query.requires_grad_()
    assert torch.autograd.gradcheck(lambda states: layer(states, memory if kind == "cross" else states), query)
    for name, parameter in layer.named_parameters():

        def run(value: Tensor, name: str = name) -> Tensor:
            return torch.func.functional_call(layer, {name: value}, (query.detach(), memory.detach()))

        assert torch.autograd.gradcheck(run, parameter.detach().requires_grad_(), fast_mode=True), name


@each_case
def test_every_parameter_has_a_gradient(part: str, kind: AttentionKind) -> None:
    layer, (query, memory) = make_layer(part, kind), make_states(kind)
    layer(query, memory).square().sum().backward()
    without = [name for name, parameter in layer.named_parameters() if parameter.grad is None]
    assert not without


@each_case
def test_bfloat16_is_close_to_float64(part: str, kind: AttentionKind) -> None:
    """Parts that select keys can select different keys if scores are equal after rounding, so one tenth of their
    outputs may differ. The linear family divides small contexts by their size, which enlarges the rounding."""
    torch.manual_seed(1)
    options: Any = {"mechanism": part, "kind": kind, "memory_width": WIDTH}
    layer = MultiHeadAttention(WIDTH, HEADS, **options).double()
    states = torch.randn(2, 6, WIDTH, dtype=torch.float64) / 2
    rounded = copy.deepcopy(layer).bfloat16()
    exact = copy.deepcopy(rounded).double()
    states = states.bfloat16()
    output = rounded(states, states)
    assert output.dtype == torch.bfloat16
    differences = (output.double() - exact(states.double(), states.double())).abs()
    selects = part.split(":")[0] in ("topk", "sparsemax", "selective")
    assert differences.quantile(0.9 if selects else 1.0) < (2e-2 if part in LINEAR else 1e-2)
    with record(rounded) as records:
        torch.testing.assert_close(rounded(states, states), output, atol=1e-2, rtol=0)
    assert records[""].weights.isfinite().all()


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # RMSNorm, computed unfused
@each_case
def test_gradients_under_autocast_are_close_to_float32(part: str, kind: AttentionKind) -> None:
    torch.manual_seed(1)
    layer = MultiHeadAttention(WIDTH, HEADS, mechanism=part, kind=kind, memory_width=WIDTH)
    states = torch.randn(2, 6, WIDTH) / 2
    outputs = [layer(states, states)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs.append(layer(states, states))
    selects = part.split(":")[0] in ("topk", "sparsemax", "selective")
    exact, rounded = (torch.autograd.grad(each.float().square().sum(), layer.output.weight)[0] for each in outputs)
    differences = (exact - rounded).abs() / exact.abs().max()
    assert differences.quantile(0.9 if selects else 1.0) < 5e-2


@each_case
def test_a_head_can_be_ablated_and_a_weight_set(part: str, kind: AttentionKind) -> None:
    layer, (query, memory) = make_layer(part, kind), make_states(kind)
    with intervene(layer, "", heads=[1], to="off"), record(layer) as off:
        output = layer(query, memory)
    assert not off[""].weights[:, 1].any()
    assert off[""].weights[:, 0].any()
    with intervene(layer, "", heads=[0, 1], to="off"):
        assert not layer(query, memory).any()
    assert not torch.equal(output, layer(query, memory))
    if part in ("differential", "talking_heads", "gated_linear", "delta_rule"):
        with pytest.raises(InputError, match="its weights can be negative"):
            with intervene(layer, "", heads=[0], to=0.25, query=2, key=2):
                layer(query, memory)
        return
    with record(layer) as before:
        layer(query, memory)
    with intervene(layer, "", heads=[0], to=0.25, query=2, key=2), record(layer) as after:
        layer(query, memory)
    changed = (before[""].weights != after[""].weights).nonzero()[:, 1:3].unique(dim=0)
    assert changed.tolist() in ([[0, 2]], [])
    assert (after[""].weights[:, 0, 2, 2] == 0.25).all()


@each_case
def test_recorded_weights_and_values_give_the_output(part: str, kind: AttentionKind) -> None:
    """Output = W_o change(weights values), where gates and norms change the context of each head."""
    layer, (query, memory) = make_layer(part, kind), make_states(kind)
    with record(layer, "weights", "v") as cache:
        output = layer(query, memory)
    values = cache["v"].transpose(1, 2)
    context = cache["weights"] @ values.repeat_interleave(layer.heads // values.shape[1], 1)
    if layer.combination is not None:
        context = layer.combination.change_context(context)
    if layer.linear is not None:
        context = layer.linear.change_context(context)
    if layer.gate is not None:
        context = layer.gate(context, query)
    torch.testing.assert_close(layer.output(context.transpose(1, 2).flatten(2)), output, atol=1e-12, rtol=0)


def compiled_equals_eager(part: str, times: Sequence[int], **options: Any) -> None:
    """Compare outputs and gradients of a layer compiled with the default backend, in one graph."""
    torch._dynamo.reset()  # the compiler counts the layers of all tests
    layer = make_layer(part)
    compiled = torch.compile(layer, fullgraph=True, **options)
    for time in times:
        states, _ = make_states("causal", time=time)
        torch.testing.assert_close(compiled(states), layer(states), atol=1e-12, rtol=0)
        grads = []
        for module in (layer, compiled):
            layer.zero_grad()
            module(states).square().sum().backward()
            grads.append([parameter.grad.clone() for parameter in layer.parameters() if parameter.grad is not None])
        torch.testing.assert_close(*grads, atol=1e-10, rtol=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # warnings of PyTorch's own compiler
@each_part
def test_compiles(part: str) -> None:
    compiled_equals_eager(part, [6])


@pytest.mark.slow  # 35 s of CPU time before PyTorch has compiled its headers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", ["sink", "latent:3", "window:2"])
def test_one_compilation_serves_all_lengths(part: str) -> None:
    """Training compiles layers in this way."""
    compiled_equals_eager(part, [6, 9], dynamic=True)


@pytest.mark.parametrize("part", [*SLOTS["normalizer"], "causal", "window:2", "streaming:1:2", "alibi", "t5:4:6"])
def test_a_single_head_without_projections_has_the_same_parts(part: str) -> None:
    torch.manual_seed(0)
    states = torch.randn(2, 6, 4, dtype=torch.float64)
    single = Attention(mechanism=part).double()
    layer = MultiHeadAttention(4, 1, mechanism=part).double()
    for projection in (layer.query, layer.key, layer.value, layer.output):
        torch.nn.init.eye_(projection.weight)
    torch.testing.assert_close(single(states, states, states), layer(states), atol=1e-12, rtol=0)


@pytest.mark.parametrize("part", ["output_gate", "differential", "rotary", "latent", "linear", "cosine"])
def test_a_layer_without_projections_refuses_parts_that_need_them(part: str) -> None:
    with pytest.raises(InputError, match=f"attention part {part} needs "):
        Attention(mechanism=part, kind="causal" if part == "linear" else "self")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alibi,rotary", "attention parts alibi and rotary are both for the slot position: choose one of them"),
        ("sink+softmax", "attention parts sink and softmax are both for the slot normalizer: choose one of them"),
        ("alibbi", "attention part 'alibbi' is unknown: did you mean alibi"),
        ("", "attention part '' is unknown"),
        ("alibi,", "attention part '' is unknown"),
        ("window:wide", "attention part window: 'wide' is not a number"),
        ("learned:3", "attention part learned takes no numbers: write learned"),
        ("delta_rule,sink", "delta_rule has neither scores nor a window, so it excludes sink: leave one"),
        ("linear,alibi", "linear has neither scores nor a window, so it excludes alibi: leave one"),
        ("linear,window:2,cosine", "linear has neither scores nor a window, so it excludes cosine, window"),
        ("nowhere:Part", "attention part 'nowhere:Part' is not found: there is no module 'nowhere'"),
        ("torch:Tensor", "'torch:Tensor' is not a class derived from Score or from a class of regard.attention"),
    ],
)
def test_texts_that_are_not_mechanisms_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        Mechanism.parse(text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("window:0", "self", "window: width 0 is out of range: choose from 1"),
        ("window:2.5", "self", "window: width 2.5 is of type float: give int"),
        ("streaming:4:0", "self", "streaming: first 0 is out of range"),
        ("topk:0", "self", "topk: count 0 is out of range"),
        ("t5:3", "self", "t5: buckets 3 is out of range"),
        ("t5:32:16", "self", "t5: farthest 16 is out of range"),
        ("grouped:3", "self", "grouped: groups 3 is out of range: choose from 1 to 2"),
        ("latent:0", "self", "latent: width 0 is out of range"),
        ("soft_capped:-1", "self", "soft_capped: cap -1.0 is out of range: choose a finite number above 0"),
        ("soft_capped:nan", "self", "soft_capped: cap nan is out of range: choose a finite number above 0"),
        ("additive:0", "self", "additive: inner_width 0 is out of range: choose from 1"),
        ("concat:2.5", "self", "concat: inner_width 2.5 is of type float"),
        ("rotary:0.5", "self", "rotary: base 0.5 is out of range: choose a finite number above 1"),
        ("rotary:100:2", "self", "rotary: fraction 2.0 is out of range: choose above 0 and at most 1"),
        ("sink:3", "self", "attention part sink takes no numbers, and not 1: leave some out"),
        ("dot:1:2:3", "self", "attention part dot takes no numbers, and not 3: leave some out"),
        ("forgetting", "self", "attention part forgetting needs a layer of kind causal: this .* has self"),
        ("alibi", "cross", "attention part alibi needs a layer of kind causal or self: this .* has cross"),
        ("learned", "causal", "attention part learned acts on embeddings, which this .* does not offer"),
        ("tests.attention.test_mechanism:Broken", "self", "test_mechanism:Broken with no numbers cannot be built"),
    ],
)
def test_parts_that_do_not_fit_a_layer_are_refused(text: str, kind: AttentionKind, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        MultiHeadAttention(WIDTH, HEADS, mechanism=text, kind=kind)
    assert "\n" not in str(raised.value)


def test_differential_attention_needs_halves_of_even_width() -> None:
    with pytest.raises(InputError, match="differential: head width 3 is odd: choose an even width"):
        MultiHeadAttention(6, 2, mechanism="differential")
    with pytest.raises(InputError, match="head width 3 is odd: rotary positions need an even width"):
        MultiHeadAttention(12, 2, mechanism="differential,rotary")


def test_groups_are_chosen_once_and_divide_the_heads() -> None:
    with pytest.raises(InputError, match="grouped: 3 groups do not divide 4 heads: choose a divisor"):
        MultiHeadAttention(WIDTH, 4, mechanism="grouped:3")
    with pytest.raises(InputError, match="groups 1 and multi_query both choose the keys: give one of them"):
        MultiHeadAttention(WIDTH, HEADS, mechanism="multi_query", groups=1)


def test_a_mask_may_differ_between_heads() -> None:
    torch.manual_seed(3)
    mask = torch.rand(2, HEADS, 6, 6) < 0.6
    states, _ = make_states("self")
    layer = make_layer("differential", "self")
    with record(layer) as records:
        layer(states, mask=mask)
    assert not records[""].weights[~mask].any()


def test_state_has_each_parameter_once() -> None:
    for part in PARTS_OF_LAYERS:
        layer = make_layer(part)
        assert list(layer.state_dict()) == [name for name, _ in layer.named_parameters()]


def test_texts_are_read_back() -> None:
    mechanism = Mechanism.parse("rotary:1e6:0.25+sink, window:16")
    assert mechanism.text == "rotary:1000000:0.25,sink,window:16"
    assert Mechanism.parse(mechanism.text) == mechanism
    assert mechanism.without("mask").text == "rotary:1000000:0.25,sink"
    assert mechanism.position == "rotary"
    assert list_parts("mask") == ["causal", "window", "streaming"]


class Halved(Gate):
    """A custom part: the context divided by a number."""

    def __init__(self, sizes: LayerSizes, divisor: float = 2.0) -> None:
        super().__init__()
        del sizes
        self.divisor = divisor

    def forward(self, context: Tensor, states: Tensor) -> Tensor:
        del states
        return context / self.divisor


class Broken(Score):
    """A custom score that cannot be built."""

    def __init__(self, width: int, key_width: int) -> None:
        raise RuntimeError(f"no score\nof {width} and {key_width}")


def test_a_custom_part_is_named_by_module_and_class() -> None:
    text = "tests.attention.test_mechanism:Halved:4"
    layer, (states, _) = make_layer(text), make_states("causal")
    torch.testing.assert_close(layer(states), make_layer("softmax")(states) / 4)
    assert custom_parts(text) == ["tests.attention.test_mechanism:Halved"]
    with pytest.raises(InputError, match="are both for the slot gate"):
        Mechanism.parse(f"{text},head_gate")


EXAMPLE = Path(__file__).parents[2] / "examples" / "recent.py"


def test_the_example_of_a_part(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    monkeypatch.delitem(sys.modules, "recent", raising=False)
    names = runpy.run_path(str(EXAMPLE), run_name="__main__")
    factors = [(1 + distance) ** -2.0 for distance in (3, 2, 1, 0)]  # equal states: only the bias counts
    expected = ", ".join(f"{factor / sum(factors):.4f}" for factor in factors)
    assert expected in capsys.readouterr().out
    sizes = LayerSizes(width=4, memory_width=4, heads=2, head_width=2)
    biases = names["Recent"](sizes, 3)(*positions_of(2, 4, torch.device("cpu")))
    assert biases.shape == (2, 2, 4)
    assert biases[0, 1, 0].item() == pytest.approx(-3 * math.log(4))


@pytest.mark.parametrize("number", [0, 2**30 + 1, 2.5, math.nan, "2", True, None])
def test_numbers_out_of_range_are_refused(number: object) -> None:
    with pytest.raises(InputError, match="width .* is (out of range: choose from 1 to|of type .*: give int)"):
        Window(LayerSizes(width=4, memory_width=4, heads=1, head_width=4), number)  # type: ignore[arg-type]


each_score = pytest.mark.parametrize("name", SCORES)


@each_score
@pytest.mark.parametrize("lead", [(2,), (2, 3)], ids=["single", "heads"])
def test_agrees_with_its_equation(generator: torch.Generator, name: str, lead: tuple[int, ...]) -> None:
    key_width = 5 if issubclass(SCORES[name], Dot) else 7
    score = find_score(name)(5, key_width).double()
    query = torch.randn(*lead, 3, 5, generator=generator, dtype=torch.float64)
    keys = torch.randn(*lead, 4, key_width, generator=generator, dtype=torch.float64)
    mask = torch.arange(4) < torch.tensor([[4], [2], [0]])
    scores = score.rescale(score(query, score.prepare(keys)), mask)
    assert scores.shape == (*lead, 3, 4)
    with torch.no_grad():
        for at in torch.cartesian_prod(*map(torch.arange, scores.shape)).tolist():
            *where, q, k = at
            count = max(int(mask[q].sum()), 1)
            expected = score_of(score, query[(*where, q)], keys[(*where, k)], count)
            assert scores[tuple(at)].item() == pytest.approx(expected, abs=1e-12)


@each_score
def test_gradients_of_first_and_second_order(generator: torch.Generator, name: str) -> None:
    score = find_score(name)(3).double()
    query = torch.randn(1, 2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(1, 4, 3, generator=generator, dtype=torch.float64, requires_grad=True)

    def run(q: Tensor, k: Tensor) -> Tensor:
        return score(q, score.prepare(k))

    assert torch.autograd.gradcheck(run, (query, keys))
    assert torch.autograd.gradgradcheck(run, (query, keys))


def test_luongs_concat_and_bahdanaus_additive_are_one_function_of_two_parametrisations() -> None:
    concat, additive = Concat(5, 7), Additive(5, 7)
    with torch.no_grad():
        concat.both.weight.copy_(torch.cat([additive.query.weight, additive.key.weight], dim=1))
        concat.energy.weight.copy_(additive.energy.weight)
    query, keys = torch.randn(2, 3, 5), torch.randn(2, 4, 7)
    torch.testing.assert_close(concat(query, concat.prepare(keys)), additive(query, additive.prepare(keys)))


@each_score
def test_key_projections_are_computed_once_per_source(name: str) -> None:
    score = find_score(name)(5)
    attention = Attention(score)
    query, keys = torch.randn(2, 3, 5), torch.randn(2, 4, 5)
    prepared = score.prepare(keys)
    calls = []
    score.prepare = lambda states: calls.append(states)  # type: ignore[assignment, method-assign, return-value]
    steps = [attention(query[:, [i]], prepared, keys, prepared=True) for i in range(3)]
    assert calls == []
    del score.prepare
    torch.testing.assert_close(torch.cat(steps, dim=1), attention(query, keys, keys))


class Distance(Score):
    """A custom score: the negative distance."""

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return -torch.cdist(query, prepared)


def test_custom_score_is_found_by_module_and_class() -> None:
    assert find_score("tests.attention.test_mechanism:Distance") is Distance
    keys = torch.eye(3).unsqueeze(0) * 50
    context = Attention(Distance(3))(keys, keys, keys)
    torch.testing.assert_close(context, keys)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("additve", "score 'additve' is unknown: choose dot, .* or module:Class; did you mean additive?"),
        ("nowhere:Score", "score 'nowhere:Score' is not found: there is no module 'nowhere' in .*PYTHONPATH"),
        ("torch:Nothing", "score 'torch:Nothing' cannot be imported: AttributeError"),
        ("torch:Tensor", "score 'torch:Tensor' is not a class derived from regard.attention.scores.Score"),
    ],
)
def test_scores_that_cannot_be_found_are_refused(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_score(name)


def test_dot_products_need_equal_widths() -> None:
    with pytest.raises(InputError, match="queries of width 5 and keys of width 7 have no dot product"):
        ScaledDot(5, 7)


def test_scores_have_the_papers_parameters() -> None:
    shapes = {name: {k: tuple(v.shape) for k, v in find_score(name)(5, 5).named_parameters()} for name in SCORES}
    assert shapes == {
        "dot": {},
        "scaled_dot": {},
        "general": {"key.weight": (5, 5)},
        "concat": {"both.weight": (5, 10), "energy.weight": (1, 5)},
        "additive": {"query.weight": (5, 5), "key.weight": (5, 5), "energy.weight": (1, 5)},
        "cosine": {"gain": ()},
        "soft_capped": {},
        "scalable": {"gain": ()},
    }
    assert isinstance(find_score("general")(5), nn.Module)
