"""Two controls for the comparison of methods: the known answer, and random scores."""

from typing import Any

import numpy as np
import torch

from regard.errors import InputError
from regard.interpret.attribution.trial import Trial


def oracle(trial: Trial[Any]) -> Any:
    """Return the known answer: `truth`, or for inputs the relevant inputs of the task.

    Raises `InputError` if the answer is not known.
    """
    if trial.truth is not None:
        return trial.truth
    if trial.level == "inputs" and trial.probe.relevant is not None:
        return trial.probe.relevant[trial.steps].astype(float)
    raise InputError(f"oracle: the important {trial.level} of {trial.subject.name} are not known; pass truth=")


def random_inputs(trial: Trial[Any]) -> np.ndarray:
    """Return scores (Tq, Tk) that are uniform between 0 and 1."""
    scores = torch.rand(len(trial.steps), len(trial.embedding), generator=trial.draws("random"))
    return scores.numpy()


def random_heads(trial: Trial[Any]) -> dict[str, np.ndarray]:
    """Return scores (H,) of each layer that are uniform between 0 and 1."""
    generator = trial.draws("random")
    return {layer.name: torch.rand(layer.heads, generator=generator).numpy() for layer in trial.subject.layers}
