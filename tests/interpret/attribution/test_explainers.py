"""Methods of captum equal those of Regard on a run of each family; tests are skipped without captum."""

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import regard
from regard.errors import InputError
from regard.interpret.attribution import effects
from regard.interpret.attribution.methods import METHODS, find_method, run_method
from regard.interpret.attribution.trial import Background, Trial

SAME = {
    "Saliency": "gradient",
    "InputXGradient": "gradient_x_input",
    "IntegratedGradients": "integrated_gradients",
    "FeatureAblation": "ablation_zero",
    "Occlusion": "ablation_zero",
}
"""Classes of captum, and the same methods of Regard."""
RunOf = Callable[[str], Any]


def has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


needs_captum = pytest.mark.skipif(not has("captum"), reason="needs the extra explainers")


def make_trial(run: Any) -> Trial[Any]:
    return Trial(run, run.unseen(1, 7)[0], background=Background(run, samples=6))


def scores(trial: Trial[Any], method: str) -> np.ndarray:
    return np.asarray(run_method(find_method(method, "inputs").functions["inputs"], trial))


@needs_captum
@pytest.mark.parametrize("family", ["query", "decoder-only", "transformer"])
@pytest.mark.parametrize("name", SAME)
def test_captum_computes_the_same_scores(
    run_of: RunOf, family: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest difference is 1e-5 of the largest score, with as many points as captum has."""
    monkeypatch.setattr(effects, "POINTS", 50)
    trial = make_trial(run_of(family))
    theirs, ours = scores(trial, f"captum:{name}"), scores(trial, SAME[name])
    assert theirs.shape == ours.shape and ours.max() > 1e-4
    assert np.abs(theirs - ours).max() <= 1e-4 * ours.max()


@needs_captum
def test_shapley_values_of_captum_sum_to_the_change(run_of: RunOf) -> None:
    """Signed Shapley values sum to the change of the value; absolute values are at least as large."""
    trial = make_trial(run_of("query"))
    sampled = scores(trial, "captum:ShapleyValueSampling")
    change = trial.clean - trial.run_embeddings(0 * trial.embedding.unsqueeze(0))[0]
    assert (sampled.sum(1) >= change.abs().numpy() - 1e-5).all()
    assert np.array_equal(sampled, scores(trial, "captum:ShapleyValueSampling"))
    assert np.isfinite(scores(trial, "captum:GradientShap")).all()


@needs_captum
def test_a_method_of_captum_is_a_choice_of_attribute(run_of: RunOf) -> None:
    result = regard.attribute(run_of("query"), "BCCCBAABACCCA", method="captum:InputXGradient", target=1)
    assert result.inputs is not None and result.inputs.shape == (1, 13)
    assert result.method == "captum:InputXGradient"
    with pytest.raises(InputError, match="has no scores of heads"):
        regard.attribute(run_of("query"), method="captum:InputXGradient", level="heads")


@pytest.mark.parametrize("method", ["captum:DeepLift", "inseq:attention"])
def test_unknown_methods_of_libraries_are_refused(method: str) -> None:
    with pytest.raises(InputError, match="is unknown: "):
        find_method(method, "inputs")


@pytest.mark.parametrize(
    ("package", "method", "command"),
    [("captum", "captum:Saliency", r"pip install 'regard\[explainers\]'"), ("inseq", "inseq:saliency", "no-deps")],
)
def test_a_missing_library_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch, package: str, method: str, command: str
) -> None:
    if package == "inseq" and not has("captum"):
        pytest.skip("needs the extra explainers")
    import sys

    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=f"method {method} needs {package}: .*{command}"):
        find_method(method, "inputs")


def test_every_method_with_the_same_name_exists() -> None:
    assert set(SAME.values()) <= set(METHODS)
