"""Every feature of a run is right for each attention mechanism, or refuses it in one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.attention.layer import attention_layers, find_layer
from regard.attention.mechanism import PARTS
from regard.attention.multihead import MultiHeadAttention
from regard.errors import InputError
from regard.runs.live_page import live_data
from regard.training.trust_code import check_trusted, code_digests

MECHANISMS = (
    "alibi,sink",
    "window:4",
    "differential",
    "delta_rule",
    "latent",
    "output_gate",
    "talking_heads",
    "forgetting",
    "entmax",
    "scalable",
)
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("dates", {"heads": 2, "inner": 16, "enc_layers": 1, "dec_layers": 1, "hidden": 16}),
    "query": ("signal", {"multihead": True, "heads": 2, "enc_layers": 1, "pos_enc": True, "hidden": 16}),
    "recurrent": ("dates", {"hidden": 16, "embedding": 8, "context": "cell"}),
    "pooling": ("counting", {"hidden": 16}),
}
"""Task and flags of each model besides the decoder."""
CUSTOM = """
import torch
from regard.attention.parts import Gate, Normalizer, PositionBias

class Squared(Normalizer):
    def __init__(self, sizes, power=2):
        super().__init__()
        self.power = power

    def forward(self, scores, mask):
        weights = scores.masked_fill(~mask, -1e9).softmax(-1) * mask
        weights = weights**self.power
        return weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)

class Plain:
    def __init__(self, sizes):
        super().__init__()
class Leaking(Plain, Normalizer):
    def forward(self, scores, mask):
        return scores.softmax(-1)
class Narrow(Plain, Gate):
    def forward(self, context, states):
        return context[..., :1]
class Flat(Plain, PositionBias):
    def forward(self, queries, keys):
        return (queries - keys).float()
class Mixing(Plain, Gate):
    def forward(self, context, states):
        return context + context.mean(0)
class Unscaled(Plain, Normalizer):
    def forward(self, scores, mask):
        return scores.sigmoid() * mask
class Peeking(Plain, Gate):
    def forward(self, context, states):
        return context + context.mean(2, keepdim=True)
"""


def train(folder: Path, attention: str, model: str = "decoder", **flags: Any) -> Any:
    task, options = OTHERS.get(model, ("induction", {"hidden": 16, "heads": 2}))
    options = {"steps": 4, "batchsize": 4, **options, **flags}
    return regard.train(task, model=model, attention=attention, savepath=folder, progress=False, **options)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Decoder-only runs by mechanism. Tests must not change them."""
    return {name: train(tmp_path_factory.mktemp("runs"), name, snapshots=2) for name in MECHANISMS}


def by_layers(run: Any, **options: Any) -> list[Any]:
    return [run.explain(layer=layer.name, head=layer.heads - 1, **options) for layer in run.layers]


def check_sums(run: Any, explanation: Any) -> None:
    """Recompute every printed sum from the numbers printed before."""
    if explanation.steps and not explanation.score_changes:
        total = sum(list(explanation.steps.values())[-1]) * explanation.scale
        assert total == pytest.approx(explanation.score, abs=1e-5)
    np.testing.assert_allclose(
        np.array(explanation.weights) @ np.array(explanation.values), explanation.context, atol=1e-5
    )
    if explanation.normalizer == "softmax over the row":
        scores = np.where(explanation.may_see, explanation.scores, -np.inf)
        weights = np.exp(scores - scores.max())
        np.testing.assert_allclose(explanation.weights, weights / weights.sum(), atol=1e-5)
    if explanation.own_part is not None:
        layer = find_layer(run.model, explanation.layer)
        own = explanation.context if explanation.changed_context is None else explanation.changed_context
        assert isinstance(layer, MultiHeadAttention)
        matrix = layer.output.weight.detach().double().unflatten(1, (layer.heads, -1))
        expected = matrix[:, explanation.head] @ torch.tensor(own, dtype=torch.float64)
        np.testing.assert_allclose(explanation.own_part, expected, atol=1e-5)


@pytest.mark.parametrize("name", MECHANISMS)
def test_explanations_add_up(runs: dict[str, Any], name: str) -> None:
    for explanation in by_layers(runs[name], output=3):
        check_sums(runs[name], explanation)


@pytest.mark.parametrize("name", MECHANISMS)
def test_own_parts_of_all_heads_are_the_output(runs: dict[str, Any], name: str) -> None:
    layer = runs[name].layers[0].name
    heads = [runs[name].explain(layer=layer, head=head, output=3) for head in range(2)]
    total = np.sum([head.own_part for head in heads], axis=0)
    np.testing.assert_allclose(total, heads[0].added, atol=1e-5)


def test_explanations_name_the_parts_whose_steps_are_not_shown(runs: dict[str, Any]) -> None:
    def text(name: str) -> str:
        return str(runs[name].explain(output=3))

    assert "Changed by alibi to" in text("alibi,sink") and "2. The weights: sink over the row" in text("alibi,sink")
    assert "then differential" in text("differential") and "after differential" in text("differential")
    assert "This mechanism has no score" in text("delta_rule")
    assert "implied by the recurrence delta_rule" in text("delta_rule")
    assert "after output_gate" in text("output_gate")
    assert "Changed by scalable to" in text("scalable")
    assert "2. The weights: softmax over the row" in text("latent") and "Changed" not in text("latent")


