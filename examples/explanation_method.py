"""An explanation method of your own: how much the answer changes when a token is replaced by the next one.

    regard bench --methods examples/explanation_method.py --models signal,dates

The bench scores the method beside the oracle and a random ranking. `regard.attribute(run, input, method=...)`
takes the same function.
"""

from typing import Any

import torch
from torch import Tensor

from regard.interpret.attribution.trial import Trial


@torch.no_grad()
def next_token(trial: Trial[Any]) -> Tensor:
    """Return the absolute change (Tq, Tk) of the log-probability of each answer."""
    tokens, run, alphabet = trial.probe.tokens, trial.probe.run_tokens, list(trial.probe.alphabet)
    assert tokens is not None and run is not None
    changed = tokens.repeat(len(tokens), 1)  # one row for each replaced token
    for place, token in enumerate(tokens.tolist()):
        if token in alphabet:  # not the end of a source
            changed[place, place] = alphabet[(alphabet.index(token) + 1) % len(alphabet)]
    return (trial.values(run(changed)) - trial.clean).abs().T
