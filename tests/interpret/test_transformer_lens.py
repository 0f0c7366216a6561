"""Patching, attribution, lens and composition equal those of TransformerLens on the same parameters.

The tests are skipped without TransformerLens before version 4, which still has `HookedTransformer`.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from tests.interpret.subjects import language_run
from tests.interpret.test_published_code import convert

pytestmark = pytest.mark.filterwarnings("ignore")
CLEAN, CORRUPTED = "ABCDAB", "BBCDAB"
LAYERS = ["decoder.0.self_attention", "decoder.1.self_attention"]


class Pair:
    """A run, and the same model in TransformerLens, with the activations of a clean and a corrupted input."""

    def __init__(self, lens: Any, folder: Path) -> None:
        self.run = language_run(folder)
        self.patching = lens.patching
        self.theirs = convert(lens, self.run)
        self.tokens = [self.run.task.parse(text) for text in (CLEAN, CORRUPTED)]
        with torch.no_grad():
            self.logits, self.cache = self.theirs.run_with_cache(self.tokens[0])


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    lens = pytest.importorskip("transformer_lens", reason="needs transformer_lens<4")
    if not hasattr(lens, "HookedTransformer"):
        pytest.skip("needs transformer_lens<4")
    return Pair(lens, tmp_path_factory.mktemp("lens"))


def difference(logits: Tensor) -> Tensor:
    """The difference between two logits at the last step, of logits (T, C) or (1, T, C)."""
    last = logits.reshape(-1, logits.shape[-1])[-1]
    return last[0] - last[2]


def close(ours: Any, theirs: Tensor) -> bool:
    """Whether values differ by at most 1e-4 of the largest; measured: 5e-6."""
    theirs = theirs.detach().double()
    ours = torch.as_tensor(ours, dtype=torch.float64).reshape(theirs.shape)
    return float(theirs.abs().max()) > 1e-3 and torch.allclose(
        ours, theirs, rtol=0, atol=1e-4 * float(theirs.abs().max())
    )


@torch.no_grad()
def test_models_are_equal(pair: Pair) -> None:
    assert close(pair.run.model(pair.tokens[0]), pair.logits)


@torch.no_grad()
def test_activation_patching(pair: Pair) -> None:
    base = difference(pair.theirs(pair.tokens[1]))
    whole = difference(pair.logits) - base

    def effect(values: Tensor) -> Tensor:
        return (values - base) / whole

    ours = regard.patch(pair.run, CLEAN, CORRUPTED, metric=difference)
    heads = pair.patching.get_act_patch_attn_head_out_all_pos(pair.theirs, pair.tokens[1], pair.cache, difference)
    assert close([ours.heads[name] for name in LAYERS], effect(heads))
    one = regard.patch(pair.run, CLEAN, CORRUPTED, metric=difference, positions=0)
    layers = pair.patching.get_act_patch_mlp_out(pair.theirs, pair.tokens[1], pair.cache, difference)[:, 0]
    assert close(list(one.feed_forward.values()), effect(layers))
    states = pair.patching.get_act_patch_resid_pre(pair.theirs, pair.tokens[1], pair.cache, difference)[1, 0]
    assert close(one.states["decoder.0"], effect(states))


def test_attribution_patching(pair: Pair) -> None:
    ours = regard.attribute(
        pair.run, [CLEAN], method="attribution_patching", level="heads", target=-1, others=[CORRUPTED, CLEAN]
    ).heads
    assert ours is not None
    with torch.no_grad():
        _, corrupted = pair.theirs.run_with_cache(pair.tokens[1])
    predicted = int(pair.logits[0, -1].argmax())
    gradients: dict[str, Tensor] = {}
    with pair.theirs.hooks(
        bwd_hooks=[(lambda name: name.endswith("hook_z"), lambda grad, hook: gradients.update({hook.name: grad}))]
    ):
        pair.theirs(pair.tokens[0])[0, -1].log_softmax(-1)[predicted].backward()
    for number, name in enumerate(LAYERS):
        key = f"blocks.{number}.attn.hook_z"
        effects = ((pair.cache[key] - corrupted[key]) * gradients[key]).sum((0, 1, 3)).abs()
        assert close(ours[name], effects)


@torch.no_grad()
def test_logit_lens(pair: Pair) -> None:
    ours = regard.logit_lens(pair.run, CLEAN, count=3).probabilities
    for number, probabilities in enumerate(ours[:2]):
        states = pair.cache["resid_pre", number]
        logits = pair.theirs.unembed(pair.theirs.ln_final(states))
        assert close(probabilities, logits[0].softmax(-1).topk(3).values)


@torch.no_grad()
def test_direct_logit_attribution(pair: Pair) -> None:
    ours = regard.logit_attribution(pair.run, CLEAN, token="B").heads
    [token] = pair.run.task.parse("B").flatten().tolist()
    parts = pair.cache.stack_head_results(layer=-1, pos_slice=-1, apply_ln=True)[:, 0]
    logits = parts @ (pair.theirs.ln_final.w * pair.theirs.W_U[:, token])
    assert close([ours[name] for name in LAYERS], logits.view(2, -1))


@pytest.mark.parametrize(("kind", "letter"), [("query", "Q"), ("key", "K"), ("value", "V")])
@torch.no_grad()
def test_composition_scores(pair: Pair, kind: str, letter: str) -> None:
    ours = regard.composition(pair.run).scores
    theirs = pair.theirs.all_composition_scores(letter)[0, :, 1]
    pairs = [[ours[f"{LAYERS[0]}.{a}", f"{LAYERS[1]}.{b}.{kind}"] for b in range(2)] for a in range(2)]
    assert close(pairs, theirs)
