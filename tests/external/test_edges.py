"""Edges of transformers' models equal those of the same model in Regard's own layers."""

from typing import Any

import pytest
import torch

import regard
from regard.convert.language_models import write_language_model
from regard.errors import InputError
from regard.interpret.composition import composition
from tests.interpret.subjects import language_run

pytestmark = pytest.mark.filterwarnings("ignore")
CLEAN, CORRUPTED, OTHER = "ABCDAB", "BBCDAB", "CACDAB"
FAMILIES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "gpt2": (
        {"bias": True, "activation": "gelu_tanh"},
        {"decoder.": "transformer.h.", "self_attention": "attn", "feed_forward": "mlp"},
    ),
    "llama": (
        {"positions": "rotary", "norm": "rms", "activation": "swiglu", "tied": False, "key_value_heads": 1},
        {"decoder.": "model.layers.", "self_attention": "self_attn", "feed_forward": "mlp"},
    ),
}
RECEIVERS = [
    "logits",
    "decoder.1.feed_forward",
    *(f"decoder.1.self_attention.1.{k}" for k in ("query", "key", "value")),
]


@pytest.fixture(scope="module", params=FAMILIES)
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run, the same model as an external model, and the names of external modules for names of the run."""
    pytest.importorskip("transformers", reason="needs the extra peers")
    flags, names = FAMILIES[request.param]
    run = language_run(tmp_path_factory.mktemp("runs"), **flags)
    folder = tmp_path_factory.mktemp("exported")
    write_language_model(run, folder)
    return run, regard.look(folder, inputs=[CLEAN]), names


def rename(name: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        name = name.replace(old, new)
    return name


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_paths_equal_those_of_a_run(models: Any, receiver: str) -> None:
    run, external, names = models
    own = regard.patch_paths(run, CLEAN, CORRUPTED, receiver, answers=("A", "C"))
    other = regard.patch_paths(external, CLEAN, CORRUPTED, rename(receiver, names), answers=("A", "C"))
    assert list(other.heads) == [rename(name, names) for name in own.heads]
    for name, effects in own.heads.items():
        assert other.heads[rename(name, names)] == pytest.approx(effects, abs=1e-3)
    for name, effect in own.others.items():
        assert other.others[rename(name, names)] == pytest.approx(effect, abs=1e-3)


@pytest.mark.parametrize("method", ["edge_patching", "eap", "eap_ig"])
def test_edges_equal_those_of_a_run(models: Any, method: str) -> None:
    run, external, names = models
    options: dict[str, Any] = {"method": method, "level": "edges", "target": 5}
    own = regard.attribute(run, [CLEAN], others=[CORRUPTED, OTHER], **options).edges
    others = [CORRUPTED, OTHER]
    other = regard.attribute(external, [CLEAN], others=others, **options).edges
    assert own is not None and other is not None
    expected = {(rename(a, names), rename(b, names)): effect for (a, b), effect in own.items()}
    assert other == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_composition_scores_equal_those_of_a_run(models: Any) -> None:
    run, external, names = models
    own, other = composition(run).scores, composition(external).scores
    expected = {(rename(a, names), rename(b, names)): score for (a, b), score in own.items()}
    if names["self_attention"] == "self_attn":  # the export reorders the dimensions of rotary keys
        assert set(other) == set(expected)
    assert other == pytest.approx(expected, abs=1e-4)


def test_models_with_other_parts_are_refused(model_of: Any, tokenizer: Any) -> None:
    text, corrupted = "the cat sat on the mat", "the dog sat on the mat"
    with pytest.raises(InputError, match="BertModel returns states and no logits: choose a model with an output"):
        regard.patch_paths(regard.look(model_of("bert"), tokenizer), text, corrupted, metric=torch.sum)
    result = regard.patch_paths(regard.look(model_of("opt"), tokenizer), text, corrupted, answers=("ran", "small"))
    assert set(result.others) == {"inputs", "model.decoder.layers.0.fc2", "model.decoder.layers.1.fc2"}
