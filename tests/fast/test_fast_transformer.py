"""The fast Transformer for searches equals its layers, and is used only if nothing observes the layers."""

import math
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import record
from regard.attention.interventions import intervene
from regard.attention.layer import explicit_weights
from regard.attention.multihead import keep_heads
from regard.attention.positions import Positions
from regard.data.batch import collate
from regard.data.vocabulary import PAD
from regard.decoding.search import (
    Hypothesis,
    ModuleDecoder,
    beam_search,
    compact_rows,
    greedy_search,
    make_decoder,
    sample,
    supports,
)
from regard.fast import onednn
from regard.fast.fast_transformer import FastTransformer
from regard.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
from regard.models.transformer import Transformer, TransformerConfig

SYMBOLS = 23
KINDS: dict[str, dict[str, Any]] = {
    "usual": {},
    "post-norm": {"pre_norm": False},
    "biases": {"bias": True, "output_bias": True},
    "rotary": {"positions": "rotary"},
    "rotary with biases": {"positions": "rotary", "bias": True, "pre_norm": False},
    "learned": {"positions": "learned"},
    "concatenated": {"positions": "concatenated"},
    "one's own": {"positions": "tests.fast.test_fast_transformer:Slope"},
    "gelu": {"activation": "gelu", "norm_epsilon": 1e-3},
    "swish, untied": {"activation": "swish", "tied": False},
}


class Slope(Positions):
    """Custom positions."""

    def vectors(self, first: int, count: int, device: torch.device | None = None) -> Tensor:
        """Return values that grow with the step."""
        steps = torch.arange(first, first + count, device=device, dtype=torch.float64)
        return steps.unsqueeze(1) / torch.arange(2, self.width + 2, device=device)


def make(seed: int = 0, **options: Any) -> Transformer:
    """Return a model of odd sizes with long answers, in float64."""
    torch.manual_seed(seed)
    config = TransformerConfig(**{"hidden": 12, "heads": 3, "inner": 10, "enc_layers": 2, "dec_layers": 3, **options})
    model = Transformer(config, source_symbols=SYMBOLS, target_symbols=SYMBOLS, longest=90).double().eval()
    with torch.no_grad():
        for name, each in model.named_parameters():
            if each.ndim == 1 or "positions" in name:  # zeros and ones would hide mistakes
                each.add_(torch.randn_like(each) / 4)
        model.target_embedding.weight.mul_(2.0)
    return model


def sources(*lengths: int) -> Tensor:
    """Return sources of several lengths."""
    generator = torch.Generator().manual_seed(5)
    return collate([torch.randint(4, SYMBOLS, (length,), generator=generator).tolist() for length in lengths])


def same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    """Check that hypotheses are equal up to rounding."""
    for one, other in zip(found, expected, strict=True):
        assert (one.tokens, one.finished) == (other.tokens, other.finished)
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-9)


LENGTHS = [(3, 1, 0, 7), (20, 17, 5), (70, 66)]


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_answers_equal_those_of_the_layers(kind: str, lengths: tuple[int, ...]) -> None:
    model, source = make(**KINDS[kind]), sources(*lengths)
    assert supports(model) and isinstance(make_decoder(model), FastTransformer)
    plain, mask = ModuleDecoder(model), source != PAD
    greedy = greedy_search(model, source, mask, max_len=40)
    same(greedy, greedy_search(plain, source, mask, max_len=40))
    for width in (1, 2, 5):
        options: Any = {"width": width, "n_best": width, "alpha": 0.6, "max_len": 20}
        found = beam_search(model, source, mask, **options)
        for one, other in zip(found, beam_search(plain, source, mask, **options), strict=True):
            same(one, other)
    drawn = [
        sample(each, source, mask, max_len=30, temperature=0.8, seeds=range(len(source))) for each in (model, plain)
    ]
    same(*drawn)


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_states_equal_those_of_the_layers_after_selection(kind: str) -> None:
    model, source = make(**KINDS[kind]), sources(4, 18, 2, 7, 11)
    generator = torch.Generator().manual_seed(3)
    steppers = [make_decoder(model), ModuleDecoder(model)]
    states = [each.start(each.encode(source, source != PAD)) for each in steppers]
    count, left = 1, 5
    for step in range(12):
        tokens = torch.randint(4, SYMBOLS, (left, count), generator=generator)
        both = [each.step(tokens, state) for each, state in zip(steppers, states, strict=True)]
        torch.testing.assert_close(both[0][0], both[1][0], rtol=0, atol=1e-10)
        states = [state for _, state in both]
        if step >= 2:  # one hypothesis per source at first, as in greedy search
            parents = torch.randint(0, count, (left, 3), generator=generator)
            states, count = [each.choose(parents) for each in states], 3
        if step in (1, 4, 7):
            going = [row != step // 3 for row in range(left)]
            rows = torch.tensor(compact_rows(going) if step < 7 else range(1, left))
            states, left = [each.keep(rows) for each in states], left - 1


def test_empty_source_is_answered() -> None:
    model, source = make(1), sources(4, 2)
    mask = (source != PAD) & torch.tensor([[True], [False]])
    same(greedy_search(model, source, mask, max_len=9), greedy_search(ModuleDecoder(model), source, mask, max_len=9))


@pytest.mark.parametrize("by_onednn", [True, False])
def test_large_matrices_are_packed(by_onednn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "is_faster", lambda: by_onednn)
    model, source = make(bias=True, output_bias=True).float(), sources(9, 4, 4)
    expected = beam_search(ModuleDecoder(model), source, source != PAD, width=3, max_len=20)
    monkeypatch.setattr(onednn, "MIN_PACKED", 1)
    found = beam_search(model, source, source != PAD, width=3, max_len=20)
    for [one], [other] in zip(found, expected, strict=True):
        assert one.tokens == other.tokens
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)


