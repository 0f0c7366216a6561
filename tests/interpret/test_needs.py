"""Which heads a model needs, on models whose circuit is known."""

import copy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn_programs import planted_model
from known_modules import as_external, as_gpt2, as_module
from sentence_claims import judge, true_verdicts
from torch import Tensor, nn

import regard
from regard.attention.layer import attention_layers
from regard.interpret.estimates import NAMING, TOGETHER, describe_error, error_rates, is_reliable, rate_of
from regard.interpret.examination import make_examination
from regard.interpret.importance import head_importance
from regard.interpret.needs import Change, Needs, Resampling, decide, find_needs
from regard_lab.bench.known_models import compiled_model, trap_model


@pytest.mark.parametrize(("name", "kind"), [("reverse", "compiled"), ("sink", "trap")])
def test_needed_heads_of_a_known_circuit(name: str, kind: str) -> None:
    known = (trap_model if kind == "trap" else compiled_model)(name, 0)
    inputs = known.subject.unseen(500, 0, purpose="sentences")
    needs = find_needs(known.subject, inputs, head_importance(known.subject, samples=50).added)
    assert known.circuit is not None
    assert all(claim.right for claim in judge(needs, true_verdicts(known.circuit)))
    assert {"needed", "not needed"} <= set(needs.verdicts.values())
    assert not needs.sets
    assert any("not needed" in sentence for sentence in needs.sentences())


SETS = {
    "redundant-3": "needed only together with decoder.0.self_attention head 1 and decoder.0.self_attention head 2",
    "redundant-4": "needed only together with decoder.0.self_attention head 1 or decoder.0.self_attention head 2",
    "backup-0": "needed",
    "cancelling-1": "needed",
    "cancelling-2": "needed",
    "diffuse-0": "needed only together with ",
}
"""The verdict on the first head of planted models, whose circuit defines all verdicts."""


@pytest.mark.parametrize("name", SETS)
def test_planted_sets_are_found_however_the_model_is_given(name: str, tmp_path: Path) -> None:
    kind, _, number = name.partition("-")
    known = planted_model(kind, int(number), tmp_path)
    assert known.circuit is not None
    truths, run = true_verdicts(known.circuit), _needs(known.subject, 520)
    claims = [*judge(run, truths)]
    assert len(claims) >= len(truths) - 2 and all(claim.right for claim in claims)
    kinds = {kind for verdict, others in truths.values() for kind in (verdict, TOGETHER if others else verdict)}
    assert kinds == {claim.kind for claim in claims}
    assert run.verdict((LAYER, 0)).startswith(SETS[name])
    if name in ("backup-0", "cancelling-2") and find_spec("transformers") is not None:
        external = _needs(as_external(known, list(known.subject.unseen(520, 0, purpose="sentences"))), 520)
        assert [*external.verdicts.values()] == [*run.verdicts.values()]


def test_a_backup_is_joined_with_the_head_that_it_replaces(tmp_path: Path) -> None:
    needs = _needs(planted_model("backup", 0, tmp_path).subject, 520)
    assert needs.verdict(("decoder.1.self_attention", 0)) == f"backup for {LAYER} head 0"
    [found] = needs.sets
    assert found.backups == (("decoder.1.self_attention", 0),) and found.way == "off"
    assert "where decoder.1.self_attention head 0 acts only then" in needs.sentences()[0]


def test_nothing_is_claimed_about_an_untrained_model() -> None:
    known = compiled_model("reverse", 0)
    untrained = known.subject.untrained(7)
    inputs = untrained.unseen(100, 0)
    needs = find_needs(untrained, inputs, head_importance(untrained, samples=20).added)
    assert set(needs.verdicts.values()) == {"cannot be told"}
    assert "has learned more" in needs.sentences()[-1]


