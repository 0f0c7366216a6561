"""Run an explanation method on a run or an external model."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.arguments import public
from regard.errors import InputError, check_range, unknown_choice
from regard.interpret.attribution.attribution_result import LEVELS, Attribution, Level
from regard.interpret.attribution.background import Background
from regard.interpret.attribution.explainers import library_method
from regard.interpret.attribution.table import METHODS, Method
from regard.interpret.attribution.trial import MethodFunction, Target, Trial, head_scores, input_scores
from regard.plugins import import_plugin
from regard.viz.attention_map import AttentionMap
from regard.viz.subject import Subject, check_subject

DEFAULT_METHOD = "ablation_mean"
HEAD_INPUTS = 20
"""Unseen inputs over which scores of heads and edges are averaged by default."""


@public
def attribute(
    subject: Subject[Any],
    input: Any = None,
    *,
    method: str | MethodFunction = DEFAULT_METHOD,
    level: Level = "inputs",
    target: int | tuple[int | None, int | None] | None = None,
    others: Sequence[Any] | None = None,
    truth: Any = None,
    seed: int = 0,
) -> Attribution:
    """Return the scores of inputs, heads or edges by an explanation method: the larger, the more important.

    `subject`: a run, or a result of `look`. `input`: a text, or an input of `unseen`. At the levels of heads and
    edges also a list of inputs, or a number of unseen inputs, over which scores are averaged (None: 20; fewer if
    the subject has fewer). `method`: a name in `METHODS`, a method of another library such as
    `captum:ShapleyValueSampling` or `inseq:occlusion`, `module:function`, or a function of a `Trial`.
    `target`: the explained output step, or (step, class); None for every step and the predicted class. `others`:
    inputs for means and resampling (None: unseen inputs). `truth`: the answer for the method oracle.

    >>> result = regard.attribute(run, "BCCCBAABACCCA", method="gradient")    # doctest: +SKIP
    >>> result.inputs.shape    # doctest: +SKIP
    (3, 13)

    Raises `InputError` for an unknown method, a method without this level, and an input that the model rejects.
    """
    check_subject(subject)
    chosen = find_method(method, level)
    background = Background(
        subject, None if others is None else [subject.prepare(each) for each in others], seed=seed
    )
    inputs = _inputs(subject, input, level, seed)
    trials = [Trial(subject, prepared, level, _target(target), seed, truth, background) for prepared in inputs]
    scores = [run_method(chosen.functions[level], trial) for trial in trials]
    first = trials[0]
    shown = subject.look(first.input)
    name = shown.input if len(trials) == 1 else f"mean over {len(trials)} inputs"
    labels = _labels(shown, first) if level == "inputs" else []
    return Attribution(
        method=chosen.name,
        level=level,
        input=name,
        source=chosen.source,
        target=subject.called([int(first.classes[step]) for step in first.steps]) if len(trials) == 1 else [],
        steps=first.steps if len(trials) == 1 else [],
        inputs=scores[0] if level == "inputs" else None,
        heads=average(scores) if level == "heads" else None,
        edges=average(scores) if level == "edges" else None,
        labels=labels,
        left_out={name: reason for trial in trials for name, reason in trial.left_out.items()},
        remarks=list(dict.fromkeys(remark for trial in trials for remark in trial.remarks)),
    )


def find_method(method: str | MethodFunction, level: Level) -> Method:
    """Return a method of the table, or a user's function as a method of one level.

    Raises `InputError` for an unknown name, or a method without this level.
    """
    if level not in LEVELS:
        raise unknown_choice("level", str(level), LEVELS)
    if isinstance(method, str) and (known := known_method(method)):
        if level not in known.levels:
            names = [name for name, other in METHODS.items() if level in other.levels]
            raise InputError(f"method {method} has no scores of {level}: choose {', '.join(names)}")
        return known
    function: Any = import_plugin("method", method) if isinstance(method, str) else method
    name = method if isinstance(method, str) else getattr(function, "__name__", type(function).__name__)
    return Method(name=name, source="a method of the user", **{level: function})


def known_method(name: str) -> Method | None:
    """Return a method of the table, of captum or of Inseq; None for `module:function`.

    Raises `InputError` for an unknown name, or if the library is not installed.
    """
    if name in METHODS:
        return METHODS[name]
    if ":" not in name:
        raise unknown_choice("method", name, METHODS, other="captum:CLASS, inseq:METHOD, module:function")
    function = library_method(name)
    source = f"a method of {name.partition(':')[0]}"
    return None if function is None else Method(name=name, source=source, inputs=function)


def run_method(function: MethodFunction, trial: Trial[Any]) -> Any:
    """Return the checked scores of a trial: an array for inputs, otherwise a dictionary."""
    scores = function(trial)
    if trial.level == "inputs":
        return input_scores(trial, scores)
    return head_scores(trial, scores) if trial.level == "heads" else dict(scores)


def average(scores: Sequence[dict[Any, Any]]) -> dict[Any, Any]:
    """Return the mean of dictionaries with equal keys.

    >>> average([{"a": 1.0}, {"a": 3.0}])
    {'a': 2.0}
    """
    means = {name: np.mean([trial[name] for trial in scores], axis=0) for name in scores[0]}
    return {name: mean if isinstance(mean, np.ndarray) else float(mean) for name, mean in means.items()}


def _inputs(subject: Subject[Any], input: Any, level: Level, seed: int) -> list[Any]:
    if level == "inputs":
        if input is None or isinstance(input, int | list):
            raise InputError("input is missing: give one input, because scores of inputs are not averaged")
        return [subject.prepare(input)]
    if isinstance(input, int):
        check_range("input (a number of inputs)", input, 1, 10**5)
    if input is None or isinstance(input, int):
        return list(subject.unseen(HEAD_INPUTS if input is None else input, seed, purpose="explain"))
    return [subject.prepare(each) for each in input] if isinstance(input, list) else [subject.prepare(input)]


def _labels(shown: AttentionMap, trial: Trial[Any]) -> list[str]:
    """Return the names of the inputs in an attention map; empty if the map has no layer with these inputs."""
    order = sorted(shown.layers.values(), key=lambda layer: layer.kind == "decoder")
    labels = (layer.key_labels for layer in order if len(layer.key_labels) >= len(trial.embedding))
    return next((list(names[trial.own_keys(len(names))]) for names in labels), [])


def _target(target: int | tuple[int | None, int | None] | None) -> Target:
    return Target(*target) if isinstance(target, tuple) else Target(target)
