"""The tree of all prefixes in the beam of a search, with the alternatives for the next token."""

from dataclasses import dataclass, field, replace

import torch
from rich.text import Text
from rich.tree import Tree
from torch import Tensor

from regard.arguments import public
from regard.data.batch import collate
from regard.data.vocabulary import EOS, PAD, Vocabulary, is_blank
from regard.decoding.search import Step, beam_search
from regard.decoding.translation import longest_answer
from regard.errors import InputError, check_range
from regard.models.base import Seq2Seq
from regard.result import Result

FOLLOWERS = 8  # Number of alternatives for the next token that are stored


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Possible(Result):
    """An alternative for the next token."""

    label: str
    probability: float
    """Probability after the prefix (0 to 1)."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Branch(Result):
    """One token that a search added to a prefix."""

    parent: int | None
    """Index of the previous branch, or None for the first token of an answer."""
    step: int
    """Position of the token in the answer, from 0."""
    label: str
    token: int
    probability: float
    """Probability of the token after its prefix (0 to 1)."""
    log_probability: float
    """Natural logarithm of the probability of the whole prefix, including this token."""
    ended: bool
    """Whether the token is the end of the sequence."""
    followers: list[Possible] = field(default_factory=list)
    """Alternatives for the next token, most likely first. Empty if the search stopped at this branch."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class SearchTree(Result):
    """All prefixes in the beam of a search."""

    input: str
    beam: int
    begin: list[Possible]
    """Alternatives for the first token."""
    branches: list[Branch]
    """All branches. Each branch comes after its parent."""
    best: list[int]
    """Indices of the best answer's branches, from the first token on."""

    def branches_to(self, number: int) -> list[int]:
        """Return the indices of the branches up to a branch, from the first token on."""
        numbers = [number]
        while (parent := self.branches[numbers[0]].parent) is not None:
            numbers.insert(0, parent)
        return numbers

    def path(self, number: int) -> list[int]:
        """Return the tokens up to a branch, without the end of sequence."""
        return [self.branches[index].token for index in self.branches_to(number) if not self.branches[index].ended]

    @property
    def leaves(self) -> list[int]:
        parents = {branch.parent for branch in self.branches}
        return [number for number in range(len(self.branches)) if number not in parents]

    def summary(self) -> str:
        ended = sum(branch.ended for branch in self.branches)
        return f"{self.input!r}, beam {self.beam}: {len(self.branches)} tokens tried, {ended} answers"

    def table(self) -> Tree:
        root = Tree(Text(self.input))
        nodes: dict[int | None, Tree] = {None: root}
        for number, branch in enumerate(self.branches):
            style = "bold" if number in self.best else "dim"
            nodes[number] = nodes[branch.parent].add(Text(f"{branch.label} {branch.probability:.1%}", style=style))
        return root


@public
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
    """Return the tree of a beam search for one text. A beam of 1 is greedy search.

    Raises `InputError` for values out of range and for a blank text.
    """
    check_range("beam", beam, 1, 100)
    if is_blank(text):
        raise InputError("input is blank, so the answer is empty, and no search can be shown: type a text")
    model.eval()
    indices = source_vocabulary.encode(text)
    source = collate([indices]).to(next(model.parameters()).device)
    builder = _TreeBuilder(target_vocabulary)
    limit = longest_answer(indices, max_len)
    [[best]] = beam_search(
        model, source, source != PAD, width=beam, max_len=limit, alpha=length_penalty, on_step=builder.add_step
    )
    tree = SearchTree(input=text, beam=beam, begin=builder.begin, branches=builder.branches, best=[])
    leaves = [leaf for leaf in tree.leaves if tree.branches[leaf].ended == best.finished]
    answer = next((leaf for leaf in leaves if tree.path(leaf) == best.tokens), None)
    return tree if answer is None else replace(tree, best=tree.branches_to(answer))


class _TreeBuilder:
    """Collector of the branches of a search, step by step."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.begin: list[Possible] = []
        self.branches: list[Branch] = []
        self.alive: list[int | None] = [None]

    def add_step(self, step: Step) -> None:
        probabilities = step.log_probs[0].exp()
        for prefix, number in enumerate(self.alive):
            followers = self.begin if number is None else self.branches[number].followers
            followers.extend(self._followers(probabilities[prefix]))
        for _, parent, total in step.extensions.ends:
            self._add_branch(parent, EOS, total, probabilities)
        if step.last:
            return
        prefixes = (part[0].tolist() for part in step.extensions[1:])
        self.alive = [
            self._add_branch(parent, token, total, probabilities)
            for parent, token, total in zip(*prefixes, strict=True)
            if total > -torch.inf
        ]

    def _followers(self, probabilities: Tensor) -> list[Possible]:
        # The probabilities are sorted here, so that a page need not store the whole vocabulary for each branch.
        shares, tokens = probabilities.topk(min(FOLLOWERS, len(probabilities)))
        pairs = zip(self.vocabulary.labels(tokens.tolist()), shares.tolist(), strict=True)
        return [Possible(label=label, probability=share) for label, share in pairs]

    def _add_branch(self, parent: int, token: int, total: float, probabilities: Tensor) -> int:
        previous = self.alive[parent]
        [label] = self.vocabulary.labels([token])
        self.branches.append(
            Branch(
                parent=previous,
                step=0 if previous is None else self.branches[previous].step + 1,
                label=label,
                token=token,
                probability=probabilities[parent, token].item(),
                log_probability=total,
                ended=token == EOS,
            )
        )
        return len(self.branches) - 1
