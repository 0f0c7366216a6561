"""Place the translations of a glossary where the model translates their source terms.

A search with required terms (`decoding.required_terms`) also appends a term to a complete sentence: "a dog runs.
canine." So each text is also searched without its glossary. The words of the answer that are aligned to a source
term are replaced: the answer up to these words and the translation become the prefix of the next search, from the
first to the last term.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.data.markup import UNIT
from regard.data.tokenization import Span, is_whole, word_spans
from regard.data.vocabulary import UNKNOWN

if TYPE_CHECKING:
    from regard.decoding.translation import Candidate, Search
    from regard.runs.alignment import Aligner

Term = tuple[Span, str]
"""The span of a source term in its text, and its translation."""
MIN_WEIGHT = 0.3
"""Smallest weight of a word on a source term that it translates. Models that attend to no word have no places."""
SENTENCE_END = re.compile("[.!?\u2026\u3002\uff01\uff1f]\\W*$")


@dataclass
class _Item:
    """A text with terms, and its answers so far."""

    text: str
    waiting: list[Term]
    """Terms that have no place yet."""
    prefix: str
    answers: list[Candidate]
    repeat: tuple[str, str] = ("", "")
    """The last word that was replaced, and what followed it. If the model writes this word again after the
    translation, the prefix is continued by what followed."""
    placed: str = "\0"
    """The last translation that was placed."""
    failed: bool = False
    """Whether a translation has no place."""


def place_terms(
    find: Callable[[Sequence[str], Search], list[list[Candidate]]],
    aligner: Aligner,
    texts: Sequence[str],
    search: Search,
    found: list[list[Candidate]],
) -> list[list[Candidate]]:
    """Return answers with the glossary's translations in the places of their source terms.

    `find`: function that searches answers. `found`: answers of a search with required terms. They are returned
    for texts in whose answers no words are aligned to a source term; `misplaced` then names the translations that
    stand elsewhere.
    """
    controls, vocabulary = search.controls, aligner.task.target_vocabulary
    most = min(controls.max_length or aligner.task.longest_target, aligner.task.longest_target)
    most -= sum(len(vocabulary.encode(term)) for term in controls.terms)
    items = [
        _Item(text, controls.translations(text), prefix, ranked)
        for text, prefix, ranked in zip(texts, controls.prefixes(len(texts)), found, strict=True)
    ]
    going = [item for item in items if item.waiting]
    while going:
        free = dataclasses.replace(controls, glossary={}, prefix=[item.prefix for item in going])
        answers = find([item.text for item in going], dataclasses.replace(search, controls=free))
        for item, ranked in zip(going, answers, strict=True):
            item.answers = ranked
        links = _linked_words(aligner, [(item.text, item.answers[0].text) for item in going])
        going = [item for item, words in zip(going, links, strict=True) if _extend(item, words)]
        for item in going:
            tokens = vocabulary.encode(item.prefix)
            item.failed |= len(tokens) > most or UNKNOWN in tokens
        going = [item for item in going if not item.failed]
    failed = [row for row, item in enumerate(items) if item.failed]
    checked = _linked_words(aligner, [(texts[row], found[row][0].text) for row in failed])
    for row, words in zip(failed, checked, strict=True):
        first, *others = found[row]
        terms = controls.translations(texts[row])
        misplaced = [term[1] for term in terms if not _is_placed(term, texts[row], first.text, words)]
        items[row].answers = [dataclasses.replace(first, misplaced=tuple(misplaced)), *others]
    return [item.answers for item in items]


Words = list[tuple[Span, list[tuple[Span, float, bool]]]]
"""The span of each word of an answer, with each source word: its span, its weight, and whether it is linked."""


def _linked_words(aligner: Aligner, pairs: Sequence[tuple[str, str]]) -> list[Words]:
    """Return the words of each answer with the source words."""
    source, target = aligner.task.source_vocabulary, aligner.task.target_vocabulary
    result = []
    for (text, answer), pair in zip(pairs, aligner.align(pairs, unit=UNIT), strict=True):
        spans = word_spans(text, UNIT, source.offsets(text))
        linked = [
            [(first, second) in pair.links for first in range(len(spans))] for second in range(len(pair.target))
        ]
        columns = [
            list(zip(spans, row, links, strict=True))
            for row, links in zip(pair.weights.tolist(), linked, strict=True)
        ]
        words = zip(word_spans(answer, UNIT, target.offsets(answer)), columns, strict=True)
        result.append([(span, links) for span, links in words if any(map(str.isalnum, answer[slice(*span)]))])
    return result


def _place(term: Term, words: Words, begin: int = 0) -> tuple[int, int] | None:
    """Return the first and the last word, from the position `begin` of the answer on, that translate a source
    term; None if there are no words.

    The place begins with the word with the largest weight, because an article is also linked to its noun, and
    contains the linked words after it.
    """
    columns = [
        [(weight, linked) for span, weight, linked in sources if span[0] < term[0][1] and term[0][0] < span[1]]
        for _, sources in words
    ]
    weights = [
        sum(weight for weight, _ in column) * (start >= begin)
        for column, ((start, _), _) in zip(columns, words, strict=True)
    ]
    if max(weights, default=0.0) < MIN_WEIGHT:
        return None
    first = last = weights.index(max(weights))
    while last + 1 < len(words) and any(linked for _, linked in columns[last + 1]):
        last += 1
    return first, last


def _extend(item: _Item, words: Words) -> bool:
    """Extend the prefix of an item by the translation of the first term that is not in its place. Return whether
    there is such a term."""
    answer = item.answers[0].text
    word, following = item.repeat
    item.repeat = ("", "")
    end = len(item.prefix)
    item.failed = item.prefix.endswith(item.placed) and " " in answer
    item.failed = item.failed and not is_whole(answer, end - len(item.placed), end)
    repeated = re.compile(rf"\W*{re.escape(word)}").match(answer, end)
    if word and repeated and is_whole(answer, repeated.end() - len(word), repeated.end()):
        item.prefix += following
        return True
    places = [(term, _place(term, words, len(item.prefix))) for term in item.waiting]
    item.failed |= any(place is None for _, place in places)
    for term, place in sorted(places, key=lambda pair: pair[1] or (0, 0)):
        if item.failed or place is None:
            return False
        item.waiting.remove(term)
        if not _is_placed(term, item.text, answer, words):
            (begin, _), (_, end) = (words[index][0] for index in place)
            after = words[place[1] + 1][0][1] if place[1] + 1 < len(words) else len(answer)
            item.prefix, item.placed = answer[:begin] + term[1], term[1]
            item.repeat = (answer[words[place[1]][0][0] : end], answer[end:after])
            return True
    return False


def _is_placed(term: Term, text: str, answer: str, words: Words) -> bool:
    """Return whether a translation stands in its place in an answer, as whole words, and in the sentence."""
    place = _place(term, words)
    return place is not None and any(
        (" " not in answer or is_whole(answer, *match.span()))
        and match.start() < words[place[0]][0][1]
        and words[place[0]][0][0] < match.end()
        and (not SENTENCE_END.search(answer[: match.start()]) or bool(SENTENCE_END.search(text[: term[0][0]])))
        for match in re.finditer(re.escape(term[1]), answer)
    )
