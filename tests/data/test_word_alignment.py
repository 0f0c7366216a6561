"""Word alignments are read from files and combined from both directions."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard.data.word_alignment import (
    WordAlignment,
    format_moses,
    links_from_weights,
    parse_moses,
    read_links,
    symmetrize,
)
from regard.errors import InputError

LINKS = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


@given(LINKS, LINKS)
def test_format_parse_round_trip(sure: frozenset[tuple[int, int]], possible: frozenset[tuple[int, int]]) -> None:
    line = f"{format_moses(sure)} {' '.join(f'{i}?{j}' for i, j in possible)}"
    assert parse_moses(line, "here") == WordAlignment(sure, sure | possible)


def test_a_file_in_moses_format(tmp_path: Path) -> None:
    file = tmp_path / "links"
    file.write_text("0-0 1-2 2?1\n\n3-3\n")
    found = read_links(file, 3)
    assert found == [WordAlignment.of([(0, 0), (1, 2)], [(2, 1)]), WordAlignment.of([]), WordAlignment.of([(3, 3)])]
    assert found[0].turned() == WordAlignment.of([(0, 0), (2, 1)], [(1, 2)])


def test_a_file_in_naacl_format(tmp_path: Path) -> None:
    file = tmp_path / "links"
    file.write_text("1 1 1 S\n1 2 3 S 0.9\n1 3 2 P\n0003 4 4\n3 0 1 S\n")
    assert read_links(file, 3) == [
        WordAlignment.of([(0, 0), (1, 2)], [(2, 1)]),
        WordAlignment.of([]),
        WordAlignment.of([(3, 3)]),
    ]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("0-0\n", "has links for 1 pair, but the text has 2"),
        ("0-0\n1:1\n", "line 2 of .* has '1:1', which is not a link: give links in Moses' format"),
        ("0-0 -1-0\n\n", "'-1-0', which is not a link"),
        ("1 1 1 S\n1 x 2 S\n", "line 2 of .* is '1 x 2 S', which is not a link"),
        ("3 1 1 S\n", "belongs to sentence 3, but the text has 2 pairs"),
        ("0 1 1 S\n", "belongs to sentence 0"),
    ],
)
def test_invalid_links_are_refused_with_their_line(tmp_path: Path, content: str, told: str) -> None:
    file = tmp_path / "links"
    file.write_text(content)
    with pytest.raises(InputError, match=told) as error:
        read_links(file, 2)
    assert "\n" not in str(error.value)


def test_links_beyond_the_words_are_refused() -> None:
    WordAlignment.of([(2, 3)]).check(3, 4, "pair 1")
    for sources, targets in ((2, 4), (3, 3)):
        with pytest.raises(InputError, match="pair 1: link 2-3 is beyond a source of"):
            WordAlignment.of([(2, 3)]).check(sources, targets, "pair 1")


@given(LINKS, LINKS)
def test_symmetrization(forward: frozenset[tuple[int, int]], backward: frozenset[tuple[int, int]]) -> None:
    both = symmetrize(forward, backward, "intersection")
    union = symmetrize(forward, backward, "union")
    grown = symmetrize(forward, backward, "grow-diag-final")
    assert both == forward & backward
    assert union == forward | backward
    assert both <= grown <= union
    # Each word with a link in at least one direction has a link.
    for side in (0, 1):
        assert {link[side] for link in grown} == {link[side] for link in union}


def test_grow_diag_final_by_hand() -> None:
    """Neighbors of the intersection are added first. (0, 3) is not a neighbor and covers words without a link."""
    forward = frozenset({(0, 0), (1, 1), (2, 1), (3, 4)})
    backward = frozenset({(0, 0), (1, 1), (1, 2), (0, 3)})
    # (2, 1) adds source word 2, and (1, 2) adds target word 2. Then (3, 4) adds two words, and (0, 3) target word 3.
    assert symmetrize(forward, backward, "grow-diag-final") == forward | backward
    # Links without a new word are omitted. The intersection already contains links for both words of (0, 1).
    assert symmetrize(frozenset({(0, 0), (1, 1), (0, 1)}), frozenset({(0, 0), (1, 1)}), "grow-diag-final") == {
        (0, 0),
        (1, 1),
    }


def test_the_product_needs_both_directions() -> None:
    """The forward direction alone would link target word 1 to source word 0, but the backward weight is zero."""
    forward = np.array([[0.9, 0.1], [0.6, 0.4]])
    backward = np.array([[0.9, 0.1], [0.1, 0.9]])
    assert links_from_weights(forward, backward) == {(0, 0), (1, 1)}
    assert links_from_weights(np.zeros((0, 3)), np.zeros((3, 0))) == frozenset()