def test_unneeded_values_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, source = make(), sources(9, 4)
    scored = greedy_search(model, source, source != PAD, max_len=20)
    monkeypatch.setattr(torch, "log_softmax", None)
    found = greedy_search(model, source, source != PAD, max_len=20, scored=False)
    assert [each.tokens for each in found] == [each.tokens for each in scored]
    assert all(math.isnan(each.log_probability) for each in found)


@pytest.mark.parametrize(
    "interference",
    [
        lambda model: record(model),
        lambda model: record(model, layers=["encoder.1.self_attention"]),
        lambda model: intervene(model, "decoder.0.cross", heads=[1]),
        lambda model: explicit_weights(model),
        lambda model: torch.autocast("cpu", torch.bfloat16),
    ],
)
def test_layers_run_while_something_observes_them(interference: Any) -> None:
    model = make()
    block: AbstractContextManager[Any] = interference(model)
    with block:
        assert isinstance(make_decoder(model), ModuleDecoder)
    assert isinstance(make_decoder(model), FastTransformer)


def test_record_has_the_weights_of_the_search() -> None:
    model, source = make(), sources(6, 6)
    expected = greedy_search(model, source, source != PAD, max_len=12)
    with record(model) as records:
        same(greedy_search(model, source, source != PAD, max_len=12), expected)
    assert records["decoder.2.cross"].weights.shape[-1] == source.shape[1]


def test_hooks_are_called() -> None:
    model, source, seen = make(), sources(6), []
    with model.decoder.layers[0].register_forward_hook(lambda *_: seen.append(1)):
        greedy_search(model, source, source != PAD, max_len=3)
    assert seen


class Derived(Transformer):
    """A subclass, which may compute something else."""


def test_only_supported_models_use_the_fast_path() -> None:
    assert not supports(make().train())
    assert isinstance(make_decoder(make(), 100), ModuleDecoder)
    assert not supports(make(score="additive"))
    assert not supports(make().bfloat16())
    derived = make()
    derived.__class__ = Derived
    assert not supports(derived)
    config = RecurrentConfig(hidden=8, embedding=4)
    assert not supports(RecurrentSeq2Seq(config, source_symbols=7, target_symbols=7).eval())
    pruned = make()
    first: Any = pruned.decoder.layers[0]
    keep_heads(first.cross, [0, 2])
    shared = make(attention="multi_query")
    source = sources(5, 3)
    for model in (pruned, shared):
        assert not supports(model)
        assert greedy_search(model, source, source != PAD, max_len=9)


def test_search_uses_the_current_parameters() -> None:
    model, source = make(), sources(5)
    before = greedy_search(model, source, source != PAD, max_len=9)
    layer: Any = model.decoder.layers[2]
    with torch.no_grad():
        layer.feed_forward.outer.weight.mul_(-3)
    assert greedy_search(model, source, source != PAD, max_len=9) != before
