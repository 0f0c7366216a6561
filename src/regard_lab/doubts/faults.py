"""Planted faults: pairs of a source and a translation that are wrong in a known way, made from good pairs.

Faults of the translation:

    detached         the translation of another source of similar length (a hallucination)
    omitted          30 to 50 % of the words are missing in one place
    looped           a phrase of 1 to 4 words occurs 3 to 7 times in a row, and the rest may be missing
    copied           the source itself
    foreign          another sentence in the language of the source
    repeated         a phrase of 1 to 3 words occurs twice in a row
    replaced         another word of similar frequency instead of one word
    number           another number instead of one number
    negated          a verb with a negation instead of a verb

Faults of the source, whose translation the run writes:

    target language  the reference of another source
    unknown language each letter is exchanged for another, the same one in the whole text (an unknown language)
    random letters   words of random letters, with the lengths of the words
    random words     words of other sources
    misspelled       about half of the words with their letters in random order
    shuffled         the words in random order
    truncated        30 to 60 % of the words are missing at the end

A text without blanks consists of characters instead of words.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np

Generator = np.random.Generator
Changed = Sequence[str] | str  # Words of the faulty text (none if the fault is impossible), or its characters
LONGEST_DIFFERENCE = 2
"""Largest difference in words between a translation and the unrelated translation that replaces it."""
SHORTEST = 6  # Smallest number of words from which words are removed
OMITTED, TRUNCATED = (0.3, 0.5), (0.3, 0.6)  # Smallest and largest share of words that are removed
# Numbers, and verbs without and with a negation, in languages of translations.
LANGUAGES = """
two three four five six seven eight nine ten / is=is_not are=are_not was=was_not has=has_not can=cannot
zwei drei vier fünf sechs sieben acht neun zehn / ist=ist_nicht sind=sind_nicht hat=hat_nicht kann=kann_nicht
deux trois quatre cinq six sept huit neuf dix / est=n'est_pas sont=ne_sont_pas ont=n'ont_pas
dos tres cuatro cinco seis siete ocho nueve diez / está=no_está están=no_están es=no_es son=no_son
due tre quattro cinque sei sette otto nove dieci / sta=non_sta stanno=non_stanno è=non_è sono=non_sono
dois três quatro cinco seis sete oito nove dez / está=não_está estão=não_estão é=não_é são=não_são
twee drie vier vijf zes zeven acht negen tien / is=is_niet zijn=zijn_niet heeft=heeft_niet kan=kan_niet
dvě dva tři čtyři pět šest sedm osm devět deset / je=není jsou=nejsou má=nemá mají=nemají stojí=nestojí
dwa trzy cztery pięć sześć siedem osiem dziewięć dziesięć / jest=nie_jest są=nie_są ma=nie_ma mają=nie_mają
"""


class Planter:
    """Plants faults in pairs of a source and a translation. The result depends only on the texts and the seed."""

    def __init__(self, sources: Sequence[str], translations: Sequence[str], seed: int = 0) -> None:
        self.sources, self.translations, self.seed = sources, translations, seed
        self.gaps = ["" if all(" " not in text for text in side) else " " for side in (sources, translations)]
        self.source_words = [text.split() if self.gaps[0] else list(text) for text in sources]
        self.words = [text.split() if self.gaps[1] else list(text) for text in translations]
        letters = sorted({letter for text in sources for letter in text if letter.isalpha()})
        self.alphabets = [[letter for letter in letters if letter.isupper() == upper] for upper in (False, True)]
        counts = Counter(_core(word).lower() for words in self.words for word in words)
        self.frequency = {word: count.bit_length() for word, count in counts.items() if word}
        self.similar = defaultdict(list)
        for word, frequency in self.frequency.items():
            self.similar[frequency].append(word)
        tables = [
            (numbers.split(), dict(pair.replace("_", " ").split("=") for pair in verbs.split()))
            for numbers, verbs in (line.split(" / ") for line in LANGUAGES.strip().splitlines())
        ]
        # The language of the translations is the one with most of its numbers and verbs in them.
        self.numbers, self.negated = max(
            tables, key=lambda table: sum(word in counts for side in table for word in side)
        )

    def plant(self, kind: str) -> dict[int, str]:
        """Return the faulty translations (or sources, for a fault of the source) by the index of their pair.

        Pairs in which the kind is impossible, such as those that are too short, have no faulty version.

        >>> Planter(["ein Hund rennt"], ["a dog runs"], seed=3).plant("looped")
        {0: 'a dog a dog a dog a dog a dog'}
        """
        of_source = kind in SOURCE_FAULTS
        faulty = {}
        for index, good in enumerate(self.sources if of_source else self.translations):
            changed = FAULTS[kind](self, index, np.random.default_rng([self.seed, [*FAULTS].index(kind), index]))
            text = changed if isinstance(changed, str) else self.gaps[not of_source].join(changed)
            if text not in ("", good):
                faulty[index] = text
        return faulty

    def other(self, index: int, generator: Generator) -> int:
        return (index + 1 + int(generator.integers(max(len(self.sources) - 1, 1)))) % len(self.sources)

    def exchange(self, index: int, options: Callable[[str], Sequence[str]], generator: Generator) -> Changed:
        """Return a translation in which one word is exchanged for one of its options (in lower case)."""
        words = list(self.words[index])
        places = [place for place, word in enumerate(words) if options(_core(word).lower())]
        if not places:
            return ""
        place = int(generator.choice(places))
        core = _core(words[place])
        other = str(generator.choice(options(core.lower())))
        words[place] = words[place].replace(core, other[0].upper() + other[1:] if core[0].isupper() else other, 1)
        return words

    def similar_words(self, word: str) -> Sequence[str]:
        return [other for other in self.similar[self.frequency.get(word, 0)] if other != word]

    def other_numbers(self, word: str) -> Sequence[str]:
        """Return the other numbers if a word is a number or contains a digit."""
        if digit := re.search("[0-9]", word):
            return [word.replace(digit[0], other, 1) for other in "0123456789" if other != digit[0]]
        return [other for other in self.numbers if other != word] if word in self.numbers else []


def _core(word: str) -> str:
    match = re.search(r"\w+", word)
    return match[0] if match else ""


def _detached(texts: Planter, index: int, generator: Generator) -> Changed:
    length, own = len(texts.words[index]), texts.translations[index]
    near = [
        other
        for other, words in zip(texts.translations, texts.words, strict=True)
        if other != own and abs(len(words) - length) <= LONGEST_DIFFERENCE
    ]
    return str(generator.choice(near)) if near else ""


def _without(words: list[str], shares: tuple[float, float], generator: Generator, *, end: bool = False) -> Changed:
    """Return words without a share of them in one place, which is the end if `end`."""
    if len(words) < SHORTEST:
        return ""
    least, most = (math.ceil(share * len(words)) for share in shares)
    rest = len(words) - int(generator.integers(least, most + 1))
    begin = rest if end else int(generator.integers(0, rest + 1))
    return words[:begin] + words[len(words) - rest + begin :]


def _looped(texts: Planter, index: int, generator: Generator) -> Changed:
    words = texts.words[index]
    if len(words) < 2:
        return ""
    length = int(generator.integers(1, min(5, len(words))))
    begin = int(generator.integers(0, len(words) - length + 1))
    times = int(generator.integers(3, 8))
    rest = words[begin + length :] if generator.random() < 0.5 else []
    return [*words[:begin], *words[begin : begin + length] * times, *rest]


def _repeated(texts: Planter, index: int, generator: Generator) -> Changed:
    words = texts.words[index]
    begin = int(generator.integers(0, max(len(words), 1)))
    return words[: begin + int(generator.integers(1, 4))] + words[begin:]


def _unknown_language(texts: Planter, index: int, generator: Generator) -> Changed:
    exchanged = dict[int, str]()
    for alphabet in texts.alphabets:
        begin = int(generator.integers(1, max(len(alphabet), 2)))
        exchanged |= dict(zip(map(ord, alphabet), alphabet[begin:] + alphabet[:begin], strict=True))
    return texts.sources[index].translate(exchanged)


def _random_letters(texts: Planter, index: int, generator: Generator) -> Changed:
    letters = texts.alphabets[0] or texts.alphabets[1]
    return ["".join(generator.choice(letters, len(word))) for word in texts.source_words[index] if letters]


def _random_words(texts: Planter, index: int, generator: Generator) -> Changed:
    rows = generator.integers(len(texts.source_words), size=len(texts.source_words[index]))
    return [str(generator.choice(texts.source_words[row] or [""])) for row in rows]


Fault = Callable[[Planter, int, Generator], Changed]
TRANSLATION_FAULTS: dict[str, Fault] = {
    "detached": _detached,
    "omitted": lambda texts, index, generator: _without(texts.words[index], OMITTED, generator),
    "looped": _looped,
    "copied": lambda texts, index, generator: texts.sources[index],
    "foreign": lambda texts, index, generator: texts.sources[texts.other(index, generator)],
    "repeated": _repeated,
    "replaced": lambda texts, index, generator: texts.exchange(index, texts.similar_words, generator),
    "number": lambda texts, index, generator: texts.exchange(index, texts.other_numbers, generator),
    "negated": lambda texts, index, generator: texts.exchange(
        index, lambda word: [texts.negated[word]] if word in texts.negated else [], generator
    ),
}
SOURCE_FAULTS: dict[str, Fault] = {
    "target language": lambda texts, index, generator: texts.translations[texts.other(index, generator)],
    "unknown language": _unknown_language,
    "random letters": _random_letters,
    "random words": _random_words,
    "misspelled": lambda texts, index, generator: [
        "".join(generator.permutation([*word])) if generator.random() < 0.5 else word
        for word in texts.source_words[index]
    ],
    "shuffled": lambda texts, index, generator: list(generator.permutation(texts.source_words[index])),
    "truncated": lambda texts, index, generator: _without(texts.source_words[index], TRUNCATED, generator, end=True),
}
FAULTS = TRANSLATION_FAULTS | SOURCE_FAULTS
