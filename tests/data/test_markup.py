"""Markup transferred to a translation contains each element once and is always well-formed."""

import xml.etree.ElementTree as ET
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from regard.data.markup import UNIT, Element, escape_markup, parse_markup, transfer_markup
from regard.data.tokenization import word_spans
from regard.errors import InputError

IN_ORDER = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]


@pytest.mark.parametrize(
    ("line", "translation", "links", "expected"),
    [
        ("<b>Zwei</b> Hunde", "Two dogs", IN_ORDER[:2], "<b>Two</b> dogs"),
        ("Hunde <b>zwei</b>", "two dogs", [(1, 0), (0, 1)], "<b>two</b> dogs"),
        (
            "<p>Zwei <i>Hunde <b>laufen</b></i>.<br/></p>",
            "Two dogs run.",
            IN_ORDER[:4],
            "<p>Two <i>dogs <b>run</b></i>.<br/></p>",
        ),
        ("Ich <b>habe</b> ihn <i>gesehen</i>", "I saw him", [(0, 0), (3, 1), (2, 2)], "I <b></b><i>saw</i> him"),
        ('<a href="x>y&amp;z">A</a> &lt; B', "C < D", IN_ORDER[:3], '<a href="x>y&amp;z">C</a> &lt; D'),
        ("un<b>glaub</b>lich", "unbelievable", [(0, 0)], "<b>unbelievable</b>"),
        ("<b><i></i>x</b><!-- a > b -->", "y", [], "<b><i></i>y</b><!-- a > b -->"),
        ("<b>a b</b>", "a c b", [(0, 0), (1, 2)], "<b>a c b</b>"),
        ("<b>a</b> <i>b</i>.", "b a.", [(0, 1), (1, 0), (2, 2)], "<i>b</i> <b>a</b>."),
        ("<br>", "", [], "<br>"),
    ],
)
def test_elements_surround_the_words_linked_to_theirs(
    line: str, translation: str, links: list[tuple[int, int]], expected: str
) -> None:
    assert transfer_markup(parse_markup(line), translation, links) == expected


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("a < b", "'< b' is not a tag; write &lt;"),
        ("<b>x", "<b> has no end tag"),
        ("x</b>", "</b>: it has no start tag"),
        ("<b><i>x</b></i>", "</b>: expected </i>"),
        ("<!-- a -- b -->", "is not a tag"),
        ("<b x='<'>y</b>", "is not a tag"),
    ],
)
def test_malformed_markup_is_refused(line: str, told: str) -> None:
    with pytest.raises(InputError, match="markup is not well-formed") as error:
        parse_markup(line)
    assert told in str(error.value)


WORDS = st.lists(st.sampled_from(["ab", "c", "&", "<", "x.", ">", "\u00e4 b"]), max_size=4).map(" ".join)
TAGS = st.sampled_from(
    [("<b>", "</b>"), ('<a href="a b">', "</a>"), ("<i >", "</i >"), ("<br/>", ""), ("<!--c-->", "")]
)


@st.composite
def marked_lines(draw: st.DrawFn, depth: int = 3) -> str:
    """Sample text with nested elements."""
    line = escape_markup(draw(WORDS))
    for _ in range(draw(st.integers(0, 3)) if depth else 0):
        begins, ends = draw(TAGS)
        inside = draw(marked_lines(depth=depth - 1)) if ends else ""
        blank = draw(st.sampled_from(["", " "]))
        line += f"{blank}{begins}{inside}{ends}{blank}{escape_markup(draw(WORDS))}"
    return line


def below(elements: list[Element]) -> Counter[tuple[str, ...]]:
    """Count elements by their path."""
    found: Counter[tuple[str, ...]] = Counter()
    for each in elements:
        found[each.start_tag, each.end_tag] += 1
        found.update({(each.start_tag, *way): count for way, count in below(each.children).items()})
    return found


@given(st.data())
def test_every_element_occurs_once_and_the_result_is_well_formed(data: st.DataObject) -> None:
    line, translation = data.draw(marked_lines()), data.draw(WORDS)
    marked = parse_markup(line)
    sizes = [len(word_spans(text, UNIT)) for text in (marked.text, translation)]
    links = []
    if all(sizes):
        links = data.draw(st.lists(st.tuples(*(st.integers(0, size - 1) for size in sizes)), max_size=10))
    answer = transfer_markup(marked, translation, links)
    ET.fromstring(f"<x>{answer}</x>")
    found = parse_markup(answer)
    assert found.text == translation
    assert below(found.elements) == below(marked.elements)


def test_character_references_are_resolved() -> None:
    assert parse_markup("a&amp;b &lt;c&gt; &uuml;").text == "a&b <c> \u00fc"
