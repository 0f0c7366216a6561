"""Inline markup, carried from a text to its translation along the links between their words.

A line such as `<b>Zwei</b> Hunde<br/>` is read as its text and its elements. Each of these is put once into the
translation: around the words that come from its own, inside its parent and beside its siblings, so that what is
well-formed stays so. One of whose words nothing was translated stays, without content, where its place is.
"""

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from regard.data.tokenization import Span, Unit, word_spans
from regard.data.word_alignment import Link
from regard.errors import InputError, shorten

UNIT: Unit = "parts"
"""What links are to be of: words, with punctuation apart."""
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
"""HTML's elements that have no end and no content."""
_NAME = r"[A-Za-z_][\w:.-]*"
_ATTRIBUTE = rf"""\s+{_NAME}(?:\s*=\s*(?:"[^"<]*"|'[^'<]*'|[^\s"'=<>`]+))?"""
_TAG = re.compile(
    rf"<(?P<name>{_NAME})(?:{_ATTRIBUTE})*\s*(?P<void>/)?>|</(?P<end>{_NAME})\s*>|(?P<comment><!--(?!>)"
    r"(?:(?!--).)*-->|<\?.*?\?>)"
)


@dataclass
class Element:
    """An element of a text: its tags, and where in the text its content stands."""

    begins: str
    """As it was written: <a href="x">, or all of one that has no content."""
    ends: str = ""
    place: Span = (0, 0)
    """From which character of the text, and to before which."""
    children: "list[Element]" = field(default_factory=list)


@dataclass
class MarkedText:
    """A text, and its elements."""

    text: str
    """Without markup, and with characters for their names (&amp;)."""
    elements: list[Element] = field(default_factory=list)


def parse_markup(line: str) -> MarkedText:
    """Return the text and the elements of a line; raises `InputError` where its markup is not well-formed."""
    text, at, root = "", 0, Element("")
    opened: list[tuple[str, Element]] = [("", root)]
    for match in _TAG.finditer(line):
        text += _text(line[at : match.start()])
        at = match.end()
        if match["end"]:
            name, element = opened.pop()
            if name != match["end"]:
                wanted = f"where </{name}> is due" if name else "which nothing has begun"
                raise InputError(f"markup is not well-formed: {match[0]}, {wanted}")
            element.ends, element.place = match[0], (element.place[0], len(text))
            continue
        element = Element(match[0], place=(len(text), len(text)))
        opened[-1][1].children.append(element)
        if not (match["void"] or match["comment"] or match["name"].lower() in VOID):
            opened.append((match["name"], element))
    if len(opened) > 1:
        raise InputError(f"markup is not well-formed: nothing ends {opened[-1][1].begins}")
    return MarkedText(text + _text(line[at:]), root.children)


def _text(part: str) -> str:
    if "<" in part:
        raise InputError(
            f"markup is not well-formed: {shorten(part[part.index('<') :], 20)} is no tag; write &lt;"
        )
    return html.unescape(part)


def escape_markup(text: str) -> str:
    """Return a text as markup writes it."""
    return html.escape(text, quote=False)


def transfer_markup(marked: MarkedText, translation: str, links: Iterable[Link]) -> str:
    """Return a translation of `marked.text`, with all elements in it; `links`: between the words of both, as
    `word_spans(text, UNIT)` counts them."""
    source, target = word_spans(marked.text, UNIT), word_spans(translation, UNIT)
    comes_from: list[set[int]] = [set() for _ in target]
    for one, other in links:
        comes_from[other].add(one)
    words = _Words(marked.text, source, target, comes_from)
    whole = _Part((0, len(target)), (0, len(translation)), set(range(len(source))))
    return _write(marked.elements, whole, words, translation)


