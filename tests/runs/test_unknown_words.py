"""Unknown words of answers become the source words to which the model aligns them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import regard
from regard.data.vocabulary import UNKNOWN, CharacterVocabulary, Vocabulary, WordVocabulary
from regard.decoding.controls import Controls
from regard.decoding.translation import Candidate
from regard.runs import sequence_run
from regard.runs.sequence_run import replace_unknown
from tests.conftest import TINY
from tests.german import sentences, write


class Subwords(CharacterVocabulary):
    """Characters, of which `▁` begins a word."""

    unit = "tokens"

    def decode(self, indices: Sequence[int]) -> str:
        return super().decode(indices).replace("▁", " ").strip()


@pytest.mark.parametrize(
    ("vocabulary", "tokens", "expected"),
    [
        (WordVocabulary(["the", "runs"]), ["the", None, "runs", None], "the Wal runs heute"),
        (CharacterVocabulary("ab"), ["a", None, "b", None], "aWalbheute"),
        (Subwords("▁ab."), ["▁", "a", None, "b", ".", "▁", None], "Wal. heute"),
        (Subwords("▁ab."), ["▁", None, None, ".", "▁", "a"], "Wal. a"),
        (Subwords("▁ab."), ["▁", "a", "b"], "ab"),
    ],
    ids=["words", "characters", "pieces", "two in a word", "none"],
)
def test_unknown_symbols_become_the_aligned_words(
    monkeypatch: pytest.MonkeyPatch, vocabulary: Vocabulary, tokens: list[str | None], expected: str
) -> None:
    """The weights align the first unknown symbol with the third source word, and the last one with the first."""
    indices = [UNKNOWN if token is None else vocabulary.symbols.index(token) for token in tokens]
    unknown = [step for step, index in enumerate(indices) if index == UNKNOWN]

    def known_weights(model: Any, pairs: Sequence[Any], heads: Any) -> Iterator[np.ndarray]:
        del model, heads
        for source, target in pairs:
            weights = np.full((2, 1, len(target.indices), len(source.words) + 1), 0.1)
            weights[..., -1] = 0.5  # the end of the source is not a word
            weights[..., unknown[-1], 0] = 0.3
            weights[..., unknown[0], :3] = 0.1, 0.1, 0.4
            yield weights

    monkeypatch.setattr(sequence_run, "word_weights", known_weights)
    source = WordVocabulary(["heute", "der"])
    task = SimpleNamespace(source_vocabulary=source, target_vocabulary=vocabulary)
    heads = SimpleNamespace(heads=[("cross", 0)], shifted=False)
    aligner: Any = SimpleNamespace(heads=lambda: heads, task=task, model=None, unit="words")
    answer = Candidate(
        text=vocabulary.decode(indices), tokens=indices, log_probability=-1.0, score=-1.0, finished=True
    )
    [[found]] = replace_unknown(aligner, ["heute der (Wal)."], [[answer]])
    assert found.text == expected and found.tokens == indices


def test_translations_contain_source_words_instead_of_unknown_symbols(tmp_path: Path) -> None:
    flags = {**TINY, "vocab_size": 22, "steps": 200}
    run: Any = regard.train(
        "translation", **write(tmp_path), **flags, tokenizer="words", savepath=tmp_path, progress=False
    )
    texts = [source for source, _ in sentences()[:30]]
    answers = run.search(texts, controls=Controls(replace_unknown=True))
    assert sum(UNKNOWN in best.tokens for best, *_ in answers) > 5
    for text, [best, *_] in zip(texts, answers, strict=True):
        known = [
            *text.replace(".", "").split(),
            *(symbol.strip("▁") for symbol in run.task.target_vocabulary.symbols),
        ]
        assert "�" not in best.text and set(best.text.replace(".", "").split()) <= set(known)
    assert not any(UNKNOWN in best.tokens for best, *_ in run.search(texts))
