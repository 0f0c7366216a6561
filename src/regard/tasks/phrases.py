"""Phrases: translate sentences of a small English grammar to German, with known word alignment.

The task needs no download. The grammar has several hundred words per language and sentences of 3 to 16 words.
Gender, case, and verb-final or inverted word order make the alignment non-monotonic.

    the old dog has seen a red house        der alte Hund hat ein rotes Haus gesehen
    today the wolf does not find my key     heute findet der Wolf meinen Schlüssel nicht
    she says that he must buy ...           sie sagt , dass ...

One sentence in `HELD_OUT_ONE_IN`, selected by a hash of its text, is held out from training.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch

from regard.data.vocabulary import WordVocabulary
from regard.errors import InputError
from regard.tasks.pairs import Pair, PairTask

# Vocabulary of Phrases: English and German words with their German inflection.
#
# The lists omit nouns with an accusative ending and verbs without an accusative object.


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


_NOUNS = """
dog dogs m Hund Hunde | cat cats f Katze Katzen | horse horses n Pferd Pferde | cow cows f Kuh Kühe |
bird birds m Vogel Vögel | mouse mice f Maus Mäuse | wolf wolves m Wolf Wölfe | fox foxes m Fuchs Füchse |
goat goats f Ziege Ziegen | pig pigs n Schwein Schweine | hen hens f Henne Hennen | duck ducks f Ente Enten |
bee bees f Biene Bienen | man men m Mann Männer | woman women f Frau Frauen | child children n Kind Kinder |
girl girls n Mädchen Mädchen | father fathers m Vater Väter | mother mothers f Mutter Mütter |
brother brothers m Bruder Brüder | sister sisters f Schwester Schwestern | son sons m Sohn Söhne |
daughter daughters f Tochter Töchter | friend friends m Freund Freunde | teacher teachers m Lehrer Lehrer |
baker bakers m Bäcker Bäcker | doctor doctors m Arzt Ärzte | king kings m König Könige |
queen queens f Königin Königinnen | thief thieves m Dieb Diebe | guest guests m Gast Gäste |
singer singers m Sänger Sänger | farmer farmers m Landwirt Landwirte | house houses n Haus Häuser |
garden gardens m Garten Gärten | door doors f Tür Türen | window windows n Fenster Fenster |
table tables m Tisch Tische | chair chairs m Stuhl Stühle | bed beds n Bett Betten | lamp lamps f Lampe Lampen |
clock clocks f Uhr Uhren | book books n Buch Bücher | letter letters m Brief Briefe |
picture pictures n Bild Bilder | song songs n Lied Lieder | word words n Wort Wörter |
title titles m Titel Titel | tree trees m Baum Bäume | flower flowers f Blume Blumen |
apple apples m Apfel Äpfel | pear pears f Birne Birnen | egg eggs n Ei Eier | loaf loaves n Brot Brote |
cake cakes m Kuchen Kuchen | stone stones m Stein Steine | mountain mountains m Berg Berge |
river rivers m Fluss Flüsse | lake lakes m See Seen | bridge bridges f Brücke Brücken |
road roads f Straße Straßen | city cities f Stadt Städte | village villages n Dorf Dörfer |
church churches f Kirche Kirchen | school schools f Schule Schulen | ship ships n Schiff Schiffe |
car cars n Auto Autos | wheel wheels n Rad Räder | key keys m Schlüssel Schlüssel | coat coats m Mantel Mäntel |
hat hats m Hut Hüte | shoe shoes m Schuh Schuhe | ring rings m Ring Ringe | star stars m Stern Sterne |
cloud clouds f Wolke Wolken | island islands f Insel Inseln | spoon spoons m Löffel Löffel
"""
NOUNS = tuple(Noun(*entry.split()) for entry in _NOUNS.split("|"))

_VERBS = """
see sees seen sehen sieht gesehen | love loves loved lieben liebt geliebt |
find finds found finden findet gefunden | seek seeks sought suchen sucht gesucht |
hear hears heard hören hört gehört | know knows known kennen kennt gekannt |
buy buys bought kaufen kauft gekauft | bring brings brought bringen bringt gebracht |
paint paints painted malen malt gemalt | praise praises praised loben lobt gelobt |
ask asks asked fragen fragt gefragt | forget forgets forgotten vergessen vergisst vergessen |
hide hides hidden verstecken versteckt versteckt | show shows shown zeigen zeigt gezeigt |
take takes taken nehmen nimmt genommen | carry carries carried tragen trägt getragen |
lose loses lost verlieren verliert verloren | watch watches watched beobachten beobachtet beobachtet |
greet greets greeted grüßen grüßt gegrüßt | visit visits visited besuchen besucht besucht |
need needs needed brauchen braucht gebraucht | draw draws drawn zeichnen zeichnet gezeichnet |
describe describes described beschreiben beschreibt beschrieben | wake wakes woken wecken weckt geweckt |
fear fears feared fürchten fürchtet gefürchtet | hold holds held halten hält gehalten |
catch catches caught fangen fängt gefangen | lift lifts lifted heben hebt gehoben |
sell sells sold verkaufen verkauft verkauft | steal steals stolen stehlen stiehlt gestohlen
"""
VERBS = tuple(Verb(*entry.split()) for entry in _VERBS.split("|"))

ADJECTIVES = _pairs("""
small klein big groß old alt new neu young jung red rot green grün blue blau white weiß black schwarz
yellow gelb brown braun grey grau tired müde happy froh sad traurig clever klug quiet still loud laut
fast schnell slow langsam warm warm cold kalt rich reich poor arm strong stark weak schwach
beautiful schön ugly hässlich good gut bad schlecht round rund heavy schwer light leicht thin dünn
thick dick famous berühmt strange seltsam dear lieb wild wild clean rein
""")

TIMES = _pairs("""
today heute tomorrow morgen often oft now jetzt always immer perhaps vielleicht then dann soon bald
rarely selten again wieder sometimes manchmal here hier outside draußen there dort
""")

THINKERS = {"he": ("er", True), "she": ("sie", True), "we": ("wir", False), "they": ("sie", False)}
"""Subjects of the verbs in `THOUGHTS`: the German word, and whether it is singular."""
THOUGHTS = (
    ("know", "knows", "wissen", "weiß"),
    ("say", "says", "sagen", "sagt"),
    ("hope", "hopes", "hoffen", "hofft"),
    ("think", "thinks", "glauben", "glaubt"),
    ("hear", "hears", "hören", "hört"),
)
MODALS = (("can", "können", "kann"), ("must", "müssen", "muss"), ("may", "dürfen", "darf"))
NUMBERS = _pairs("two zwei three drei four vier five fünf many viele")

WEAK = {"m": ("e", "en"), "f": ("e", "e"), "n": ("e", "e"), "p": ("en", "en")}
"""Adjective endings in nominative and accusative by gender (p: plural), after articles that mark the gender."""
MIXED = {"m": ("er", "en"), "f": ("e", "e"), "n": ("es", "es"), "p": ("en", "en")}
"""Adjective endings after articles that do not mark the gender in the nominative."""
DEFINITE = {  # Articles that mark the gender, in nominative and accusative
    ("the", "m"): ("der", "den"),
    ("the", "f"): ("die", "die"),
    ("the", "n"): ("das", "das"),
    ("the", "p"): ("die", "die"),
    ("this", "m"): ("dieser", "diesen"),
    ("this", "f"): ("diese", "diese"),
    ("this", "n"): ("dieses", "dieses"),
    ("these", "p"): ("diese", "diese"),
}
INDEFINITE = {  # Articles that do not mark the gender in the nominative
    (english, gender): (stem + ("e" if gender in "fp" else ""), stem + {"m": "en", "n": ""}.get(gender, "e"))
    for english, stem in (("a", "ein"), ("my", "mein"), ("her", "ihr"), ("no", "kein"))
    for gender in ("mfn" if english == "a" else "mfnp")
}


HELD_OUT_ONE_IN = 10  # The fraction of sentences held out from training is 1 divided by this number
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

    @cached_property
    def source_vocabulary(self) -> WordVocabulary:  # type: ignore[override]
        return WordVocabulary(english_words())

    @cached_property
    def target_vocabulary(self) -> WordVocabulary:  # type: ignore[override]
        return WordVocabulary(german_words())

    def pair(self, generator: torch.Generator, *, sample_len: int | None = None, unseen: bool = False) -> Pair:
        def pick(choices: Sequence[str]) -> str:
            return choices[int(torch.randint(len(choices), (), generator=generator))]

        self.check_sample_len(sample_len)
        while is_held_out(source := " ".join(draw_sentence(pick))) != unseen:
            pass
        pair = self.known(source)
        assert pair is not None, f"the grammar cannot parse its own sentence: {source}"
        return pair

    def check_sample_len(self, sample_len: int | None) -> None:
        if sample_len is not None:
            raise InputError(f"sample_len {sample_len} does not apply: sentences have no adjustable length")

    def known(self, source: str) -> Pair | None:
        pieces = PhraseTranslator(source.split()).sentence()
        if pieces is None:
            return None
        return Pair(source, " ".join(word for word, _ in pieces), tuple(positions for _, positions in pieces))


def is_held_out(source: str) -> bool:
    """Return whether a sentence is held out. All runs hold out the same sentences."""
    return zlib.crc32(source.encode()) % HELD_OUT_ONE_IN == 0


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


def english_words() -> set[str]:
    verbs = {word for verb in VERBS for word in (verb.base, verb.third, verb.participle)}
    thoughts = {word for forms in THOUGHTS for word in forms[:2]}
    articles = {word for word, _ in (*DEFINITE, *INDEFINITE)}
    modals = {forms[0] for forms in MODALS}
    small = {*SINGULARS, *PLURALS, *ADJECTIVES, *TIMES, *NUMBERS, *THINKERS}
    return small | verbs | thoughts | articles | modals | {"has", "have", "does", "do", "not", "that"}


def german_words() -> set[str]:
    nouns = {word for noun in NOUNS for word in (noun.german_singular, noun.german_plural)}
    verbs = {word for verb in VERBS for word in (verb.german_infinitive, verb.german_third, verb.german_participle)}
    thoughts = {word for forms in THOUGHTS for word in forms[2:]} | {german for german, _ in THINKERS.values()}
    articles = {word for cases in (*DEFINITE.values(), *INDEFINITE.values()) for word in cases}
    endings = {ending for cases in (*WEAK.values(), *MIXED.values()) for ending in cases}
    adjectives = {inflect(adjective, ending) for adjective in ADJECTIVES for ending in endings}
    modals = {word for forms in MODALS for word in forms[1:]}
    small = {"hat", "haben", "nicht", ",", "dass", *TIMES.values(), *NUMBERS.values()}
    return nouns | verbs | thoughts | articles | adjectives | modals | small
