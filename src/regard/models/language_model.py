"""Base class of language models: the interface that training and decoding use.

    logits = model(tokens)                           B x T x V; step t depends on tokens up to and including t
    states = model.read(tokens)                      inputs of the vocabulary layer, B x T x D
    states, state = model.start(prompt)              of the prompt's last position, before the first step
    states, state = model.step(tokens, state)        one step for the last tokens, with cached keys and values

`start` and `step` have the interface of `Seq2Seq`, so `regard.decoding` searches with both kinds of models.

Letters: B sequences, K hypotheses per sequence (1 for greedy search), T steps, D width, V size of the
vocabulary.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.arguments import public
from regard.attention.key_values import KeyValues
from regard.models.base import AutoregressiveModel
from regard.models.seq2seq import State


class CacheState(NamedTuple):
    """State between two steps: the KV cache of B prompts with K hypotheses each."""

    past: tuple[KeyValues, ...]
    """For each layer, keys (B K, G, T, d) and values (B K, G, T, d) of all steps so far."""
    prompts: int
    """Number of prompts, B."""

    @property
    def time(self) -> int:
        return self.past[0].keys.shape[2]

    def choose(self, hypotheses: Tensor) -> "CacheState":
        """Select hypotheses of each prompt by their indices (B, K') int64."""
        begin = torch.arange(self.prompts, device=hypotheses.device).unsqueeze(1) * self._hypotheses
        return self._take((begin + hypotheses).flatten(), self.prompts)

    def keep(self, sources: Tensor) -> "CacheState":
        """Select prompts by their indices (B',) int64."""
        count = self._hypotheses
        rows = sources.unsqueeze(1) * count + torch.arange(count, device=sources.device)
        return self._take(rows.flatten(), len(sources))

    @property
    def _hypotheses(self) -> int:
        return len(self.past[0].keys) // self.prompts

    def _take(self, rows: Tensor, prompts: int) -> "CacheState":
        layers = (layer.map(lambda states: states.index_select(0, rows)) for layer in self.past)
        return CacheState(tuple(layers), prompts)


@public
class LanguageModel(AutoregressiveModel):
    """Base class of all language models.

    The constructor takes an instance of `config_class` and properties of the task as keywords: the number of
    `symbols` (outputs of the last layer), the largest number of steps (`longest`), and the width of real-valued
    inputs (`input_width`; 0 for tokens).
    """

    answers = "tokens"

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits (B, T, V) of tokens (B, T) int64, or of real-valued inputs (B, T, W); see `read`."""
        return self.logits(self.read(tokens, mask))

    def read(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the states (B, T, D) of all steps, which are the inputs of the vocabulary layer.

        `mask` is (B, T) bool, True before the end of a sequence. Padding is on the right.
        """
        raise NotImplementedError

    def start(self, prompt: Tensor) -> tuple[Tensor, State]:
        """Return the states (B, 1, D) of the last position of prompts (B, T), and the state after the prompts.

        All prompts of a batch have the same length.
        """
        raise NotImplementedError

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, State]:
        """Feed one token (B, K) to each hypothesis, and return inputs (B, K, D) of the vocabulary layer and the
        next state."""
        raise NotImplementedError
