"""Tokenize a corpus word by word, and each distinct word only once.

Most words of a text have occurred before. If a vocabulary splits each word independently, as learned
vocabularies do, the tokens of a sentence are the concatenated tokens of its words. The words of many sentences
are looked up in a table, and only new words are passed to the `tokenizers` library.
"""

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from regard.data.subwords import SubwordVocabulary
from regard.data.vocabulary import BLANK, EOS, LearnedVocabulary

CAPACITY = 200_000
"""The largest number of cached words. A larger table is cleared."""
END = "\n"
"""Marks the end of a sentence in a list of words. A sentence that contains this character is looked up as a
whole."""
WHOLE = " "
"""The prefix of the key of a sentence that is looked up as a whole.

No word and no `END` begins with this prefix.
"""

Tokens = tuple[np.ndarray, np.ndarray]
"""The concatenated tokens of all sentences (N,) uint32, with `EOS` after each sentence, and the number of
tokens per sentence (S,).
"""


class CachedTokenizer:
    """Tokenizes sentences with a table of words. `encode`: function that returns the indices of a new word.

    >>> tokens, lengths = CachedTokenizer(lambda word: [4 + len(word)])(["ein Hund", "so"])
    >>> tokens.tolist(), lengths.tolist()
    ([7, 8, 2, 6, 2], [3, 2])
    """

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode
        self._clear()

    def __call__(self, sentences: Sequence[str]) -> Tokens:
        """Return the tokens of sentences, and the number of tokens of each."""
        if len(self._table) > CAPACITY:
            self._clear()
        words = _split_words(sentences)
        numbers = np.fromiter(map(self._table.__getitem__, words), np.int64, len(words))
        lengths = np.array(self._table.lengths)
        begins = lengths.cumsum() - lengths
        counts, ends = lengths[numbers], np.flatnonzero(numbers == 0)
        total = counts.cumsum()
        # The position of each token in the table. Positions are consecutive within a word.
        positions = np.arange(total[-1] if len(total) else 0) + np.repeat(
            begins[numbers] - total + counts, counts
        )
        return self._table.indices()[positions], np.diff(total[ends], prepend=0)

    def _clear(self) -> None:
        self._table = _Table(self._encode)
        self._table[END] = 0
        self._table.add([EOS])


class _Table(dict[str, int]):
    """A table that maps words to numbers, and numbers to the tokens of the words."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        super().__init__()
        self._encode = encode
        self.lengths: list[int] = []
        self._tokens: list[list[int]] = []
        self._flat = np.zeros(0, np.uint32)

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self.lengths)
        self.add(self._encode(word.removeprefix(WHOLE)))
        return number

    def add(self, tokens: list[int]) -> None:
        self.lengths.append(len(tokens))
        self._tokens.append(tokens)

    def indices(self) -> np.ndarray:
        if self._tokens:
            new = np.fromiter(chain.from_iterable(self._tokens), np.uint32)
            self._flat, self._tokens = np.concatenate([self._flat, new]), []
        return self._flat


def _split_words(sentences: Sequence[str]) -> list[str]:
    """Return the words of all sentences with `END` after each sentence.

    A sentence with unusual whitespace is returned as a whole.
    """
    joined = f" {f' {END} '.join(sentences)} "
    if _has_single_blanks(joined) and joined.count(END) == len(sentences) - 1:
        return [*joined[1:-1].split(" "), END]
    words: list[str] = []
    for sentence in sentences:
        regular = END not in sentence and _has_single_blanks(f" {sentence} ")
        words += [*(sentence.split(" ") if regular else [WHOLE + sentence]), END]
    return words


def _has_single_blanks(text: str) -> bool:
    return "  " not in text and BLANK not in text


class PlainTokenizer:
    """Tokenizes sentences one by one, for a vocabulary whose tokens may cross word boundaries."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode

    def __call__(self, sentences: Sequence[str]) -> Tokens:
        tokens = [[*self._encode(sentence), EOS] for sentence in sentences]
        lengths = np.array([len(sentence) for sentence in tokens], np.int64)
        return np.fromiter(chain.from_iterable(tokens), np.uint32), lengths


CorpusTokenizer = CachedTokenizer | PlainTokenizer


def corpus_tokenizer(vocabulary: LearnedVocabulary) -> CorpusTokenizer:
    """Return a tokenizer of sentences for a vocabulary, with a cache if the vocabulary splits at whitespace."""
    cached = isinstance(vocabulary, SubwordVocabulary) and vocabulary.splits_at_blanks
    return CachedTokenizer(vocabulary.encode) if cached else PlainTokenizer(vocabulary.encode)
