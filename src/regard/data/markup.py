"""Transfer inline markup from a text to its translation along word alignment links.

A line such as `<b>Zwei</b> Hunde<br/>` is parsed into its text and its elements. Each element occurs once in the
translation and encloses the words linked to its source words. An element is placed inside its parent and beside its
siblings, so that the markup remains well-formed. An element whose words are not translated becomes an empty element.
"""

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from regard.data.tokenization import Span, Unit, word_spans
from regard.data.word_alignment import Link
from regard.errors import InputError, shorten

UNIT: Unit = "parts"  # Unit of the links: words with punctuation split off
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
"""HTML's elements without an end tag and without content."""
_NAME = r"[A-Za-z_][\w:.-]*"
_ATTRIBUTE = rf"""\s+{_NAME}(?:\s*=\s*(?:"[^"<]*"|'[^'<]*'|[^\s"'=<>`]+))?"""
_TAG = re.compile(
    rf"<(?P<name>{_NAME})(?:{_ATTRIBUTE})*\s*(?P<void>/)?>|</(?P<end>{_NAME})\s*>|(?P<comment><!--(?!>)"
    r"(?:(?!--).)*-->|<\?.*?\?>)"
)


@dataclass
class Element:
    """An element of a text: its tags and the span of its content."""

    start_tag: str  # The start tag as written, such as <a href="x">; the whole element if it has no content
    end_tag: str = ""
    span: Span = (0, 0)  # The span of the element's content in the text
    children: "list[Element]" = field(default_factory=list)


@dataclass
class MarkedText:
    """A text and its elements."""

    text: str  # The text without markup and with character references (&amp;) resolved
    elements: list[Element] = field(default_factory=list)


def parse_markup(line: str) -> MarkedText:
    """Return the text and the elements of a line.

    >>> parse_markup("<b>Zwei</b> Hunde").text
    'Zwei Hunde'
    """
    text, position, root = "", 0, Element("")
    opened: list[tuple[str, Element]] = [("", root)]
    for match in _TAG.finditer(line):
        text += _unescape(line[position : match.start()])
        position = match.end()
        if match["end"]:
            name, element = opened.pop()
            if name != match["end"]:
                problem = f"expected </{name}>" if name else "it has no start tag"
                raise InputError(f"markup is not well-formed at {match[0]}: {problem}")
            element.end_tag, element.span = match[0], (element.span[0], len(text))
            continue
        element = Element(match[0], span=(len(text), len(text)))
        opened[-1][1].children.append(element)
        if not (match["void"] or match["comment"] or match["name"].lower() in VOID):
            opened.append((match["name"], element))
    if len(opened) > 1:
        raise InputError(f"markup is not well-formed: {opened[-1][1].start_tag} has no end tag")
    return MarkedText(text + _unescape(line[position:]), root.children)


def _unescape(part: str) -> str:
    if "<" in part:
        tag = shorten(part[part.index("<") :], 20)
        raise InputError(f"markup is not well-formed: {tag} is not a tag; write &lt;")
    return html.unescape(part)


def escape_markup(text: str) -> str:
    """Escape the characters of a text that are special in markup.

    >>> escape_markup("1 < 2")
    '1 &lt; 2'
    """
    return html.escape(text, quote=False)


def transfer_markup(
    marked: MarkedText, translation: str, links: Iterable[Link], offsets: Sequence[Sequence[Span]] = ((), ())
) -> str:
    """Return a translation of `marked.text` with all its elements.

    `links`: pairs of word indices in the text and in the translation, as in `word_spans(text, UNIT, offsets)`.
    `offsets`: spans of the tokens of the text and of the translation.

    >>> transfer_markup(parse_markup("<b>zwei</b> Hunde"), "two dogs", [(0, 0), (1, 1)])
    '<b>two</b> dogs'
    """
    source, target = word_spans(marked.text, UNIT, offsets[0]), word_spans(translation, UNIT, offsets[1])
    sources: list[set[int]] = [set() for _ in target]
    for source_word, target_word in links:
        sources[target_word].add(source_word)
    words = _Words(marked.text, source, target, sources)
    whole = _Part((0, len(target)), (0, len(translation)), set(range(len(source))))
    return _write(marked.elements, whole, words, translation)


