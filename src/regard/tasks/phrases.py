"""Phrases: translate sentences of a small English grammar to German, with known word alignment.

The task needs no download. The grammar has several hundred words per language and sentences of 3 to 16 words.
Gender, case, and verb-final or inverted word order make the alignment non-monotonic.

    the old dog has seen a red house        der alte Hund hat ein rotes Haus gesehen
    today the wolf does not find my key     heute findet der Wolf meinen Schlüssel nicht
    she says that he must buy ...           sie sagt , dass ...

One sentence in `HELD_OUT_ONE_IN`, selected by a hash of its text, is held out from training.
"""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any, NamedTuple

import torch

from regard.data.vocabulary import WordVocabulary
from regard.tasks.pairs import Pair, PairTask, is_held_out


class Noun(NamedTuple):
    """A noun: English singular and plural, German gender (m, f, n), singular and plural."""

    singular: str
    plural: str
    gender: str
    german_singular: str
    german_plural: str


class Verb(NamedTuple):
    """A transitive verb: English (see, sees, seen) and German (sehen, sieht, gesehen)."""

    base: str
    third: str
    participle: str
    german_infinitive: str
    german_third: str
    german_participle: str


def _pairs(text: str) -> dict[str, str]:
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


_GRAMMAR: dict[str, Any] = tomllib.loads(files("regard.tasks").joinpath("phrases.toml").read_text(encoding="utf-8"))
NOUNS = tuple(Noun(*entry.split()) for entry in _GRAMMAR["nouns"].split("|"))
VERBS = tuple(Verb(*entry.split()) for entry in _GRAMMAR["verbs"].split("|"))
ADJECTIVES, TIMES, NUMBERS = (_pairs(_GRAMMAR[kind]) for kind in ("adjectives", "times", "numbers"))
THOUGHTS, MODALS, THINKERS = (_GRAMMAR[kind] for kind in ("thoughts", "modals", "thinkers"))
WEAK, MIXED = _GRAMMAR["weak"], _GRAMMAR["mixed"]
DEFINITE = {(english, gender): forms[gender] for english, forms in _GRAMMAR["definite"].items() for gender in forms}
INDEFINITE = {  # Articles that do not mark the gender in the nominative
    (english, gender): (stem + ("e" if gender in "fp" else ""), stem + {"m": "en", "n": ""}.get(gender, "e"))
    for english, stem in (("a", "ein"), ("my", "mein"), ("her", "ihr"), ("no", "kein"))
    for gender in ("mfn" if english == "a" else "mfnp")
}


MAX_WORDS = 13  # Maximum number of words in a sentence, in both languages
NOMINATIVE, ACCUSATIVE = 0, 1
SINGULARS = {noun.singular: noun for noun in NOUNS}
PLURALS = {noun.plural: noun for noun in NOUNS}
PLAIN = {verb.base: verb for verb in VERBS}
PARTICIPLE = {verb.participle: verb for verb in VERBS}
FINITE = {
    **{verb.base: (verb.german_infinitive, False) for verb in VERBS},
    **{verb.third: (verb.german_third, True) for verb in VERBS},
}
THINKING = {plain: german for plain, _, german, _ in THOUGHTS} | {third: german for _, third, _, german in THOUGHTS}
Piece = tuple[str, tuple[int, ...]]  # A German word, and the positions of the aligned English words
Pick = Callable[[Sequence[str]], str]


@dataclass(frozen=True, kw_only=True)
class PhrasesTaskConfig:
    """Config of a task without options."""


