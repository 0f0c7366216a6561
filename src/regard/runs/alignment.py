"""Word alignment with a run: link the words of a target to the words of its source by attention.

The heads are chosen once, by their alignment error rate, and stored in alignment.json in the run's folder. If
no heads were chosen, the weights of all heads are averaged. A search uses the alignment to replace unknown words
and to place the translations of a glossary.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from regard.arguments import public
from regard.data.markup import UNIT
from regard.data.tokenization import Span, TokenizedText, Unit, is_whole, tokenize, word_spans
from regard.data.vocabulary import BLANK, SPECIAL, UNKNOWN, Vocabulary
from regard.data.word_alignment import Link, Symmetrization, format_moses, links_from_weights, symmetrize
from regard.errors import InputError
from regard.interpret.alignment import (
    AligningHeads,
    AlignmentChoice,
    By,
    KeptHeads,
    cross_attention_heads,
    extract_links,
    word_weights,
)
from regard.io import convert_json, damage_errors
from regard.result import Result, to_plain
from regard.training.objective import HEAD, guided_layer

if TYPE_CHECKING:
    import numpy as np

    from regard.decoding.translation import Candidate, Search

FILE = "alignment.json"
FORMAT = "regard-alignment/1"
MEND = "delete it, and choose heads again"


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class LinkedPair(Result):
    """A sentence pair with the links between its words."""

    source: list[str]
    """Words of the source."""
    target: list[str]
    """Words of the target."""
    links: list[Link]
    """Indices (from 0) of the source word and the target word of each link, in the order of the source words."""
    weights: np.ndarray
    """(Wt, Ws) float32: attention of each target word to each source word."""
    nothing: np.ndarray
    """(Wt,): attention of each target word to the end-of-source symbol, which is not a word."""
    heads: str
    """Names of the heads whose weights are averaged."""

    @property
    def moses(self) -> str:
        """The links in Moses format, such as `0-0 1-2`."""
        return format_moses(self.links)

    def __str__(self) -> str:
        return self.moses


class _Heads(msgspec.Struct, forbid_unknown_fields=True):
    heads: Annotated[list[tuple[str, int]], msgspec.Meta(min_length=1)]
    shifted: bool


class _Choice(msgspec.Struct, forbid_unknown_fields=True):
    """Content of alignment.json."""

    format: Literal["regard-alignment/1"]
    step: int
    """Number of training steps of the model."""
    best: By
    ways: dict[By, _Heads]
    writing: _Heads
    report: dict[str, Any]
    """Alignment error rates of the chosen heads."""


@dataclass(frozen=True)
class Aligner:
    """Word aligner of a `SequenceRun`, whose folder stores the alignment heads."""

    run: Any

    @property
    def unit(self) -> Unit:
        return "pieces" if self.run.task.source_vocabulary.unit == "characters" else "words"

    def kept(self) -> KeptHeads | None:
        """Return the chosen heads, else the head that was trained with an alignment loss, else None.

        Raises `InputError` if the stored choice is damaged.
        """
        run = self.run
        if (content := run.files.read_derived(FILE, MEND)) is not None:
            with damage_errors(run.folder / FILE, MEND):
                choice = convert_json(content, _Choice)
            writing, *of_ways = (
                AligningHeads(heads=tuple(stored.heads), shifted=stored.shifted)
                for stored in (choice.writing, *choice.ways.values())
            )
            ways = dict(zip(choice.ways, of_ways, strict=True))
            named = {head for heads in (writing, *of_ways) for head in heads.heads}
            fits = choice.step == run.step and named <= set(cross_attention_heads(run.model))
            if fits and choice.best in ways:
                return KeptHeads(best=choice.best, ways=ways, writing=writing)
        if not run.guided:
            return None
        head = AligningHeads(heads=((guided_layer(run.model), HEAD),), shifted=False)
        return KeptHeads(best="head", ways={"head": head}, writing=head)

    def heads(self, by: By | None = None) -> AligningHeads:
        """Return the heads for alignment: the heads that `by` names, else the chosen heads, else all heads."""
        kept = self.kept()
        if kept is not None and (by or kept.best) in kept.ways:
            return kept.ways[by or kept.best]
        if by in ("head", "set"):
            raise InputError(
                f"run {self.run.where!r} has no chosen alignment heads: choose them with `regard align "
                f"RUN SOURCE TARGET --links LINKS`, or leave out --by {by}"
            )
        return AligningHeads(heads=tuple(cross_attention_heads(self.run.model)), shifted=False)

    def align(
        self, pairs: Sequence[tuple[str, str]], by: By | None = None, unit: Unit | None = None
    ) -> list[LinkedPair]:
        """Return the links of sentence pairs; see `SequenceRun.align`."""
        heads, unit = self.heads(by), unit or self.unit
        source, target = self.run.task.vocabularies
        cuts = [(tokenize(text, source, unit), tokenize(answer, target, unit)) for text, answer in pairs]
        # Batches of pairs with similar lengths need less padding.
        order = sorted(range(len(cuts)), key=lambda index: len(cuts[index][1].indices))
        linked: list[LinkedPair | None] = [None] * len(cuts)
        weights = word_weights(self.run.model, [cuts[index] for index in order], heads.heads)
        for index, pair_weights in zip(order, weights, strict=True):
            linked[index] = link_words(*cuts[index], pair_weights[int(heads.shifted)].mean(0), heads.name)
        return [pair for pair in linked if pair is not None]

    def keep(self, choice: AlignmentChoice) -> None:
        """Store a choice of heads in the run's folder."""
        report = {name: to_plain(value) for name, value in choice.json().items() if name in ("against", "found")}
        content = {
            "format": FORMAT,
            "step": self.run.step,
            "best": choice.best,
            "ways": {way: to_plain(heads) for way, heads in choice.ways.items()},
            "writing": to_plain(choice.writing),
            "report": report,
        }
        self.run.files.write_derived(FILE, content)