@pytest.mark.parametrize("model", OTHERS)
@pytest.mark.parametrize("name", ["sink", "entmax"])
def test_explanations_of_other_models_add_up(tmp_path: Path, model: str, name: str) -> None:
    run = train(tmp_path, name, model)
    for explanation in by_layers(run):
        check_sums(run, explanation)
        assert explanation.normalizer == f"{name} over the row"
    assert ("need not sum to 1 (sink)" in str(run.attend())) is (name == "sink")


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("alibi,sink", "rows need not sum to 1 (sink)"),
        ("differential", "weights can be negative (differential)"),
        ("delta_rule", "weights are those that the recurrence delta_rule implies"),
        ("output_gate", "weights are those before the context is changed (output_gate)"),
        ("entmax", ""),
        ("latent", ""),
    ],
)
def test_what_the_weights_are_is_said(runs: dict[str, Any], name: str, remark: str) -> None:
    run = runs[name]
    with regard.record(run.model) as records:
        run.model(torch.zeros(1, 5, dtype=torch.int64))
    notes = {
        records["decoder.0.self_attention"].remark,
        run.attend().note,
        regard.make_maps(records)[0].note,
        run.roles(samples=10).remark,
    }
    assert all(remark in note if remark else not note for note in notes)
    timeline = regard.timeline([run], samples=2, progress=False)
    assert any(remark in note for note in timeline.notes) if remark else not timeline.remark


@pytest.mark.parametrize("name", MECHANISMS)
def test_measurements_are_finite_or_undefined(runs: dict[str, Any], name: str) -> None:
    run = runs[name]
    run.importance(samples=5), run.examine(samples=5), run.playback()
    [development] = regard.timeline([run], samples=5, progress=False).runs
    normalized = all(layer.normalized for layer in attention_layers(run.model).values())
    assert np.isfinite(development.entropy).all() == normalized
    assert not np.isinf(development.entropy).any()


def test_temperature_is_refused_unless_weights_are_a_softmax(runs: dict[str, Any]) -> None:
    for name in ("alibi,sink", "differential", "delta_rule", "talking_heads", "entmax"):
        with pytest.raises(InputError, match="has no temperature: its weights are not a softmax of the scores"):
            runs[name].explain(temperature=2.0)
    explanation = runs["window:4"].explain(output=3, temperature=2.0)
    scores = np.where(explanation.may_see, explanation.scores, -np.inf) / 2
    np.testing.assert_allclose(explanation.weights, np.exp(scores) / np.exp(scores).sum(), atol=1e-5)


def test_a_single_weight_is_not_set_among_negative_weights(runs: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="its weights can be negative"):
        regard.intervene(runs["differential"], "decoder.0.self_attention", to=0.5, query=2, key=1).__enter__()


def test_pages_without_the_computation_say_so(runs: dict[str, Any]) -> None:
    run = runs["alibi,sink"]
    shown = run.with_sums(run.attend())
    assert shown.sums is None and "does not contain the computation" in shown.note
    plain = runs["window:4"]
    shown = plain.with_sums(plain.attend())
    assert shown.sums is not None and not shown.note


def test_weighted_values_leave_out_changed_contexts(runs: dict[str, Any]) -> None:
    gated = regard.weighted_values(runs["output_gate"], None)
    assert not gated.norms and set(gated.left_out.values()) == {"its context is changed by output_gate"}
    assert not regard.weighted_values(runs["alibi,sink"], None).left_out


@pytest.mark.parametrize("name", MECHANISMS)
def test_language_models_are_refused_by_hugging_face(runs: dict[str, Any], name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"attention {name} is not supported by Hugging Face"):
        regard.export(runs[name], tmp_path / "out", to="huggingface", license="mit", progress=False)
    assert not (tmp_path / "out").exists()