class Phrases(PairTask):
    """Translates sentences of a small grammar from English to German, word by word."""

    name = "phrases"
    summary = "translate sentences of a small grammar from English to German"
    defaults = {"model": "transformer", "steps": 1500, "hidden": 64, "inner": 128, "dropout": 0.0}
    config_class = PhrasesTaskConfig
    max_source = max_target = MAX_WORDS
    fixed = "sentences"

    @cached_property
    def source_vocabulary(self) -> WordVocabulary:  # type: ignore[override]
        verbs = {word for verb in VERBS for word in (verb.base, verb.third, verb.participle)}
        thoughts = {word for forms in THOUGHTS for word in forms[:2]}
        articles = {word for word, _ in (*DEFINITE, *INDEFINITE)}
        modals = {forms[0] for forms in MODALS}
        small = {*SINGULARS, *PLURALS, *ADJECTIVES, *TIMES, *NUMBERS, *THINKERS}
        return WordVocabulary(
            small | verbs | thoughts | articles | modals | {"has", "have", "does", "do", "not", "that"}
        )

    @cached_property
    def target_vocabulary(self) -> WordVocabulary:  # type: ignore[override]
        nouns = {word for noun in NOUNS for word in (noun.german_singular, noun.german_plural)}
        verbs = {form for verb in VERBS for form in (verb.german_infinitive, verb.german_third, verb.german_participle)}
        thoughts = {word for forms in THOUGHTS for word in forms[2:]} | {german for german, _ in THINKERS.values()}
        articles = {word for cases in (*DEFINITE.values(), *INDEFINITE.values()) for word in cases}
        endings = {ending for cases in (*WEAK.values(), *MIXED.values()) for ending in cases}
        adjectives = {inflect(adjective, ending) for adjective in ADJECTIVES for ending in endings}
        modals = {word for forms in MODALS for word in forms[1:]}
        small = {"hat", "haben", "nicht", ",", "dass", *TIMES.values(), *NUMBERS.values()}
        return WordVocabulary(nouns | verbs | thoughts | articles | adjectives | modals | small)

    def pair(self, generator: torch.Generator, *, sample_len: int | None = None, unseen: bool = False) -> Pair:
        def pick(choices: Sequence[str]) -> str:
            return choices[int(torch.randint(len(choices), (), generator=generator))]

        self.check_sample_len(sample_len)
        while is_held_out((source := " ".join(draw_sentence(pick))).encode()) != unseen:
            pass
        pair = self.known(source)
        assert pair is not None, f"the grammar cannot parse its own sentence: {source}"
        return pair

    def known(self, source: str) -> Pair | None:
        pieces = PhraseTranslator(source.split()).sentence()
        if pieces is None:
            return None
        return Pair(source, " ".join(word for word, _ in pieces), tuple(positions for _, positions in pieces))


def draw_sentence(pick: Pick) -> list[str]:
    frame = pick(("plain", "plain", "time", "thought"))
    subject, singular = _draw_noun_phrase(pick, ("the", "a", "this", "my", "her", "no", "these", "number"))
    verb = pick(("plain", "plain", "perfect", "modal", "not"))
    objects = ("the", "this", "my", "her", "these") if verb == "not" else ("the", "a", "my", "her", "number")
    object_, _ = _draw_noun_phrase(pick, objects)
    plain = pick(list(PLAIN))
    words = {
        "plain": [PLAIN[plain].third if singular else plain],
        "perfect": ["has" if singular else "have", PLAIN[plain].participle],
        "modal": [pick([english for english, _, _ in MODALS]), plain],
        "not": ["does" if singular else "do", "not", plain],
    }[verb]
    clause = [*subject, *words, *object_]
    if frame == "time":
        return [pick(list(TIMES)), *clause]
    if frame == "thought":
        thinker = pick(list(THINKERS))
        plain, third = {forms[0]: forms[:2] for forms in THOUGHTS}[pick([forms[0] for forms in THOUGHTS])]
        return [thinker, third if THINKERS[thinker][1] else plain, "that", *clause]
    return clause


