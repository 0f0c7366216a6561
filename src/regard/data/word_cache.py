"""Text cut into tokens word by word: each different word once, however often it comes again.

Most of a text are words that it has had before. Where a vocabulary cuts every word between blanks by itself, as
those that are learned here do, the tokens of a sentence are those of its words, end to end. So the words of
many sentences are looked up in a table, and the work of the `tokenizers` library is left to the few that are
new.
"""

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from regard.data.subwords import SubwordVocabulary
from regard.data.vocabulary import BLANK, EOS, LearnedVocabulary

MOST = 200_000
"""Words that are kept; a table that has more begins anew."""
END = "\n"
"""Stands for the end of a sentence among words; a sentence that holds it is looked up as a whole."""
WHOLE = " "
"""Begins the key of a sentence that is looked up as a whole, so that it is never taken for a word or an end."""

Tokens = tuple[np.ndarray, np.ndarray]
"""The tokens of all sentences end to end (N,) uint32, each with its end of sequence, and how many each has
(S,)."""


class CachedTokenizer:
    """Cuts sentences by a table of words; `encode` gives the indices of a new one."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode
        self._forget()

    def __call__(self, sentences: Sequence[str]) -> Tokens:
        """Return the tokens of sentences, and how many each has."""
        if len(self._table) > MOST:
            self._forget()
        words = _words(sentences)
        numbers = np.fromiter(map(self._table.__getitem__, words), np.int64, len(words))
        lengths = np.array(self._table.lengths)
        begins = lengths.cumsum() - lengths
        taken, ends = lengths[numbers], np.flatnonzero(numbers == 0)
        total = taken.cumsum()
        # Where each token stands in the table: one after the other, but for a jump where a word begins.
        places = np.arange(total[-1] if len(total) else 0) + np.repeat(begins[numbers] - total + taken, taken)
        return self._table.indices()[places], np.diff(total[ends], prepend=0)

    def _forget(self) -> None:
        self._table = _Table(self._encode)
        self._table[END] = 0
        self._table.add([EOS])


class _Table(dict[str, int]):
    """From word to its number, and from that to its tokens."""

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
        """Return the tokens of all words, end to end."""
        if self._tokens:
            new = np.fromiter(chain.from_iterable(self._tokens), np.uint32)
            self._flat, self._tokens = np.concatenate([self._flat, new]), []
        return self._flat


def _words(sentences: Sequence[str]) -> list[str]:
    """Return the words of all sentences, an end after each; a sentence whose blanks do not part its words as in
    any other is one word."""
    joined = f" {f' {END} '.join(sentences)} "
    if _is_plain(joined) and joined.count(END) == len(sentences) - 1:
        return [*joined[1:-1].split(" "), END]
    words: list[str] = []
    for sentence in sentences:
        is_plain = END not in sentence and _is_plain(f" {sentence} ")
        words += [*(sentence.split(" ") if is_plain else [WHOLE + sentence]), END]
    return words


def _is_plain(text: str) -> bool:
    """Whether blanks part the words of a text, with one before and behind it, as they do in any other."""
    return "  " not in text and BLANK not in text


class PlainTokenizer:
    """Cuts sentences one after the other, as a vocabulary does that looks at more than a word."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode

    def __call__(self, sentences: Sequence[str]) -> Tokens:
        """Return the tokens of sentences, and how many each has."""
        found = [[*self._encode(sentence), EOS] for sentence in sentences]
        lengths = np.array([len(each) for each in found], np.int64)
        return np.fromiter(chain.from_iterable(found), np.uint32), lengths


CorpusTokenizer = CachedTokenizer | PlainTokenizer


def corpus_tokenizer(vocabulary: LearnedVocabulary) -> CorpusTokenizer:
    """Return what cuts sentences into the tokens of a vocabulary."""
    by_words = isinstance(vocabulary, SubwordVocabulary) and vocabulary.by_words
    return CachedTokenizer(vocabulary.encode) if by_words else PlainTokenizer(vocabulary.encode)