def test_both_ways_of_replacing_a_head_must_agree() -> None:
    heads = [("cross", head) for head in range(4)]
    resampled = dict(zip(heads, (40, 40, 0, 4), strict=True))
    missed = dict(zip(heads, (30, 0, 0, 4), strict=True))
    verdicts = decide(resampled, missed, 500)
    assert list(verdicts.values()) == ["needed", "cannot be told", "not needed", "cannot be told"]


def test_sentences_carry_their_error_rate() -> None:
    for kind, rate in error_rates().items():
        text = f"sentences {100 * rate.wrong / rate.tested:.0f} (" if rate.tested else "not measured"
        assert text in describe_error(kind)
        assert kind in NAMING or is_reliable(kind) == (rate.tested > 0 and rate.high <= 0.07)
    assert rate_of("needed", "x") == error_rates()["external: needed"] and is_reliable("fixed positions", "x")
    assert describe_error("unknown kind") == "error rate not measured"


# Contexts of heads are replaced by those of other inputs, and nothing is said where nothing changed.


LAYER = "decoder.0.self_attention"


def one_at_a_time(run: Any) -> Any:
    """Return a run whose losses are computed one input at a time."""

    class Single(type(run)):  # type: ignore[misc]
        def losses(self, inputs: Any) -> np.ndarray:
            return np.concatenate([type(run).losses(self, [input]) for input in inputs])

    single = copy.copy(run)
    object.__setattr__(single, "__class__", Single)
    return single


def _needs(subject: Any, samples: int) -> Needs:
    inputs = subject.unseen(samples, 0, purpose="sentences")
    return find_needs(subject, inputs, head_importance(subject, samples=5).added)


@pytest.mark.parametrize("name", ["previous", "histogram", pytest.param("reverse", marks=pytest.mark.slow)])
def test_however_a_model_is_given_its_needed_head_is_found(name: str) -> None:
    known = compiled_model(name, 0)
    run: Any = known.subject
    inputs = list(run.unseen(40, 0, purpose="sentences"))
    ways = [run, one_at_a_time(run), as_module(known, inputs)]
    if known.family == "decoder-only" and find_spec("transformers") is not None:
        ways.append(as_gpt2(known, inputs))
    needs = [_needs(way, 40) for way in ways]
    truth = {
        (layer, head): needed
        for layer, heads in known.circuit.needed.items()  # type: ignore[union-attr]
        for head, needed in enumerate(heads)
    }
    for way in needs:
        assert [*way.verdicts.values()] == [*needs[0].verdicts.values()] and "needed" in way.verdicts.values()
        shares = [[share["other"].mean for share in found.shares.values()] for found in (way, needs[0])]
        assert shares[0] == shares[1]
        assert all(change.changed == 40 for change in way.changes.values() if not change.reason)
    for head, verdict in needs[0].verdicts.items():
        assert verdict != "needed" or truth[head]
    assert any("differed in 40 or more of 40 inputs" in sentence for sentence in needs[0].sentences())


def test_a_loss_in_batches_of_a_module_is_resampled() -> None:
    known = compiled_model("previous", 0)
    run: Any = known.subject
    resampling = Resampling(run, run.unseen(40, 0))
    assert max(group.size for group in resampling.groups) > 1
    single = one_at_a_time(run)
    alone = Resampling(single, run.unseen(40, 0))
    assert {group.size for group in alone.groups} == {1}
    losses, change = resampling.replace([(LAYER, 0)])
    others, same = alone.replace([(LAYER, 0)])
    assert np.allclose(losses, others, atol=1e-5) and change[:2] == same[:2] == (40, 40)


def test_nothing_is_said_about_heads_whose_context_is_constant() -> None:
    needs = _needs(trap_model("constant-heads", 0).subject, 60)
    constant = [head for head, change in needs.changes.items() if not change.changed]
    assert len(constant) >= 4 and {needs.verdicts[head] for head in constant} == {"cannot be told"}
    [sentence] = [text for text in needs.sentences() if "its context is the same for all inputs" in text]
    assert all(f"{layer} head {head}" in sentence for layer, head in constant)
    assert not any(head in constant for found in needs.sets for head in found.heads)


