"""Decoding: find the most likely target of a source, one token at a time."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.decoding.controls import Controls as Controls, Requirement as Requirement
    from regard.decoding.generation import generate as generate
    from regard.decoding.sampling import sample as sample, truncate as truncate
    from regard.decoding.search import (
        Hypothesis as Hypothesis,
        SearchTrace as SearchTrace,
        Step as Step,
        beam_search as beam_search,
        greedy_search as greedy_search,
        length_penalty as length_penalty,
    )
    from regard.decoding.search_tree import (
        Branch as Branch,
        Possible as Possible,
        SearchTree as SearchTree,
        search_tree as search_tree,
    )
    from regard.decoding.translation import (
        Candidate as Candidate,
        Search as Search,
        blank_answer as blank_answer,
        translate as translate,
    )

late(__name__)
