"""Ensembles: several models that predict each token together, by the mean of their probabilities.

The mean of the probabilities (as in fairseq, and by default in Sockeye) is a probability distribution, so the
log-probability of an answer keeps its meaning. The mean of the log-probabilities (as in OpenNMT and Marian)
would not be one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.decoding.incremental import IncrementalDecoder, make_decoder
from regard.models.seq2seq import Seq2Seq


@dataclass(frozen=True)
class EnsembleState:
    """The state of each model between two steps."""

    states: list[Any]

    def choose(self, hypotheses: Tensor) -> "EnsembleState":
        """Select hypotheses of each source by their indices (B, K') int64."""
        return EnsembleState([state.choose(hypotheses) for state in self.states])

    def keep(self, sources: Tensor) -> "EnsembleState":
        """Select sources by their indices (B',) int64."""
        return EnsembleState([state.keep(sources) for state in self.states])


class EnsembleDecoder:
    """Decoder of several models with one vocabulary; see `IncrementalDecoder`.

    `width`: number of prefixes of the search. The states (B, K, D) of a step are the concatenated states of the
    models.
    """

    def __init__(self, models: Sequence[Seq2Seq], width: int) -> None:
        self._decoders = [make_decoder(model, width) for model in models]
        self._widths = [model.vocabulary_layer[0].shape[1] for model in models]

    def encode(self, source: Tensor, source_mask: Tensor) -> list[Any]:
        """Return the memory of each model for sources (B, Ts)."""
        return [decoder.encode(source, source_mask) for decoder in self._decoders]

    def start(self, memory: list[Any]) -> EnsembleState:
        """Return the state before the first step."""
        return EnsembleState([decoder.start(part) for decoder, part in zip(self._decoders, memory, strict=True)])

    def step(self, tokens: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        """Decode tokens (B, K), and return states (B, K, D) and the next state."""
        steps = [decoder.step(tokens, part) for decoder, part in zip(self._decoders, state.states, strict=True)]
        return torch.cat([states for states, _ in steps], dim=-1), EnsembleState([after for _, after in steps])

    def logits(self, states: Tensor) -> Tensor:
        parts = zip(self._decoders, states.split(self._widths, dim=-1), strict=True)
        log_probs = [decoder.logits(part).log_softmax(-1) for decoder, part in parts]
        return torch.stack(log_probs).logsumexp(0) - math.log(len(log_probs))


def make_ensemble(models: Sequence[Seq2Seq], width: int) -> IncrementalDecoder:
    return make_decoder(models[0], width) if len(models) == 1 else EnsembleDecoder(models, width)