def _draw_noun_phrase(pick: Pick, articles: Sequence[str]) -> tuple[list[str], bool]:
    article = pick(articles)
    singular = article in ("a", "this") or (article in ("the", "my", "her", "no") and pick("1122") == "1")
    first = pick(list(NUMBERS)) if article == "number" else article
    adjective = [pick(list(ADJECTIVES))] if pick("yn") == "y" else []
    return [first, *adjective, pick(list(SINGULARS if singular else PLURALS))], singular


class PhraseTranslator:
    """Parses an English sentence word by word, and translates it to German."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words, self.position = words, 0

    def sentence(self) -> list[Piece] | None:
        """Return the German sentence, or None if the grammar does not generate the source."""
        try:
            pieces = self._sentence()
        except (KeyError, IndexError):
            return None
        return pieces if self.position == len(self.words) else None

    def _sentence(self) -> list[Piece]:
        if self.words[0] in TIMES:
            time = TIMES[self._word()], (0,)
            subject, finite, object_, rest = self._clause()
            return [time, finite, *subject, *object_, *rest]
        if self.words[0] in THINKERS:
            german, _ = THINKERS[self.words[0]]
            thinker, thinks = (german, (0,)), (THINKING[self.words[1]], (1,))
            if self.words[2] != "that":
                raise KeyError(self.words[2])
            self.position = 3
            subject, finite, object_, rest = self._clause()
            return [thinker, thinks, (",", (2,)), ("dass", (2,)), *subject, *object_, *rest, finite]
        subject, finite, object_, rest = self._clause()
        return [*subject, finite, *object_, *rest]

    def _clause(self) -> tuple[list[Piece], Piece, list[Piece], list[Piece]]:
        """Return the subject, the finite verb, the object, and the rest of the clause."""
        subject, singular = self._noun_phrase(NOMINATIVE)
        start, word = self.position, self.words[self.position]
        self.position += 1
        rest: list[Piece] = []
        if word in ("has", "have"):
            finite = "hat" if singular else "haben"
            rest = [(PARTICIPLE[self._word()].german_participle, (self.position - 1,))]
            place = start
        elif word in ("does", "do"):
            if self._word() != "not":
                raise KeyError(word)
            verb, place = PLAIN[self._word()], self.position - 1
            finite, rest = (verb.german_third if singular else verb.german_infinitive), [("nicht", (start + 1,))]
        elif word in _MODALS:
            finite, place = _MODALS[word][not singular], start
            rest = [(PLAIN[self._word()].german_infinitive, (self.position - 1,))]
        else:
            (finite, third), place = FINITE[word], start
            if third != singular:
                raise KeyError(word)
        object_, _ = self._noun_phrase(ACCUSATIVE)
        return subject, (finite, (place,)), object_, rest

    def _noun_phrase(self, case: int) -> tuple[list[Piece], bool]:
        """Return a German noun phrase, and whether the noun phrase is singular."""
        place, first = self.position, self._word()
        adjective = self._word() if self.words[self.position] in ADJECTIVES else None
        noun = self._word()
        singular = noun in SINGULARS
        entry = SINGULARS[noun] if singular else PLURALS[noun]
        gender = entry.gender if singular else "p"
        if first in NUMBERS:
            if singular:
                raise KeyError(noun)
            article, ending = NUMBERS[first], "e"
        elif (first, gender) in DEFINITE:
            article, ending = DEFINITE[first, gender][case], WEAK[gender][case]
        else:
            article, ending = INDEFINITE[first, gender][case], MIXED[gender][case]
        pieces: list[Piece] = [(article, (place,))]
        if adjective is not None:
            pieces.append((inflect(adjective, ending), (place + 1,)))
        return [*pieces, (entry.german_singular if singular else entry.german_plural, (self.position - 1,))], singular

    def _word(self) -> str:
        self.position += 1
        return self.words[self.position - 1]


_MODALS = {english: (one, many) for english, many, one in MODALS}


def inflect(adjective: str, ending: str) -> str:
    return ADJECTIVES[adjective].removesuffix("e") + ending