def test_positions_and_groups_of_the_flag_are_exported(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    options: dict[str, Any] = {"norm": "rms", "activation": "swiglu", "tied": False}
    run = train(tmp_path, "rotary:500,grouped:1", **options)
    folder = regard.export(run, tmp_path / "out", to="huggingface", license="mit", progress=False)
    config = json.loads((folder / "config.json").read_text())
    assert config["rope_parameters"]["rope_theta"] == 500 and config["num_key_value_heads"] == 1


@pytest.mark.parametrize(
    "name", ["alibi,sink", *(pytest.param(name, marks=pytest.mark.slow) for name in ("latent", "forgetting"))]
)
def test_transformers_are_exported_exactly_or_refused(name: str, tmp_path: Path) -> None:
    run = train(tmp_path / "run", name, "transformer")
    with pytest.raises(InputError, match=f"does not compute the attention mechanism {name}"):
        live_data(run)


def test_pruning_needs_parts_without_a_value_for_each_head(runs: dict[str, Any], tmp_path: Path) -> None:
    for name in ("alibi,sink", "differential", "output_gate", "latent"):
        with pytest.raises(InputError, match="no layer with two or more heads that can be pruned"):
            regard.prune(runs[name], output=tmp_path / "no")
    report = regard.prune(runs["entmax"], output=tmp_path / "pruned")
    [(layer, head)] = report.removed
    loss = runs["entmax"].loss(runs["entmax"].unseen(5, 0))
    with regard.intervene(runs["entmax"], layer, heads=[head]):
        assert runs["entmax"].loss(runs["entmax"].unseen(5, 0)) != loss
        expected = runs["entmax"].loss(runs["entmax"].unseen(5, 0))
    assert report.run.loss(report.run.unseen(5, 0)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["delta_rule", "alibi,sink"])
def test_a_resumed_run_equals_an_uninterrupted_run(name: str, check_resumed: Callable[..., Any]) -> None:
    check_resumed("induction", 4, attention=name, hidden=16, heads=2, steps=6, batchsize=4, progress=False)


@pytest.mark.parametrize("model", ["recurrent", "transformer", "query"])
@pytest.mark.parametrize("name", ["sink", "scalable"])
def test_the_reference_path_gives_the_same_answers(
    model: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(tmp_path, name, model)
    inputs = run.unseen(8, 0)
    fast = run.losses(inputs)
    monkeypatch.setenv("REGARD_REFERENCE", "1")
    np.testing.assert_allclose(regard.load(run.folder).losses(inputs), fast, rtol=1e-5)


class TestCustomParts:
    """A custom part is named by module:Class."""

    @pytest.fixture(autouse=True)
    def _module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "custom_mechanisms.py").write_text(CUSTOM)
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)

    def test_trains_and_is_explained(self, tmp_path: Path) -> None:
        run = train(tmp_path, "custom_mechanisms:Squared:3,alibi")
        assert run.config.custom_parts == ["attention part 'custom_mechanisms:Squared'"]
        assert regard.load(run.folder).explain(output=3).normalizer == "Squared over the row"
        with pytest.raises(InputError, match="no live page"):
            live_data(run)

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("Leaking", "gives masked keys a weight"),
            ("Narrow", r"gives context of shape \(2, 2, 5, 1\): expected \(2, 2, 5, 6\)"),
            ("Flat", r"gives biases of shape \(5, 5\): expected \(2, 5, 5\)"),
            ("Mixing", "reads other samples of the batch"),
            ("Unscaled", "gives rows that do not sum to 1 over keys"),
            ("Peeking", "reads later steps: in a causal layer"),
        ],
    )
    def test_faults_are_found_before_training(self, tmp_path: Path, name: str, message: str) -> None:
        with pytest.raises(InputError, match=message):
            train(tmp_path, f"custom_mechanisms:{name}")
        assert not (tmp_path / "induction").exists()

    def test_code_of_others_is_not_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "foreign_part.py").write_text("raise RuntimeError('executed')")
        stored = {"on": "induction", "kind": "decoder", "options": {"attention": "alibi+foreign_part:Part:2"}}
        assert list(code_digests(stored)) == ["attention part 'foreign_part:Part'"]
        with pytest.raises(InputError, match="uses code that was never used"):
            check_trusted(stored, tmp_path, trust_code=False)


@pytest.mark.parametrize(
    ("task", "flags", "message"),
    [
        ("induction", "--attention windwo", "did you mean window?"),
        ("induction", "--attention rotary --rotary_base 500", "both choose the base"),
        ("induction", "--attention alibi --positions rotary", "slot position: give one of them, or --positions none"),
        ("induction", "--attention regard.attention.parts:Gate", "NotImplementedError"),
        ("dates", "--model transformer --attention latent,grouped", "are both for the slot sharing"),
        ("dates", "--model transformer --attention scalable --score dot", "are both for the slot score: give one"),
        ("counting", "--model pooling --attention general,dot", "are both for the slot score: choose one"),
        ("signal", "--attention forgetting", "needs a layer of kind causal"),
        ("signal", "--attention differential", "needs heads with projections"),
        ("dates", "--model recurrent --attention alibi", "which a recurrent model does not have"),
        ("dates", "--model recurrent --attention sink --score none", "does not fit score none"),
        ("counting", "--model pooling --pooling mean --attention sink", "does not fit pooling mean"),
    ],
)
def test_wrong_values_are_refused_in_one_line(
    task: str, flags: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from regard.cli import main

    assert main(["train", task, *flags.split(), "--savepath", str(tmp_path / "no")]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "no").exists()


def test_mechanisms_are_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from regard.cli import main

    words = "compare induction --vary attention=softmax,alibi+sink --seeds 1 --steps 2 --batchsize 2 --hidden 8"
    assert not main([*words.split(), "--heads", "2", "--savepath", str(tmp_path)])
    assert "alibi+sink" in capsys.readouterr().out


@pytest.mark.parametrize("words", ["induction", "dates --model transformer"])
def test_help_lists_every_part(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    from regard.cli import main

    main(["train", *words.split(), "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    missing = [name for name in PARTS if name not in shown]
    assert missing == []
