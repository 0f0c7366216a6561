"""Measure which inputs an answer depends on, with two methods that do not use attention.

- Gradient times input: the gradient of the log-probability of the predicted class with respect to the embedding
  of each input, times that embedding (Jain and Wallace 2019, section 4.1; here the absolute value of the sum
  over dimensions).
- Ablation: the change of this log-probability when the embedding of an input is set to zero.

Both measures are (Tq, Tk) for one sample: output steps by input steps. Any other method of
`regard.interpret.attribution` can be a measure, too.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regard.attention import short_name
from regard.interpret.attribution.input_ablation import zero_inputs
from regard.interpret.attribution.input_gradients import gradient_times_input
from regard.interpret.attribution.trial import Trial, input_scores


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The attention weights of one sample, and the inputs that its answer depends on."""

    weights: dict[str, np.ndarray]
    """Weights (H, Tq, Tk) of each recorded layer, by its name without `.layers`."""
    gradient: np.ndarray
    """(Tq, Tk), not negative."""
    ablation: np.ndarray
    """(Tq, Tk), not negative."""


def probe(trial: Trial[Any]) -> Probe:
    """Probe one sample: the weights of the layers in which outputs attend to inputs, and both measures.

    The model must be in evaluation mode.
    """
    with torch.no_grad(), trial.subject.recording(list(trial.probe.layers)) as records:
        trial.probe.run(1)
    return Probe(
        weights={short_name(name): record.weights[0].float().cpu().numpy() for name, record in records.items()},
        gradient=input_scores(trial, gradient_times_input(trial)),
        ablation=input_scores(trial, zero_inputs(trial)),
    )