@dataclass(frozen=True)
class _Words:
    """The words of a text and of its translation."""

    text: str
    source: list[Span]
    target: list[Span]
    comes_from: list[set[int]]
    """Of each target word the source words that it is linked to."""

    def inside(self, element: Element) -> set[int]:
        """Return the source words of an element: those that begin in it, or else those that it is a part of."""
        begin, end = element.place
        found = {word for word, (first, _) in enumerate(self.source) if begin <= first < end}
        return found or {word for word, (first, last) in enumerate(self.source) if first < end and begin < last}

    def after(self, place: int) -> int:
        """Return the target word before which a place of the source is: after those that come from the nearest
        word before it."""
        for word in range(len(self.source) - 1, -1, -1):
            found = [target for target, sources in enumerate(self.comes_from) if word in sources]
            if self.source[word][1] <= place and found:
                return max(found) + 1
        return 0


@dataclass(frozen=True)
class _Part:
    """A part of the translation, in which an element has its content."""

    words: tuple[int, int]
    """From which target word, and to before which."""
    place: Span
    """From which of its characters, and to before which."""
    sources: set[int]
    """The source words of the element."""


def _write(elements: Sequence[Element], parent: _Part, words: _Words, translation: str) -> str:
    """Return a part of the translation with these elements in it."""
    spans = _spans(elements, parent, words)
    parts = []
    for number, element in enumerate(elements):
        if number in spans:
            first, last = spans[number]
            place = (words.target[first][0], words.target[last - 1][1])
            parts.append((place, number, _Part((first, last), place, words.inside(element))))
        else:
            word, at = _point(element, parent, words, list(spans.values()))
            parts.append(((at, at), number, _Part((word, word), (at, at), set())))
    written, (at, end) = "", parent.place
    for place, number, part in sorted(parts, key=lambda each: each[:2]):
        element = elements[number]
        content = _write(element.children, part, words, translation)
        written += f"{escape_markup(translation[at : place[0]])}{element.begins}{content}{element.ends}"
        at = place[1]
    return written + escape_markup(translation[at:end])


def _spans(elements: Sequence[Element], parent: _Part, words: _Words) -> dict[int, tuple[int, int]]:
    """Return which target words each element takes, by its number; those whose words come to none are left out.

    An element that has all words of its parent has them here too. Else it takes the run in which most words come
    from its own and fewest from others; who has most of them chooses first.
    """
    mine = {number: found for number, each in enumerate(elements) if each.ends and (found := words.inside(each))}
    free, taken = [parent.words], dict[int, tuple[int, int]]()
    while mine:
        runs = {number: max(_best_run(each, part, words) for part in free) for number, each in mine.items()}
        number = max(runs, key=lambda each: (mine[each] >= parent.sources, runs[each][0], -each))
        score, (first, last) = runs[number]
        if mine.pop(number) >= parent.sources and len(free) == 1 and free[0][0] < free[0][1]:
            first, last = free[0]
        elif score <= 0:
            continue
        taken[number] = (first, last)
        free = [
            piece
            for begin, end in free
            for piece in ([(begin, first), (last, end)] if begin <= first and last <= end else [(begin, end)])
        ]
    return taken


def _best_run(mine: set[int], part: tuple[int, int], words: _Words) -> tuple[int, tuple[int, int]]:
    """Return the run of target words in which most more come from `mine` than from other words, and how many."""
    best, run, total, first = 0, (part[0], part[0]), 0, part[0]
    for word in range(*part):
        sources = words.comes_from[word]
        if total <= 0:
            total, first = 0, word
        total += (1 if sources & mine else -1) if sources else 0
        if total > best:
            best, run = total, (first, word + 1)
    return best, run


def _point(element: Element, parent: _Part, words: _Words, spans: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return before which target word, and which character, an element without words stands."""
    begin, end = element.place[0], parent.words
    if all(words.source[each][1] <= begin for each in parent.sources):  # after all of them
        word = end[1]
    elif all(words.source[each][0] >= begin for each in parent.sources):
        word = end[0]
    else:
        word = min(max(words.after(begin), end[0]), end[1])
    for first, last in spans:
        if first < word < last:
            word = last
    ahead = not begin or words.text[begin - 1].isspace()
    if word < end[1] and (ahead or word == end[0]):
        place = words.target[word][0]
    elif end[0] < word:
        place = words.target[word - 1][1]
    else:
        place = parent.place[0]
    return word, place