class _Words(NamedTuple):
    """The words of a text and of its translation."""

    text: str
    source: list[Span]
    target: list[Span]
    sources: list[set[int]]  # For each target word, the source words linked to it

    def inside(self, element: Element) -> set[int]:
        """Return the source words that begin in an element, or those that contain it if no word begins in it."""
        begin, end = element.span
        words = {word for word, (first, _) in enumerate(self.source) if begin <= first < end}
        return words or {word for word, (first, last) in enumerate(self.source) if first < end and begin < last}

    def position(self, offset: int) -> int:
        """Return the target word before which a position in the source is located: the word after the words that
        are linked to the nearest source word before `offset`."""
        for word in range(len(self.source) - 1, -1, -1):
            targets = [target for target, sources in enumerate(self.sources) if word in sources]
            if self.source[word][1] <= offset and targets:
                return max(targets) + 1
        return 0


class _Part(NamedTuple):
    """The part of the translation that contains the content of an element."""

    words: tuple[int, int]  # The span of its target words
    span: Span  # The span of its characters
    sources: set[int]  # The source words of the element


def _write(elements: Sequence[Element], parent: _Part, words: _Words, translation: str) -> str:
    """Return the text of a part of the translation, with markup for its elements."""
    runs = _assign_runs(elements, parent, words)
    parts = []
    for number, element in enumerate(elements):
        if number in runs:
            first, last = runs[number]
            span = (words.target[first][0], words.target[last - 1][1])
            parts.append((span, number, _Part((first, last), span, words.inside(element))))
        else:
            word, offset = _find_point(element, parent, words, list(runs.values()))
            parts.append(((offset, offset), number, _Part((word, word), (offset, offset), set())))
    written, (position, end) = "", parent.span
    for span, number, part in sorted(parts, key=lambda item: item[:2]):
        element = elements[number]
        content = _write(element.children, part, words, translation)
        before = escape_markup(translation[position : span[0]])
        written += f"{before}{element.start_tag}{content}{element.end_tag}"
        position = span[1]
    return written + escape_markup(translation[position:end])


def _assign_runs(elements: Sequence[Element], parent: _Part, words: _Words) -> dict[int, tuple[int, int]]:
    """Return the span of target words of each element by its index. Elements without linked words are omitted. An
    element with all source words of its parent gets all target words of the parent. Every other element gets the span
    with the most words linked to the words of the element and the fewest words linked to other words. Elements with
    more linked words are assigned first."""
    own = {
        number: sources
        for number, element in enumerate(elements)
        if element.end_tag and (sources := words.inside(element))
    }
    free, assigned = [parent.words], dict[int, tuple[int, int]]()
    while own:
        runs = {number: max(_best_run(sources, part, words) for part in free) for number, sources in own.items()}
        # Assign elements that enclose all words of the parent first, then by descending score, then from left to right.
        number = max(runs, key=lambda number: (own[number] >= parent.sources, runs[number][0], -number))
        score, (first, last) = runs[number]
        if own.pop(number) >= parent.sources and len(free) == 1 and free[0][0] < free[0][1]:
            first, last = free[0]
        elif score <= 0:
            continue
        assigned[number] = (first, last)
        free = [
            piece
            for begin, end in free
            for piece in ([(begin, first), (last, end)] if begin <= first and last <= end else [(begin, end)])
        ]
    return assigned


def _best_run(own: set[int], part: tuple[int, int], words: _Words) -> tuple[int, tuple[int, int]]:
    """Return the highest score and the span of target words with this score. The score is the number of words linked to
    `own` minus the number of words linked only to other words. The span is computed by Kadane's algorithm."""
    best, run, total, first = 0, (part[0], part[0]), 0, part[0]
    for word in range(*part):
        sources = words.sources[word]
        if total <= 0:
            total, first = 0, word
        total += (1 if sources & own else -1) if sources else 0
        if total > best:
            best, run = total, (first, word + 1)
    return best, run


def _find_point(element: Element, parent: _Part, words: _Words, runs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the target word and the character before which an element without words is placed."""
    begin, end = element.span[0], parent.words
    # The element follows all words of the parent.
    if all(words.source[word][1] <= begin for word in parent.sources):
        word = end[1]
    elif all(words.source[word][0] >= begin for word in parent.sources):
        word = end[0]
    else:
        word = min(max(words.position(begin), end[0]), end[1])
    for first, last in runs:
        if first < word < last:
            word = last
    after_blank = not begin or words.text[begin - 1].isspace()
    if word < end[1] and (after_blank or word == end[0]):
        offset = words.target[word][0]
    elif end[0] < word:
        offset = words.target[word - 1][1]
    else:
        offset = parent.span[0]
    return word, offset
