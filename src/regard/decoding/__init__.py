"""Decoding: from a source to the target that a model finds most likely, one token at a time."""

from regard.decoding.beam import beam_search, length_penalty
from regard.decoding.greedy import greedy_search, sample
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.search import Candidate, Search, translate

__all__ = [
    "Candidate",
    "Hypothesis",
    "Search",
    "beam_search",
    "greedy_search",
    "length_penalty",
    "sample",
    "translate",
]
