"""Sequence-to-sequence runs: translate, score, align, and inspect attention."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from regard.arguments import public, show_value
from regard.attention.records import check_indices
from regard.convert.engine import Engines
from regard.convert.exportable import EngineName, Exportable, Precision
from regard.data.markup import UNIT
from regard.data.tokenization import Span, TokenizedText, is_whole, tokenize, word_spans
from regard.data.vocabulary import BLANK, SPECIAL, UNKNOWN, empty_if_blank, is_blank
from regard.data.word_alignment import align_with_eflomal
from regard.decoding.controls import Controls
from regard.decoding.search_tree import SearchTree
from regard.decoding.translation import Candidate, Search
from regard.errors import InputError, check_range, plural, shorten
from regard.evaluation.scoring import Scored
from regard.interpret.head_selection import AlignmentChoice, By, KeptHeads
from regard.interpret.word_links import word_weights
from regard.runs.attention_maps import add_note, map_of_links, map_of_pair, note_of, select_aligning_head
from regard.runs.probe_input import trial_of_pair
from regard.runs.run import Run, play_back
from regard.training.config import ModelPart, TaskPart
from regard.viz.attention_map import AttentionMap, Playback
from regard.viz.records import attach_original
from regard.viz.subject import ProbeInput

if TYPE_CHECKING:
    from regard.data.tokenization import Unit
    from regard.data.vocabulary import Vocabulary
    from regard.data.word_alignment import Link, Symmetrization, WordAlignment
    from regard.models.base import Seq2Seq
    from regard.runs.alignment import Aligner, LinkedPair
    from regard.tasks.pairs import SequenceTask

# Replace the unknown words of answers by the source words to which they are aligned (Luong et al. 2015b).


def replace_unknown(
    aligner: Aligner, texts: Sequence[str], answers: Sequence[Sequence[Candidate]]
) -> list[list[Candidate]]:
    """Return the answers to each text without unknown symbols.

    A word with the unknown symbol is replaced by the source word that gets the largest weight of the alignment
    heads when the model writes the symbol. The tokens of the answers do not change.
    """
    heads, source = aligner.heads(), aligner.task.source_vocabulary
    pairs = [
        (tokenize(text, source, aligner.unit), _pieces(candidate.tokens))
        for text, ranked in zip(texts, answers, strict=True)
        for candidate in ranked
        if UNKNOWN in candidate.tokens
    ]
    weights = zip(pairs, word_weights(aligner.model, pairs, heads.heads), strict=True) if pairs else iter(())

    def replaced(candidate: Candidate) -> Candidate:
        if UNKNOWN not in candidate.tokens:
            return candidate
        (words, target), pair_weights = next(weights)
        best = pair_weights[int(heads.shifted)].mean(0)[:, :-1].argmax(1)
        steps = [step for step, token in enumerate(target.indices) if token == UNKNOWN]
        aligned = (_without_punctuation(words.words[best[step]]) for step in steps)
        return dataclasses.replace(candidate, text=_fill(candidate.text, aligned, aligner.task.target_vocabulary))

    return [[replaced(candidate) for candidate in ranked] for ranked in answers]


def _pieces(tokens: list[int]) -> TokenizedText:
    return TokenizedText("", tokens, list(range(len(tokens))), [(0, 0)] * len(tokens))


def _without_punctuation(word: str) -> str:
    """Return a word without the punctuation around it, unless it consists of punctuation.

    >>> _without_punctuation("(Hund).")
    'Hund'
    """
    return re.sub(r"^\W+|\W+$", "", word) or word


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


# Search for answers to texts with a run or an ensemble of runs, in Regard or another engine.

# Place the translations of a glossary where the model translates their source terms.
#
# A search with required terms (`decoding.required_terms`) also appends a term to a complete sentence: "a dog
# runs. canine." So each text is also searched without its glossary. The words of the answer that are aligned to a
# source term are replaced: the answer up to these words and the translation become the prefix of the next search,
# from the first to the last term.

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


class Translator(Exportable, Protocol):
    """A run that answers texts."""

    @property
    def engines(self) -> Engines:
        """Search engines of other programs."""

    @property
    def aligner(self) -> Aligner:
        """Word aligner of the model."""

    def check_texts(self, texts: Iterable[str]) -> None:
        """Raise `InputError` for the first text that is too long."""


def search_texts(
    runs: Sequence[Translator],
    texts: Iterable[str],
    search: Search,
    *,
    batchsize: int,
    engine: EngineName,
    precision: Precision,
    scored: bool,
) -> list[list[Candidate]]:
    """Return the answers to each text; see `SequenceRun.search`. Without texts, only the options are checked.

    Raises `InputError` if the vocabularies of the runs differ.
    """
    from regard.decoding.translation import blank_answer, translate

    check_range("batchsize", batchsize, 1, 10**6)
    texts = [texts] if isinstance(texts, str) else list(texts)
    first = runs[0]
    for run in runs:
        run.check_texts(texts)
    for run in runs[1:]:
        _check_vocabularies(first, run)
    # A blank text has an empty answer, without a search.
    indices = [index for index, text in enumerate(texts) if not is_blank(text)]
    nonblank = [texts[index] for index in indices]
    search = search.select(indices, len(texts))
    opened = None
    own_engines = ("regard",) if nonblank else ("regard", "auto")  # auto opens no engine without texts
    if engine not in own_engines or precision != "float32":
        opened = first.engines.choose(search, engine, precision, models=len(runs), scored=scored)
    if not nonblank:
        return [[blank_answer()] for _ in texts]
    own = partial(
        translate,
        [run.model for run in runs],
        first.task.source_vocabulary,
        first.task.target_vocabulary,
        max_len=min(run.task.longest_target for run in runs),
    )
    find = partial(own if opened is None else opened.search, batchsize=batchsize, scored=scored)
    found = find(nonblank, search)
    if search.controls.glossary:
        found = place_terms(find, first.aligner, nonblank, search, found)
    if search.controls.replace_unknown:
        found = replace_unknown(first.aligner, nonblank, found)
    answers = [[blank_answer()] for _ in texts]
    for index, ranked in zip(indices, found, strict=True):
        answers[index] = ranked
    return answers


def _check_vocabularies(run: Translator, other: Translator) -> None:
    """Raise `InputError` if the vocabularies of two runs differ."""
    for side in ("source", "target"):
        vocabulary = f"{side}_vocabulary"
        if _content(getattr(run.task, vocabulary)) != _content(getattr(other.task, vocabulary)):
            raise InputError(
                f"the {side} vocabularies of {str(run.folder)!r} and {str(other.folder)!r} differ: "
                "give runs that were trained with the same vocabularies"
            )


def _content(vocabulary: Any) -> Any:
    return vocabulary.to_json() if hasattr(vocabulary, "to_json") else vocabulary.symbols


LONGEST_SHOWN = 20
"""Maximum number of characters of a text in an error message."""
MOST_SILVER = 200_000
"""Maximum number of pairs of the training text from which eflomal also learns."""


@public
@dataclass(frozen=True, repr=False)
class SequenceRun(Run[TaskPart, ModelPart]):
    """Base class of runs that answer with text."""

    task: SequenceTask
    model: Seq2Seq
    usual_beam: ClassVar[int] = 1
    """Default beam size; 1 is greedy search."""
    usual_length_penalty: ClassVar[float] = 0.0
    """Default exponent of the length penalty."""

    @property
    def importance_samples(self) -> int:
        return 500

    def translate(
        self,
        texts: Iterable[str],
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        batchsize: int = 64,
        engine: EngineName = "regard",
        precision: Precision = "float32",
        controls: Controls | None = None,
        ensemble: Sequence[SequenceRun] = (),
    ) -> list[str]:
        """Return the best answer to each text, in order; options as in `search`."""
        search = partial(self.search, texts, beam=beam, length_penalty=length_penalty, batchsize=batchsize)
        search = partial(search, engine=engine, precision=precision, controls=controls, ensemble=ensemble)
        return [best.text for best, *_ in search(scored=False)]

    def search(
        self,
        texts: Iterable[str],
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        batchsize: int = 64,
        engine: EngineName = "regard",
        precision: Precision = "float32",
        scored: bool = True,
        traced: bool = False,
        controls: Controls | None = None,
        ensemble: Sequence[SequenceRun] = (),
    ) -> list[list[Candidate]]:
        """Return the `n_best` answers to each text, best first, with log-probabilities and scores.

        `beam`: beam size, 1 for greedy search. `length_penalty`: exponent, 0 to disable. None: the default of
        the run's class. If `temperature` is above 0, tokens are sampled with `seed` instead, with `top_k` and
        `top_p` only from likely tokens (see `decoding.truncate`). Symbols that are not in the vocabulary are
        read as the unknown symbol. A blank text has one empty answer. `engine`, `precision`: see
        `Engines.choose`. `scored`: if False, log-probabilities may be NaN to save time. `traced`: see
        `decoding.Search`. `controls`: constraints on the answers. `ensemble`: other runs with the same
        vocabularies; each token is predicted by the mean of the probabilities of all runs. Raises `InputError`
        for a text that is too long, invalid options, and a search that the engine does not support.
        """
        from regard.decoding.controls import Controls
        from regard.decoding.translation import Search

        beam = (1 if temperature else self.usual_beam) if beam is None else beam
        length_penalty = self.usual_length_penalty if length_penalty is None else length_penalty
        sampling: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        ranking: dict[str, Any] = {"beam": beam, "length_penalty": length_penalty, "n_best": n_best}
        settings = Search(**ranking, **sampling, controls=controls or Controls(), traced=traced)
        how: dict[str, Any] = {"batchsize": batchsize, "engine": engine, "precision": precision, "scored": scored}
        return search_texts([self, *ensemble], texts, settings, **how)

    @cached_property
    def engines(self) -> Engines:
        """Search engines of other programs."""
        from regard.convert.engine import Engines

        return Engines(self)

    def tree(self, input: str | None = None, *, beam: int | None = None, seed: int = 0) -> SearchTree:
        """Return the beam's prefixes for an input (default: a random input), with their possible next tokens."""
        from regard.decoding.search_tree import search_tree

        text = self.draw(seed=seed) if input is None else input
        self.check_texts([text])
        return search_tree(
            self.model,
            self.task.source_vocabulary,
            self.task.target_vocabulary,
            text,
            beam=self.usual_beam if beam is None else beam,
            length_penalty=self.usual_length_penalty,
            max_len=self.task.longest_target,
        )

    def attend_tokens(self, input: str, tokens: list[int]) -> AttentionMap:
        """Return the attention map of the model for `input` and the answer `tokens`."""
        return attach_original(self.model, self.where, partial(self._map, input, tokens), wanted=False)

    def _map(self, source: str, tokens: list[int], *, forced: bool = False) -> AttentionMap:
        attention = map_of_pair(self.model, self.task, source, tokens, forced=forced)
        return select_aligning_head(self.kept_heads(), attention)

    def score(self, pairs: Iterable[tuple[str, str]], *, batchsize: int = 64) -> list[Scored]:
        """Return the log-probability of each target given its source.

        Blank texts: see `score_pairs`. Raises `InputError` for a source that is too long.
        """
        from regard.evaluation.scoring import score_pairs

        check_range("batchsize", batchsize, 1, 10**6)
        pairs = list(pairs)
        self.check_texts([source for source, _ in pairs])
        return score_pairs(
            self.model, self.task.source_vocabulary, self.task.target_vocabulary, pairs, batchsize=batchsize
        )

    @property
    def aligner(self) -> Aligner:
        """Word aligner of the model."""
        from regard.runs.alignment import Aligner

        return Aligner(self.model, self.task, self.files, self.step, self.guided)

    @property
    def guided(self) -> bool:
        """Whether a head was trained with an alignment loss."""
        return False

    def kept_heads(self) -> KeptHeads | None:
        """Return the chosen alignment heads, else the head trained with an alignment loss, else None."""
        return self.aligner.kept()

    def align(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        by: By | None = None,
        unit: Unit | None = None,
        reverse: SequenceRun | None = None,
        symmetrise: Symmetrization = "product",
    ) -> list[LinkedPair]:
        """Return the links between the words of each target and the words of its source.

        The target is the decoder input. Each target word is linked to the source word with the largest weight
        in the heads from `choose_alignment`, or has no link if this weight is on the end of the source.

        `by`: a single head, a set of heads, or all heads. None: the best choice, or all heads if none were
        chosen. `unit`: words separated by whitespace, words without punctuation (parts), or pieces of the
        vocabulary. None: words, or characters for a task on characters. `reverse`: a run in the opposite
        direction. The method `symmetrise` combines the links of both directions. Raises `InputError` for a text
        that is too long, and for a model without attention.
        """
        pairs = [(empty_if_blank(source), empty_if_blank(target)) for source, target in pairs]
        self._check_pairs(pairs)
        forward = self.aligner.align(pairs, by, unit)
        if reverse is None:
            return forward
        backward = reverse.align([(target, source) for source, target in pairs], by=by, unit=unit)
        return self.aligner.combine_directions(forward, backward, symmetrise)

    def choose_alignment(
        self,
        pairs: Sequence[tuple[str, str]],
        known: Sequence[WordAlignment],
        *,
        against: str = "known links",
        reverse: SequenceRun | None = None,
        others: dict[str, Sequence[frozenset[Link]]] | None = None,
        unit: Unit | None = None,
        keep: bool = True,
        seed: int = 0,
    ) -> AlignmentChoice:
        """Choose the heads for alignment on half of the pairs, and return their error rates on the other half.

        `known`: reference links of each pair. `against`: description of the reference links for a report.
        `reverse`: a run in the opposite direction, whose heads are chosen too. `others`: links of the same
        pairs from other methods, for the report. `keep`: save the choice in the folder of each run. Raises
        `InputError` for too few pairs, links to words that do not exist, and a model without attention.
        """
        self._check_pairs(pairs)
        if len(pairs) != len(known):
            raise InputError(
                f"links for {plural(len(known), 'pair')}, but there are {len(pairs)}: give links for every pair"
            )
        return self.aligner.choose(
            pairs,
            known,
            against=against,
            reverse=None if reverse is None else reverse.aligner,
            others=others,
            unit=unit,
            keep=keep,
            seed=seed,
        )

    def known_links(self, samples: int) -> tuple[list[tuple[str, str]], list[WordAlignment]]:
        """Return at most `samples` unseen pairs, and their links if the task defines links."""
        pairs = [(pair[0], pair[1]) for pair in self.unseen(samples, 0, purpose="align")]
        return pairs, []

    def silver_links(self, pairs: Sequence[tuple[str, str]]) -> list[frozenset[Link]]:
        """Return the links of eflomal between the words of pairs. See `word_spans`.

        eflomal also learns from the run's training text. Raises `InputError` without the extra `align`.
        """
        vocabularies = (self.task.source_vocabulary, self.task.target_vocabulary)
        return align_with_eflomal(pairs, self.trained_on(MOST_SILVER), vocabularies)

    def trained_on(self, most: int) -> list[tuple[str, str]]:
        """Return at most `most` pairs of the training data, or pairs generated in the same way."""
        raise NotImplementedError

    def map_of_links(self, found: LinkedPair) -> AttentionMap:
        """Return the attention of the alignment heads between words, as a map with one layer."""
        return map_of_links(self.task.name, found)

    def attend(
        self,
        input: str | None = None,
        *,
        answer: Candidate | None = None,
        seed: int = 0,
        beam: int | None = None,
        length_penalty: float | None = None,
    ) -> AttentionMap:
        """Answer an input, and return the attention of each symbol of the answer in every layer.

        If `input` is None, a random input is generated with `seed`. `answer`: a result of `search` to use
        instead of the best answer. If `answer` is None, `original` is the map without an intervention.
        Other options as in `search`.
        """

        if input is None and answer is not None:
            raise InputError("answer has no input: also give the input of the answer")
        text = self.draw(seed=seed) if input is None else input

        def make_map() -> AttentionMap:
            best = answer or self.search([text], beam=beam, length_penalty=length_penalty)[0][0]
            return self._map(text, best.tokens)

        attention = attach_original(self.model, self.where, make_map, wanted=answer is None)
        unknown = self.task.source_vocabulary.unknown(text)
        return add_note(attention, note_of(self.unseen_length(text), unknown))

    @property
    def longest_seen(self) -> int:
        """Length of the longest source in the training data, in units of its vocabulary."""
        raise NotImplementedError

    def unseen_length(self, text: str) -> str:
        """Return a note on the lengths in training if the text is longer, otherwise an empty string."""
        vocabulary, longest = self.task.source_vocabulary, self.longest_seen
        if len(text) < longest or (steps := len(vocabulary.pieces(text))) <= longest:
            return ""
        return f"used inputs of at most {longest} {vocabulary.unit}, but this input has {steps}"

    def playback(self, input: str | None = None, *, seed: int = 0) -> Playback:
        """Return the attention map for an input at each training snapshot.

        The decoder input is the answer of the trained model, so that weights can be compared. The predictions
        are the next symbols of each snapshot. Raises `InputError` for a run without snapshots.
        """
        text = self.draw(seed=seed) if input is None else input
        [[best, *_]] = self.search([text])
        attend = partial(map_of_pair, task=self.task, source=text, tokens=best.tokens, forced=True)
        return play_back(self.files, self.model, attend)

    def called(self, classes: Sequence[int]) -> list[str]:
        check_indices("class", classes, len(self.task.target_vocabulary))
        return [label for index in classes for label in self.task.target_vocabulary.labels([index])]

    def draw(self, *, seed: int = 0) -> str:
        """Return a random input. Raises `InputError` if the task cannot generate inputs."""
        raise InputError(f"input is missing: {self.name} cannot generate inputs")

    def look(self, input: Any) -> AttentionMap:
        source, target = self.prepare(input)[:2]
        return self._map(source, self.task.target_vocabulary.encode(target), forced=True)

    def losses(self, inputs: Sequence[Any]) -> np.ndarray:
        """Return (N, 2): the total cross-entropy of each pair's tokens in nats, and their number."""
        scores = self.score([tuple(self.prepare(pair)[:2]) for pair in inputs])
        return np.array([(-score.log_probability, score.tokens) for score in scores], dtype=np.float64)

    def prepare(self, input: Any) -> Any:
        if isinstance(input, str):
            return input, self.translate([input])[0]
        if not isinstance(input, tuple | list) or [type(text) for text in input[:2]] != [str, str]:
            raise InputError(f"input {show_value(input)} is not a text: give a source, or (source, target)")
        return input

    def trial(self, input: Any) -> ProbeInput:
        return trial_of_pair(self.model, self.task, *self.prepare(input)[:2])

    def check(self, input: str) -> None:
        """Raise `InputError` for a text that is too long."""
        if (reason := self.too_long(input)) is not None:
            raise InputError(f"input {reason}")

    def check_texts(self, texts: Iterable[str], *, target: bool = False) -> None:
        """Raise `InputError` for the first text that is too long."""
        for index, text in enumerate(texts):
            if (reason := self.too_long(text, target=target)) is not None:
                kind = "target" if target else "text"
                raise InputError(f"{kind} {index}, {shorten(text, LONGEST_SHOWN)}, {reason}")

    def _check_pairs(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.check_texts(source for source, _ in pairs)
        self.check_texts((target for _, target in pairs), target=True)

    def too_long(self, text: str, *, target: bool = False) -> str | None:
        """Return why a source (or, if `target`, a target) is too long; None if its length is valid."""
        vocabulary, most = self.task.source_vocabulary, self.task.longest_source
        if target:
            vocabulary, most = self.task.target_vocabulary, self.task.longest_target
        # Most texts need no encoding here: a text has at most one token per character, plus an initial space.
        if len(text) < most or (length := len(vocabulary.encode(text))) <= most:
            return None
        return f"has {length} {vocabulary.unit}, but at most {most} are allowed"
