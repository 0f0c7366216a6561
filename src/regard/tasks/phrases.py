"""Phrases: a small grammar that writes English and German, with what every German word was made from.

A translation task without a network: several hundred words a side, sentences of 3 to 16 words, genders, cases,
and verbs that go to the end or before their subject, so that the alignment is no diagonal.

    the old dog has seen a red house        der alte Hund hat ein rotes Haus gesehen
    today the wolf does not find my key     heute findet der Wolf meinen Schlüssel nicht
    she says that he must buy ...           sie sagt , dass ...

Sentences are drawn; one in `UNSEEN`, told by its letters, is never trained on.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from regard.data import WordVocabulary
from regard.errors import InputError
from regard.tasks.lexicon import (
    ADJECTIVES,
    DEFINITE,
    INDEFINITE,
    MIXED,
    MODALS,
    NOUNS,
    NUMBERS,
    THINKERS,
    THOUGHTS,
    TIMES,
    VERBS,
    WEAK,
)
from regard.tasks.pairs import Pair, PairTask

UNSEEN = 10
"""One sentence in this many is kept from training."""
LONGEST = 13
"""Words of the longest sentence, in either language."""
NOMINATIVE, ACCUSATIVE = 0, 1
ONE = {each.one: each for each in NOUNS}
MANY = {each.many: each for each in NOUNS}
PLAIN = {each.plain: each for each in VERBS}
THIRD = {each.third: each for each in VERBS}
PARTICIPLE = {each.participle: each for each in VERBS}
FINITE = {
    **{each.plain: (each.infinitiv, False) for each in VERBS},
    **{each.third: (each.dritte, True) for each in VERBS},
}
THINKING = {plain: german for plain, _, german, _ in THOUGHTS} | {
    third: german for _, third, _, german in THOUGHTS
}
Piece = tuple[str, tuple[int, ...]]
"""A German word, and the places of the English words it was made from."""
Pick = Callable[[Sequence[str]], str]


@dataclass(frozen=True, kw_only=True)
class PhrasesConfig:
    """Nothing of the task can be chosen."""


class Phrases(PairTask):
    """Sentences of a small grammar, from English to German, in words."""

    name = "phrases"
    summary = "translate sentences of a small English to German"
    defaults = {"model": "transformer", "steps": 1500, "hidden": 64, "inner": 128, "dropout": 0.0}
    config_class = PhrasesConfig
    max_source = max_target = LONGEST

    def __init__(self, config: PhrasesConfig | None = None) -> None:
        super().__init__(config)
        self.source_vocabulary, self.target_vocabulary = (
            WordVocabulary(english_words()),
            WordVocabulary(german_words()),
        )

    def pair(self, generator: torch.Generator, *, sample_len: int | None = None, unseen: bool = False) -> Pair:
        """Draw one sentence; `unseen`: of those that are kept from training."""

        def pick(choices: Sequence[str]) -> str:
            return choices[int(torch.randint(len(choices), (), generator=generator))]

        self.check_sample_len(sample_len)
        while held_back(source := " ".join(draw_sentence(pick))) != unseen:
            pass
        found = self.known(source)
        assert found is not None, f"the grammar does not read what it writes: {source}"
        return found

    def check_sample_len(self, sample_len: int | None) -> None:
        """Raise `InputError` for any length: a sentence is as long as it is."""
        if sample_len is not None:
            raise InputError(f"sample_len {sample_len} does not fit: the length of a sentence is not a choice")

    def known(self, source: str) -> Pair | None:
        """Return the pair of a sentence of the grammar; None for any other."""
        pieces = Reader(source.split()).sentence()
        if pieces is None:
            return None
        return Pair(source, " ".join(word for word, _ in pieces), tuple(places for _, places in pieces))


def held_back(source: str) -> bool:
    """Whether a sentence is kept from training: the same ones in every run."""
    return zlib.crc32(source.encode()) % UNSEEN == 0


def draw_sentence(pick: Pick) -> list[str]:
    """Draw an English sentence, as words."""
    frame = pick(("plain", "plain", "time", "thought"))
    subject, one = _draw_noun_phrase(pick, ("the", "a", "this", "my", "her", "no", "these", "number"))
    verb = pick(("plain", "plain", "perfect", "modal", "not"))
    objects = ("the", "this", "my", "her", "these") if verb == "not" else ("the", "a", "my", "her", "number")
    object_, _ = _draw_noun_phrase(pick, objects)
    plain = pick(list(PLAIN))
    words = {
        "plain": [PLAIN[plain].third if one else plain],
        "perfect": ["has" if one else "have", PLAIN[plain].participle],
        "modal": [pick([english for english, _, _ in MODALS]), plain],
        "not": ["does" if one else "do", "not", plain],
    }[verb]
    clause = [*subject, *words, *object_]
    if frame == "time":
        return [pick(list(TIMES)), *clause]
    if frame == "thought":
        who = pick(list(THINKERS))
        plain, third = {each[0]: each[:2] for each in THOUGHTS}[pick([each[0] for each in THOUGHTS])]
        return [who, third if THINKERS[who][1] else plain, "that", *clause]
    return clause


def _draw_noun_phrase(pick: Pick, articles: Sequence[str]) -> tuple[list[str], bool]:
    """Draw an English noun phrase, and say whether it is one."""
    article = pick(articles)
    one = article in ("a", "this") or (article in ("the", "my", "her", "no") and pick("1122") == "1")
    first = pick(list(NUMBERS)) if article == "number" else article
    adjective = [pick(list(ADJECTIVES))] if pick("yn") == "y" else []
    return [first, *adjective, pick(list(ONE if one else MANY))], one


class Reader:
    """Reads an English sentence word by word, and writes German."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words, self.place = words, 0

    def sentence(self) -> list[Piece] | None:
        """Return the German sentence, or None where the grammar does not write such a one."""
        try:
            found = self._sentence()
        except (KeyError, IndexError):
            return None
        return found if self.place == len(self.words) else None

    def _sentence(self) -> list[Piece]:
        if self.words[0] in TIMES:
            time = self._next(TIMES)
            subject, _, finite, object_, rest = self._clause()
            return [time, finite, *subject, *object_, *rest]
        if self.words[0] in THINKERS:
            german, _ = THINKERS[self.words[0]]
            who, thinks = (german, (0,)), (THINKING[self.words[1]], (1,))
            if self.words[2] != "that":
                raise KeyError(self.words[2])
            self.place = 3
            subject, _, finite, object_, rest = self._clause()
            return [who, thinks, (",", (2,)), ("dass", (2,)), *subject, *object_, *rest, finite]
        subject, _, finite, object_, rest = self._clause()
        return [*subject, finite, *object_, *rest]

    def _clause(self) -> tuple[list[Piece], bool, Piece, list[Piece], list[Piece]]:
        """Return subject, whether it is one, the finite verb, the object, and what follows it."""
        subject, one = self._noun_phrase(NOMINATIVE)
        start, word = self.place, self.words[self.place]
        self.place += 1
        rest: list[Piece] = []
        if word in ("has", "have"):
            finite = "hat" if one else "haben"
            rest = [(PARTICIPLE[self._word()].partizip, (self.place - 1,))]
            place = start
        elif word in ("does", "do"):
            if self._word() != "not":
                raise KeyError(word)
            verb, place = PLAIN[self._word()], self.place - 1
            finite, rest = (verb.dritte if one else verb.infinitiv), [("nicht", (start + 1,))]
        elif word in _MODALS:
            finite, place = _MODALS[word][not one], start
            rest = [(PLAIN[self._word()].infinitiv, (self.place - 1,))]
        else:
            (finite, third), place = FINITE[word], start
            if third != one:
                raise KeyError(word)
        object_, _ = self._noun_phrase(ACCUSATIVE)
        return subject, one, (finite, (place,)), object_, rest

    def _noun_phrase(self, case: int) -> tuple[list[Piece], bool]:
        """Return a German noun phrase, and whether it is one."""
        place, first = self.place, self._word()
        adjective = self._word() if self.words[self.place] in ADJECTIVES else None
        noun = self._word()
        one = noun in ONE
        known = ONE[noun] if one else MANY[noun]
        gender = known.gender if one else "p"
        if first in NUMBERS:
            if one:
                raise KeyError(noun)
            article, ending = NUMBERS[first], "e"
        elif (first, gender) in DEFINITE:
            article, ending = DEFINITE[first, gender][case], WEAK[gender][case]
        else:
            article, ending = INDEFINITE[first, gender][case], MIXED[gender][case]
        found: list[Piece] = [(article, (place,))]
        if adjective is not None:
            found.append((inflected(adjective, ending), (place + 1,)))
        return [*found, (known.eins if one else known.viele, (self.place - 1,))], one

    def _next(self, words: dict[str, str]) -> Piece:
        return words[self._word()], (self.place - 1,)

    def _word(self) -> str:
        self.place += 1
        return self.words[self.place - 1]


