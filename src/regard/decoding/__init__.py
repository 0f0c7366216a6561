"""Decoding: from a source to the target that a model finds most likely, one token at a time."""

from regard.decoding.beam import beam_search, length_penalty
from regard.decoding.greedy import greedy_search, sample
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.translation import Search, Translation, translate

__all__ = [
    "Hypothesis",
    "Search",
    "Translation",
    "beam_search",
    "greedy_search",
    "length_penalty",
    "sample",
    "translate",
]
