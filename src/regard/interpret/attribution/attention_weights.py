"""Attention weights as an explanation: of the last layer that reads the inputs, and combinations of layers."""

from typing import Any

import numpy as np

from regard.attention import short_name
from regard.errors import InputError
from regard.interpret.attribution.trial import Trial


def last_weights(trial: Trial[Any]) -> np.ndarray:
    """Return the weights (H, S, Tk) of the last layer in which outputs attend to inputs, for S output steps.

    Raises `InputError` for a model without such a layer.
    """
    if not trial.probe.layers:
        raise InputError(f"{trial.subject.name} has no layer in which outputs attend to inputs: no attention")
    wanted = {trial.probe.layers[-1], short_name(trial.probe.layers[-1])}
    name = next((name for name in trial.records if name in wanted or short_name(name) in wanted), None)
    if name is None:
        raise InputError(f"the weights of {trial.probe.layers[-1]} were not recorded: choose another method")
    weights = trial.records[name].weights[0].float().cpu().numpy()
    return weights[:, trial.steps, : len(trial.embedding)]


def mean_weights(trial: Trial[Any]) -> np.ndarray:
    """Return the weights (S, Tk) of the last layer that reads the inputs, averaged over heads."""
    mean: np.ndarray = last_weights(trial).mean(0)
    return mean