def test_a_head_that_writes_zero() -> None:
    run: Any = compiled_model("previous", 0).subject
    layer: Any = attention_layers(run.model)["decoder.layers.0.self_attention"]
    with torch.no_grad():
        layer.value.weight[: layer.head_width] = 0.0
    importance = head_importance(run, samples=20)
    assert importance.added[LAYER][0] == 0.0 and "is zero for all" in importance.unchanged_reason(LAYER, 0)
    examination = make_examination([], importance, task="previous", seed=0)
    assert "cannot be told: its context is zero for all inputs" in examination.heads[0].sentence()
    assert examination.kinds[LAYER][0]["loss"] == "what switching it off does cannot be told"
    needs = _needs(run, 20)
    assert needs.silent == [(LAYER, 0)]


def test_differences_within_rounding_are_none() -> None:
    """Quiet spare heads write only where nothing reads."""
    importance = head_importance(compiled_model("previous", 0).subject, samples=20)
    sentences = [head.sentence() for head in make_examination([], importance, task="", seed=0).heads]
    assert "raises the loss" in sentences[0]
    assert all("makes no difference that can be measured to the loss" in text for text in sentences[1:])
    assert not any("0.000 " in text for text in sentences)


class _Blocks(nn.Module):
    """Two layers of attention without feed-forward layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 16)
        self.blocks = nn.ModuleList(nn.MultiheadAttention(16, 2, batch_first=True) for _ in range(2))

    def forward(self, tokens: Tensor) -> Tensor:
        states: Tensor = self.embed(tokens)
        for block in self.blocks:
            states = states + block(states, states, states)[0]
        return states


def _module(texts: list[str], *, noise: float = 0.0) -> Any:
    torch.manual_seed(0)

    def read(text: str) -> Tensor:
        return torch.tensor([[ord(letter) % 8 for letter in text]])

    def loss(model: nn.Module, text: str) -> float:
        return float(model(read(text)).square().sum()) + noise * float(torch.rand(()))

    return regard.look(_Blocks(), read, inputs=texts, loss=loss)


def test_a_missing_feed_forward_layer_is_no_reason_about_heads() -> None:
    module = _module(["abcd", "bcda"])
    components = module.components
    assert not components.left_out and set(components.feed_forward_left_out) == {"blocks.0", "blocks.1"}
    assert not any("cannot be resampled" in remark for remark in _needs(module, 2).remarks)


def test_inputs_of_other_lengths_are_cut() -> None:
    texts = ["abcdefgh"[: length + 1] for length in range(6)]
    module = _module(texts)
    resampling = Resampling(module, module.unseen(6, 0))
    assert (resampling.inputs, resampling.alone) == (5, 1)
    losses, change = resampling.replace([("blocks.0", 0)], "mean")
    assert change.inputs == 5 and (losses != resampling.losses).sum() == change.changed
    needs = _needs(module, 6)
    assert any("1 input had no other input of this length or longer" in remark for remark in needs.remarks)


def test_one_input_says_why_nothing_can_be_said() -> None:
    for samples in (1, 0):
        module = _module(["abcd"])
        needs = find_needs(module, module.unseen(1, 0)[:samples], {})
        assert not needs.verdicts and "only one input" in needs.sentences()[0]
    assert "in only 40% of" in Change(100, 40, 1.0).reason and Change(100, 95, 1.0).reason == ""


def test_a_loss_with_random_numbers_shows_no_effect() -> None:
    module = _module(["abcd", "bcda", "cdab", "dabc"], noise=50.0)
    needs = _needs(module, 4)
    assert set(needs.verdicts.values()) == {"cannot be told"}
    assert needs.learned is False or "changes when it is computed again" in " ".join(needs.remarks)
