"""What a search tried: every prefix that it kept, as a tree, and what it might have written next."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from rich.text import Text
from rich.tree import Tree
from torch import Tensor

from regard.data import EOS, PAD, Vocabulary, collate
from regard.data.vocabulary import is_blank
from regard.decoding.beam import Step, beam_search
from regard.decoding.search import longest_answer
from regard.errors import InputError, check_range
from regard.models import Seq2Seq
from regard.result import Result

FOLLOWERS = 8
"""Tokens that are told of those that might come next, the likeliest."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Possible(Result):
    """A token that might come next."""

    label: str
    probability: float
    """After the prefix (0 to 1)."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Branch(Result):
    """One token that a search wrote after a prefix."""

    parent: int | None
    """Number of the branch before it; None at the beginning."""
    step: int
    """Of the token in the answer, from 0."""
    label: str
    token: int
    probability: float
    """Of the token after its prefix (0 to 1)."""
    log_probability: float
    """Of the whole prefix, this token included: natural logarithm."""
    ended: bool
    """Whether the token is the end of the sequence."""
    followers: list[Possible] = field(default_factory=list)
    """What might have come next, the likeliest first; nothing where the search went no further."""


@dataclass(frozen=True, kw_only=True, repr=False)
class SearchTree(Result):
    """All that a search kept."""

    input: str
    beam: int
    begin: list[Possible]
    """What the answer might have begun with."""
    branches: list[Branch]
    """Each after its parent."""
    best: list[int]
    """Numbers of the branches of the answer, from its first token on."""

    def path(self, number: int) -> list[int]:
        """Return the tokens up to a branch, the end of sequence not among them."""
        found: list[int] = []
        at: int | None = number
        while at is not None:
            found, at = [self.branches[at].token, *found], self.branches[at].parent
        return found[:-1] if self.branches[number].ended else found

    @property
    def leaves(self) -> list[int]:
        """Numbers of the branches that nothing follows."""
        parents = {each.parent for each in self.branches}
        return [number for number in range(len(self.branches)) if number not in parents]

    def summary(self) -> str:
        """Say how much was tried."""
        ended = sum(each.ended for each in self.branches)
        return f"{self.input!r}, beam {self.beam}: {len(self.branches)} tokens tried, {ended} answers"

    def table(self) -> Tree:
        """Return the tree, the branches of the answer bold."""
        root = Tree(Text(self.input))
        places: dict[int | None, Tree] = {None: root}
        for number, each in enumerate(self.branches):
            words = Text(f"{each.label} {each.probability:.1%}", style="bold" if number in self.best else "dim")
            places[number] = places[each.parent].add(words)
        return root


def search_tree(
    model: Seq2Seq,
    source_vocabulary: Vocabulary,
    target_vocabulary: Vocabulary,
    text: str,
    *,
    beam: int,
    length_penalty: float,
    max_len: int,
) -> SearchTree:
    """Return what a beam search (of width 1: a greedy one) tries while it answers a text.

    Raises `InputError` where numbers do not fit.
    """
    check_range("beam", beam, 1, 100)
    if is_blank(text):
        raise InputError("input is blank: its answer is empty, and there is no search to show; type a text")
    model.eval()
    indices = source_vocabulary.encode(text)
    source = collate([indices]).to(next(model.parameters()).device)
    found = _Watcher(target_vocabulary)
    most = longest_answer(indices, max_len)
    [[best]] = beam_search(
        model, source, source != PAD, width=beam, max_len=most, alpha=length_penalty, on_step=found.on_step
    )
    tree = SearchTree(input=text, beam=beam, begin=found.begin, branches=found.branches, best=[])
    tree.best.extend(_best(tree, best.tokens, finished=best.finished))
    return tree


class _Watcher:
    """Takes note of what a search keeps, step by step."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.begin: list[Possible] = []
        self.branches: list[Branch] = []
        self.alive: list[int | None] = [None]

    def on_step(self, step: Step) -> None:
        """Take note of one step of the search of one source."""
        found = step.found[0].exp()
        for place, number in enumerate(self.alive):
            followers = self.begin if number is None else self.branches[number].followers
            followers.extend(self._followers(found[place]))
        for _, parent, total in step.ends:
            self._branch(parent, EOS, total, found)
        if step.last:
            return
        going = zip(*(each[0].tolist() for each in (step.parents, step.tokens, step.totals)), strict=True)
        self.alive = [
            self._branch(parent, token, total, found) for parent, token, total in going if total > -torch.inf
        ]

    def _followers(self, found: Tensor) -> list[Possible]:
        shares, tokens = found.topk(min(FOLLOWERS, len(found)))
        labels = [label for each in tokens.tolist() for label in self.vocabulary.labels([each])]
        return [
            Possible(label=label, probability=share) for label, share in zip(labels, shares.tolist(), strict=True)
        ]

    def _branch(self, parent: int, token: int, total: float, found: Tensor) -> int:
        before = self.alive[parent]
        [label] = self.vocabulary.labels([token])
        self.branches.append(
            Branch(
                parent=before,
                step=0 if before is None else self.branches[before].step + 1,
                label=label,
                token=token,
                probability=found[parent, token].item(),
                log_probability=total,
                ended=token == EOS,
            )
        )
        return len(self.branches) - 1


def _best(tree: SearchTree, tokens: Sequence[int], *, finished: bool) -> list[int]:
    """Return the branches of an answer, from its first token on."""
    for number in tree.leaves:
        if tree.branches[number].ended == finished and tree.path(number) == list(tokens):
            found = [number]
            while (parent := tree.branches[found[0]].parent) is not None:
                found.insert(0, parent)
            return found
    return []