_MODALS = {english: (one, many) for english, many, one in MODALS}


def inflected(adjective: str, ending: str) -> str:
    """Return the German of an English adjective with an ending."""
    return ADJECTIVES[adjective].removesuffix("e") + ending


def english_words() -> set[str]:
    """Return every English word of the grammar."""
    verbs = {word for each in VERBS for word in (each.plain, each.third, each.participle)}
    thoughts = {word for each in THOUGHTS for word in each[:2]}
    articles = {word for word, _ in (*DEFINITE, *INDEFINITE)}
    modals = {each[0] for each in MODALS}
    small = {"has", "have", "does", "do", "not", "that"}
    return {*ONE, *MANY, *ADJECTIVES, *TIMES, *NUMBERS, *THINKERS} | verbs | thoughts | articles | modals | small


def german_words() -> set[str]:
    """Return every German word of the grammar."""
    nouns = {word for each in NOUNS for word in (each.eins, each.viele)}
    verbs = {word for each in VERBS for word in (each.infinitiv, each.dritte, each.partizip)}
    thoughts = {word for each in THOUGHTS for word in each[2:]} | {each[0] for each in THINKERS.values()}
    articles = {word for each in (*DEFINITE.values(), *INDEFINITE.values()) for word in each}
    endings = {ending for each in (*WEAK.values(), *MIXED.values()) for ending in each}
    adjectives = {inflected(each, ending) for each in ADJECTIVES for ending in endings}
    modals = {word for each in MODALS for word in each[1:]}
    small = {"hat", "haben", "nicht", ",", "dass", *TIMES.values(), *NUMBERS.values()}
    return nouns | verbs | thoughts | articles | adjectives | modals | small
