"""Vocabularies exported to the `tokenizers` library encode and decode texts in the same way."""

import pytest
from hypothesis import example, given, strategies as st
from tokenizers import Tokenizer

import regard
from regard.convert.onnx import make_tokenizer
from regard.data import CharacterVocabulary, Vocabulary, WordVocabulary

LETTERS = CharacterVocabulary("abcdé<>/s \n.")
WORDS = WordVocabulary(["dog", "cat", "sees", ".", "dog.", "s", "straße"])
TEXTS = st.one_of(
    st.text("abcdé<>/s \n.xyZ☃", max_size=20),
    st.lists(st.sampled_from([*WORDS.symbols[4:], "<s>", "</s>", "<pad>", "<unk>", "x<s>", "none"])).map(
        " ".join
    ),
)


def check(vocabulary: Vocabulary, text: str) -> None:
    written = Tokenizer.from_str(make_tokenizer(vocabulary).to_str())
    ids = written.encode(text).ids
    assert ids == vocabulary.encode(text)
    known = [index for index in ids if index > 3]
    assert written.decode(known) == vocabulary.decode(known)


@given(text=TEXTS)
@example(text="")
@example(text="<s>")
@example(text="dog <s>  </s> cat\t<pad>")
@pytest.mark.parametrize("vocabulary", [LETTERS, WORDS], ids=["characters", "words"])
def test_indices_are_equal(vocabulary: Vocabulary, text: str) -> None:
    check(vocabulary, text)


@pytest.mark.parametrize("text", ["Heute singt der alte Hund.", "  Der </s> Hund, <pad>  läuft !", "", "☃ x"])
def test_subwords(german: regard.TranslationRun, text: str) -> None:
    check(german.task.source_vocabulary, text)