def combine_directions(
    forward: Sequence[LinkedPair], backward: Sequence[LinkedPair], method: Symmetrization
) -> list[LinkedPair]:
    """Return pairs with the combined links of both directions. `backward` has the pairs (target, source)."""
    pairs = []
    for pair, reverse in zip(forward, backward, strict=True):
        if method == "product":
            links = links_from_weights(pair.weights, reverse.weights)
        else:
            turned = frozenset((source, target) for target, source in reverse.links)
            links = symmetrize(frozenset(pair.links), turned, method)
        pairs.append(dataclasses.replace(pair, links=sorted(links)))
    return pairs


def link_words(source: TokenizedText, target: TokenizedText, weights: np.ndarray, heads: str) -> LinkedPair:
    return LinkedPair(
        source=source.words,
        target=target.words,
        links=sorted(extract_links(weights)),
        weights=weights[:, :-1],
        nothing=weights[:, -1],
        heads=heads,
    )


# Replace the unknown words of answers by the source words to which they are aligned (Luong et al. 2015b).


def replace_unknown(
    aligner: Aligner, texts: Sequence[str], answers: Sequence[Sequence[Candidate]]
) -> list[list[Candidate]]:
    """Return the answers to each text without unknown symbols.

    A word with the unknown symbol is replaced by the source word that gets the largest weight of the alignment
    heads when the model writes the symbol. The tokens of the answers do not change.
    """
    heads, source = aligner.heads(), aligner.run.task.source_vocabulary

    def pieces(tokens: list[int]) -> TokenizedText:
        return TokenizedText("", tokens, list(range(len(tokens))), [(0, 0)] * len(tokens))

    pairs = [
        (tokenize(text, source, aligner.unit), pieces(candidate.tokens))
        for text, ranked in zip(texts, answers, strict=True)
        for candidate in ranked
        if UNKNOWN in candidate.tokens
    ]
    weights = zip(pairs, word_weights(aligner.run.model, pairs, heads.heads), strict=True) if pairs else iter(())

    def replaced(candidate: Candidate) -> Candidate:
        if UNKNOWN not in candidate.tokens:
            return candidate
        (words, target), pair_weights = next(weights)
        best = pair_weights[int(heads.shifted)].mean(0)[:, :-1].argmax(1)
        steps = [step for step, token in enumerate(target.indices) if token == UNKNOWN]
        aligned = (words.words[best[step]] for step in steps)
        # Without the punctuation around a word, unless it consists of punctuation.
        aligned = (re.sub(r"^\W+|\W+$", "", word) or word for word in aligned)
        return dataclasses.replace(candidate, text=_fill(candidate.text, aligned, aligner.run.task.target_vocabulary))

    return [[replaced(candidate) for candidate in ranked] for ranked in answers]


def _fill(text: str, words: Iterator[str], vocabulary: Vocabulary) -> str:
    """Replace the words with unknown symbols in a decoded text by `words`, of which there is one per symbol."""
    symbol = SPECIAL[UNKNOWN]
    if vocabulary.unit == "characters":
        return re.sub(symbol, lambda _: next(words), text)
    if BLANK not in vocabulary.symbols:  # an unknown symbol is a whole word, decoded without the space before it
        return re.sub(rf" *{symbol}", lambda _: f" {next(words)}", text).strip()

    def first(match: re.Match[str]) -> str:
        """Return the source word of the first unknown symbol of a word, and skip those of its other symbols."""
        aligned = [next(words) for _ in range(match.group().count(symbol))]
        return aligned[0]

    return re.sub(rf"[\w{symbol}]*{symbol}[\w{symbol}]*", first, text)


# Place the translations of a glossary where the model translates their source terms.
#
# A search with required terms (`RequiredTerms`) also appends a term to a complete sentence: "a dog
# runs. canine." So each text is also searched without its glossary. The words of the answer that are aligned to a
# source term are replaced: the answer up to these words and the translation become the prefix of the next search,
# from the first to the last term.

Term = tuple[Span, str]  # The span of a source term in its text, and its translation
MIN_WEIGHT = 0.3
"""Smallest weight of a word on a source term that it translates. Models that attend to no word have no places."""
SENTENCE_END = re.compile("[.!?\u2026\u3002\uff01\uff1f]\\W*$")


@dataclass
class _Item:
    """A text with terms, and its answers so far."""

    text: str
    waiting: list[Term]  # Terms that have no place yet
    prefix: str
    answers: list[Candidate]
    repeat: tuple[str, str] = ("", "")
    """The last word that was replaced, and what followed it. If the model writes this word again after the
    translation, the prefix is continued by what followed."""
    placed: str = "\0"  # The last translation that was placed
    failed: bool = False  # Whether a translation has no place


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
    controls, vocabulary = search.controls, aligner.run.task.target_vocabulary
    most = min(controls.max_length or aligner.run.task.longest_target, aligner.run.task.longest_target)
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
    source, target = aligner.run.task.vocabularies
    result = []
    for (text, answer), pair in zip(pairs, aligner.align(pairs, unit=UNIT), strict=True):
        spans = word_spans(text, UNIT, source.offsets(text))
        linked = [[(first, second) in pair.links for first in range(len(spans))] for second in range(len(pair.target))]
        columns = [
            list(zip(spans, row, links, strict=True)) for row, links in zip(pair.weights.tolist(), linked, strict=True)
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
    """Extend the prefix of an item by the translation of the first misplaced term. Return whether there is one."""
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
