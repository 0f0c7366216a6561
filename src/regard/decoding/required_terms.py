"""Terms that must occur in an answer: a beam search that keeps prefixes with few and with many of the terms.

Without special treatment, the best prefixes of a beam rarely contain the terms. Dynamic beam allocation (Post &
Vilar 2018) therefore divides the beam among banks: bank c contains the prefixes with c tokens of the terms. The
places of the beam are filled by turns (Hu et al. 2019): first the best prefix of each bank, from the last bank to
bank 0, then the second best prefix of each bank, and so on. The next tokens of all terms are candidates even if
they are unlikely. So each step increases the largest number of tokens, until one prefix contains all terms.

Differences from both papers: the number of tokens is computed from the prefix, so terms may overlap, and a
finished answer leaves the beam. For a source without terms, the search is plain beam search.

Letters: B is the number of sources, K the number of prefixes per source, T the number of steps, P the number of
terms per source, L the number of tokens per term, V the size of the target vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.vocabulary import EOS
from regard.decoding.extensions import Extensions, check_finite, select_extensions
from regard.fast.topk import topk

MISSING = -1
"""Fills terms up to L tokens. Never equals a token."""


class TermProgress(NamedTuple):
    """Occurrences of the terms in prefixes."""

    occurs: Tensor
    """Whether each term occurs, (..., P)."""
    begun: Tensor
    """Number of tokens at the end of the prefix with which each term begins, (..., P)."""
    tokens: Tensor
    """Number of tokens of the terms that occur, and of the longest beginning of another term, (...)."""


class RequiredTerms:
    """Terms that must occur in the answers to the sources of a batch.

    `terms`: for each source a list of terms, each a sequence of tokens.

    >>> terms = RequiredTerms([[[4, 5], [5, 6]]])
    >>> terms.progress(torch.tensor([[[1, 4, 5]]]), [0])
    TermProgress(occurs=tensor([[[ True, False]]]), begun=tensor([[[0, 1]]]), tokens=tensor([[3]]))
    """

    def __init__(self, terms: Sequence[Sequence[Sequence[int]]]) -> None:
        count = max(map(len, terms))
        longest = max((len(term) for source in terms for term in source), default=0)
        self.terms = torch.full((len(terms), count, longest), MISSING)
        for row, source in enumerate(terms):
            for number, term in enumerate(source):
                self.terms[row, number, : len(term)] = torch.tensor(term)
        self.lengths = (self.terms != MISSING).sum(-1)

    def progress(self, prefixes: Tensor, sources: Sequence[int]) -> TermProgress:
        """Return the occurrences of the terms in prefixes (B, K, T); `sources`: the source of each row."""
        terms, lengths = (part[list(sources)].to(prefixes.device) for part in (self.terms, self.lengths))
        occurs = (lengths == 0).unsqueeze(1).expand(-1, prefixes.shape[1], -1)
        begun = torch.zeros_like(occurs, dtype=torch.int64)
        # Whether the first `length` tokens of a term end at each step, (B, K, T, P).
        ends = prefixes.new_ones(*prefixes.shape, terms.shape[1], dtype=torch.bool)
        for length, tokens in enumerate(terms.unbind(-1), start=1):
            before = F.pad(ends[:, :, :-1], (0, 0, 1, 0), value=length == 1)
            ends = before & (prefixes.unsqueeze(-1) == tokens[:, None, None])
            is_whole = (lengths == length).unsqueeze(1)
            occurs = occurs | (is_whole & ends.any(2))
            begun = begun.masked_fill(ends[:, :, -1] & ~is_whole, length)
        begun = begun.masked_fill(occurs, 0)
        return TermProgress(occurs, begun, (occurs * lengths.unsqueeze(1)).sum(-1) + begun.amax(-1))

    def apply(self, scores: Tensor, prefixes: Tensor, sources: Sequence[int]) -> None:
        scores[..., EOS].masked_fill_(~self.progress(prefixes, sources).occurs.all(-1), -torch.inf)

    def extend(
        self, log_probs: Tensor, prefixes: Tensor, totals: Tensor, sources: Sequence[int], width: int
    ) -> Extensions:
        """Return the best extensions of each bank; see `extensions.Constraints`."""
        count, symbols = log_probs.shape[1:]
        indices = self._candidates(log_probs, prefixes, totals, sources, width)
        parents, tokens = indices // symbols, indices % symbols
        values = (totals.unsqueeze(-1) + log_probs).flatten(1).gather(1, indices)
        check_finite(values)
        is_copy = F.pad(indices[:, 1:] == indices[:, :-1], (1, 0))
        values = values.masked_fill(is_copy, -torch.inf)
        values, order = values.sort(dim=1, descending=True, stable=True)
        parents, tokens = parents.gather(1, order), tokens.gather(1, order)
        order = _by_turns(self._banks(prefixes, parents, tokens, sources), values == -torch.inf)
        values, parents, tokens = (part.gather(1, order) for part in (values, parents, tokens))
        ends, parents, tokens, values = select_extensions(values, parents, tokens, width, count)
        # Prefixes with all terms come first, because the search returns the first ones at the length limit.
        banks = self._banks(prefixes, parents, tokens, sources).masked_fill(values == -torch.inf, -1)
        order = values.argsort(dim=1, descending=True, stable=True)
        order = order.gather(1, banks.gather(1, order).argsort(dim=1, descending=True, stable=True))
        return Extensions(ends, parents.gather(1, order), tokens.gather(1, order), values.gather(1, order))

    def _banks(self, prefixes: Tensor, parents: Tensor, tokens: Tensor, sources: Sequence[int]) -> Tensor:
        """Return the bank (B, M) of each extension: the number of tokens of the terms that it contains."""
        before = prefixes.gather(1, parents.unsqueeze(-1).expand(-1, -1, prefixes.shape[-1]))
        # The end of sequence does not change the bank, because an ended prefix contains all terms.
        return self.progress(torch.cat([before, tokens.unsqueeze(-1)], dim=-1), sources).tokens

    def _candidates(
        self, log_probs: Tensor, prefixes: Tensor, totals: Tensor, sources: Sequence[int], width: int
    ) -> Tensor:
        """Return the indices (B, M) of candidates among all K V extensions, in ascending order, with repetitions.

        Candidates: the best extensions, the best extension of each prefix, and the next token of each term that
        does not occur in a prefix.
        """
        count, symbols = log_probs.shape[1:]
        _, best = topk(log_probs, totals, min(2 * width, count * symbols))
        progress = self.progress(prefixes, sources)
        terms = self.terms[list(sources)].to(prefixes.device).unsqueeze(1).expand(-1, count, -1, -1)
        position = progress.begun.clamp_max(terms.shape[-1] - 1).unsqueeze(-1)
        following = terms.gather(-1, position).squeeze(-1)
        likeliest = log_probs.argmax(-1, keepdim=True)
        following = torch.where(progress.occurs, likeliest, following)
        begin = torch.arange(count, device=prefixes.device).mul(symbols).unsqueeze(-1)
        more = torch.cat([likeliest, following], dim=-1) + begin
        return torch.cat([best, more.flatten(1)], dim=1).sort(dim=1).values


def _by_turns(bank: Tensor, impossible: Tensor) -> Tensor:
    """Return the order (B, M) of extensions that takes one extension of each bank by turns, the last bank first.

    `bank` (B, M): bank of each extension, the most likely extension first. Impossible extensions come last.

    >>> _by_turns(torch.tensor([[0, 0, 0, 2]]), torch.zeros(1, 4, dtype=torch.bool))
    tensor([[3, 0, 1, 2]])
    """
    same_bank = bank.unsqueeze(2) == bank.unsqueeze(1)
    turn = (same_bank.tril(-1) & ~impossible.unsqueeze(1)).sum(2)
    banks = int(bank.max()) + 1
    key = (turn * banks - bank).masked_fill(impossible, bank.shape[1] * banks + 1)
    return key.argsort(dim=1, stable=True)
