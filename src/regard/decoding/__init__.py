"""Decoding: find the most likely target of a source, one token at a time."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.decoding.controls import Controls, Target
    from regard.decoding.generation import generate
    from regard.decoding.sampling import sample, truncate
    from regard.decoding.search import Hypothesis, Step, beam_search, greedy_search, length_penalty
    from regard.decoding.search_tree import Branch, Possible, SearchTree, search_tree
    from regard.decoding.translation import Candidate, Search, blank_answer, translate

late(__name__)

__all__ = [
    "Branch",
    "Candidate",
    "Controls",
    "Hypothesis",
    "Possible",
    "Search",
    "SearchTree",
    "Step",
    "Target",
    "beam_search",
    "blank_answer",
    "generate",
    "greedy_search",
    "length_penalty",
    "sample",
    "search_tree",
    "translate",
    "truncate",
]
