"""Decoding: from a source to the target that a model finds most likely, one token at a time."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.decoding.beam import Step, beam_search, length_penalty
    from regard.decoding.greedy import greedy_search, sample
    from regard.decoding.hypothesis import Hypothesis
    from regard.decoding.search import Candidate, Search, translate
    from regard.decoding.search_tree import Branch, Possible, SearchTree, search_tree

late(__name__)

__all__ = [
    "Branch",
    "Candidate",
    "Hypothesis",
    "Possible",
    "Search",
    "SearchTree",
    "Step",
    "beam_search",
    "greedy_search",
    "length_penalty",
    "sample",
    "search_tree",
    "translate",
]
