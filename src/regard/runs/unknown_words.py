"""Replace the unknown words of answers by the source words to which they are aligned (Luong et al. 2015b)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from regard.data.tokenization import TokenizedText, tokenize
from regard.data.vocabulary import BLANK, SPECIAL, UNKNOWN
from regard.interpret.word_links import word_weights

if TYPE_CHECKING:
    from regard.data.vocabulary import Vocabulary
    from regard.decoding.translation import Candidate
    from regard.runs.alignment import Aligner


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
