"""Word alignment in a search: glossaries and unknown words."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import regard
from regard.data.tokenization import word_spans
from regard.data.vocabulary import UNKNOWN, CharacterVocabulary, Vocabulary, WordVocabulary
from regard.decoding.controls import Controls
from regard.decoding.translation import Candidate, Search
from regard.runs import alignment
from regard.runs.alignment import _is_placed, _place, place_terms, replace_unknown
from tests.conftest import TINY
from tests.german import sentences, write


class Words:
    """A vocabulary of words, punctuation and Chinese letters."""

    def encode(self, text: str) -> list[int]:
        return [4] * len(self.offsets(text))

    def offsets(self, text: str) -> list[tuple[int, int]]:
        return word_spans(text, "parts", [] if text.isascii() else [(at, at + 1) for at in range(len(text))])


class FakeAligner:
    """Aligns "dog" and "canine" with "Hund", "man" and "gentleman" with "Mann", with a weight."""

    run = SimpleNamespace(
        task=SimpleNamespace(target_vocabulary=Words(), vocabularies=(Words(), Words()), longest_target=50)
    )

    def __init__(self, weight: float = 0.8) -> None:
        self.weight = weight

    def align(self, pairs: Any, unit: str) -> list[Any]:
        found = []
        for text, answer in pairs:
            sides = [[side[slice(*span)] for span in Words().offsets(side)] for side in (text, answer)]
            links = [
                (first, second)
                for first, source in enumerate(sides[0])
                for second, target in enumerate(sides[1])
                if target in {"Hund": ("dog", "canine", "狗", "犬"), "Mann": ("man", "gentleman")}.get(source, ())
            ]
            weights = np.zeros((len(sides[1]), len(sides[0])))
            for first, second in links:
                weights[second, first] = self.weight
            found.append(SimpleNamespace(target=sides[1], links=links, weights=weights))
        return found


ANSWERS = {
    "": "a man has a dog.",
    "a gentleman": "a gentleman man has a dog.",
    "a gentleman has": "a gentleman has a dog.",
    "a gentleman has a canine": "a gentleman has a canine.",
    "a man has a canine": "a man has a canine.",
}


def answer(text: str) -> Candidate:
    return Candidate(text=text, tokens=[], log_probability=0.0, score=0.0, finished=True)


def place(glossary: dict[str, str], found: str, weight: float = 0.8, answers: dict[str, str] = ANSWERS) -> Candidate:
    def find(texts: list[str], search: Search) -> list[list[Candidate]]:
        return [[answer(answers[prefix])] for prefix in search.controls.prefixes(len(texts))]

    aligner: Any = FakeAligner(weight)
    controls = Search(beam=2, controls=Controls(glossary=glossary))
    [[best]] = place_terms(find, aligner, ["Ein Mann hat einen Hund."], controls, [[answer(found)]])  # type: ignore[arg-type]
    return best


def test_terms_replace_the_aligned_words() -> None:
    best = place({"Hund": "canine"}, "a man has a dog. canine.")
    assert best.text == "a man has a canine." and not best.misplaced
    best = place({"Hund": "canine", "Mann": "gentleman"}, "gentleman canine a man has a dog.")
    assert best.text == "a gentleman has a canine." and not best.misplaced  # and not "gentleman man"


def test_terms_replace_words_without_spaces() -> None:
    answers = {"": "我看狗跑。", "我看犬": "我看犬狗跑。", "我看犬跑": "我看犬跑。"}
    best = place({"Hund": "犬"}, "我看狗跑。犬", answers=answers)
    assert best.text == "我看犬跑。" and not best.misplaced


def test_a_term_that_has_no_place_is_named() -> None:
    best = place({"Hund": "canine"}, "a man has a dog. canine.", weight=0.1)
    assert best.text == "a man has a dog. canine." and best.misplaced == ("canine",)
    glued = ANSWERS | {"a man has a canine": "a man has a canines."}
    assert place({"Hund": "canine"}, "a dog. canine", answers=glued).misplaced == ("canine",)
    assert place({"Katze": "cat"}, "a man has a dog.") == answer("a man has a dog.")


def test_a_term_after_the_end_of_the_sentence_is_not_in_its_place() -> None:
    term = ((4, 8), "canine")
    links = [((4, 8), 0.5, True)]
    answer = "A dog runs. canine."
    words = [((0, 1), []), ((2, 5), []), ((6, 10), []), ((10, 11), []), ((12, 18), links), ((18, 19), [])]
    assert not _is_placed(term, "Ein Hund läuft.", answer, words)
    assert _place(term, words) == (4, 4) and _place(((0, 3), "a"), words) is None
    assert _is_placed(term, "Ja. Hund.", "Yes. canine.", [((0, 3), []), ((3, 4), []), ((5, 11), links)])
    # The weight of another word is larger.
    words = [((0, 1), []), ((2, 5), [((4, 8), 0.9, True)]), ((6, 12), links), ((13, 17), [])]
    assert not _is_placed(term, "Ein Hund läuft.", "A dog canine runs", words)
    assert not _is_placed(term, "Ein Hund läuft.", "A canines runs", [((2, 9), links)])


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

    monkeypatch.setattr(alignment, "word_weights", known_weights)
    source = WordVocabulary(["heute", "der"])
    task = SimpleNamespace(source_vocabulary=source, target_vocabulary=vocabulary)
    heads = SimpleNamespace(heads=[("cross", 0)], shifted=False)
    aligner: Any = SimpleNamespace(heads=lambda: heads, run=SimpleNamespace(task=task, model=None), unit="words")
    answer = Candidate(text=vocabulary.decode(indices), tokens=indices, log_probability=-1.0, score=-1.0, finished=True)
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
        known = [*text.replace(".", "").split(), *(symbol.strip("▁") for symbol in run.task.target_vocabulary.symbols)]
        assert "�" not in best.text and set(best.text.replace(".", "").split()) <= set(known)
    assert not any(UNKNOWN in best.tokens for best, *_ in run.search(texts))
