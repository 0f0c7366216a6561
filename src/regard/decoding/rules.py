"""Rules for the next token of an answer: one class per option, applied before the best extensions are chosen.

| option of `Controls` | class               | when           | effect                                         |
|----------------------|---------------------|----------------|------------------------------------------------|
| `repetition_penalty` | `RepetitionPenalty` | before softmax | makes tokens of the prefix less likely         |
| `min_length`         | `MinLength`         | after softmax  | forbids an early end of sequence               |
| `no_repeat_ngram`    | `NoRepeatNgram`     | after softmax  | forbids tokens that repeat an n-gram           |
| `terms`, `glossary`  | `RequiredTerms`     | after softmax  | forbids the end of sequence before all terms   |
| `prefix`             | `Rules`             | last           | forbids all tokens but the prefix's next token |

Forbidden tokens have log-probability -inf, and the other tokens keep their log-probability: the search finds the
target that the model considers most likely among the targets that satisfy the rules.

Letters: B is the number of sources, K the number of prefixes per source, T the number of steps, V the size of
the target vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from regard.data.vocabulary import EOS
from regard.decoding.extensions import NEVER, Constraints, Extensions, log_probabilities
from regard.decoding.required_terms import RequiredTerms


class Rule(Protocol):
    """A rule for the next token."""

    def apply(self, scores: Tensor, prefixes: Tensor, sources: Sequence[int]) -> None:
        """Change scores (B, K, V) of the next tokens in place: logits, or log-probabilities after the softmax.

        `prefixes` (B, K, T): tokens so far, from `BOS` on. `sources`: index in the batch of the source of each
        row.
        """


@dataclass(frozen=True)
class RepetitionPenalty:
    """Divides positive logits of the tokens that occur in the prefix by `penalty`, and multiplies negative logits
    by it (Keskar et al. 2019, section 4.1, who divide all logits, which makes tokens with negative logits more
    likely).

    >>> logits = torch.tensor([[[2.0, -2.0, 1.0]]])
    >>> RepetitionPenalty(2.0).apply(logits, torch.tensor([[[9, 0, 1]]]), [0])
    >>> logits
    tensor([[[ 1., -4.,  1.]]])
    """

    penalty: float

    def apply(self, scores: Tensor, prefixes: Tensor, sources: Sequence[int]) -> None:
        del sources
        tokens = prefixes[..., 1:]
        values = scores.gather(-1, tokens)
        scores.scatter_(-1, tokens, torch.where(values > 0, values / self.penalty, values * self.penalty))


@dataclass(frozen=True)
class MinLength:
    """Forbids the end of sequence before an answer has `length` tokens."""

    length: int

    def apply(self, scores: Tensor, prefixes: Tensor, sources: Sequence[int]) -> None:
        del sources
        if prefixes.shape[-1] - 1 < self.length:
            scores[..., EOS] = -torch.inf


@dataclass(frozen=True)
class NoRepeatNgram:
    """Forbids tokens after which an n-gram of `size` tokens occurs twice (Paulus et al. 2018, section 2.5).

    >>> log_probs = torch.zeros(1, 1, 7)
    >>> NoRepeatNgram(2).apply(log_probs, torch.tensor([[[1, 4, 5, 4]]]), [0])
    >>> log_probs
    tensor([[[0., 0., 0., 0., 0., -inf, 0.]]])
    """

    size: int

    def apply(self, scores: Tensor, prefixes: Tensor, sources: Sequence[int]) -> None:
        """Change log-probabilities; see `Rule`."""
        del sources
        if prefixes.shape[-1] <= self.size:
            return
        ngrams = prefixes[..., 1:].unfold(-1, self.size, 1)  # (B, K, N, size)
        begin = prefixes[..., prefixes.shape[-1] - self.size + 1 :]  # the last size - 1 tokens
        repeats = (ngrams[..., :-1] == begin.unsqueeze(-2)).all(-1)
        # A sum, because several n-grams may have the same last token, and only some of them repeat.
        bans = torch.zeros_like(scores[..., :1]).masked_fill(repeats, -torch.inf)
        scores.scatter_add_(-1, ngrams[..., -1], bans)


class Rules(Constraints):
    """The rules for the sources of a batch.

    `penalties`: rules that change logits. `bans`: rules that change log-probabilities. `prefixes`: tokens with
    which the answer to each source begins, or an empty sequence. `terms`: terms that must occur. `never`: tokens
    that never occur in an answer.
    """

    def __init__(
        self,
        *,
        penalties: Sequence[Rule] = (),
        bans: Sequence[Rule] = (),
        prefixes: Sequence[Sequence[int]] = (),
        terms: RequiredTerms | None = None,
        never: Sequence[int] = NEVER,
    ) -> None:
        self.penalties, self.prefixes, self.terms, self.never = penalties, prefixes, terms, never
        self.bans = [*bans, *([] if terms is None else [terms])]

    def log_probabilities(self, logits: Tensor, prefixes: Tensor, sources: Sequence[int]) -> Tensor:
        time = prefixes.shape[-1] - 1
        begun = [row for row, source in enumerate(sources) if self.prefixes and time < len(self.prefixes[source])]
        rows = torch.tensor(begun, device=logits.device, dtype=torch.int64)
        forced = torch.tensor([self.prefixes[sources[row]][time] for row in begun], device=logits.device)
        # The rules do not apply to forced tokens, which are not a choice of the search.
        forced_log_probs = (
            log_probabilities(logits[rows]).take_along_dim(forced[:, None, None], -1) if begun else None
        )
        for rule in self.penalties:
            rule.apply(logits, prefixes, sources)
        log_probs = log_probabilities(logits, self.never)
        for rule in self.bans:
            rule.apply(log_probs, prefixes, sources)
        if forced_log_probs is not None:
            log_probs[rows] = -torch.inf
            log_probs[rows, :, forced] = forced_log_probs.squeeze(-1)
        return log_probs

    def extend(
        self, log_probs: Tensor, prefixes: Tensor, totals: Tensor, sources: Sequence[int], width: int
    ) -> Extensions:
        if self.terms is None:
            return super().extend(log_probs, prefixes, totals, sources, width)
        return self.terms.extend(log_probs, prefixes, totals, sources, width)
