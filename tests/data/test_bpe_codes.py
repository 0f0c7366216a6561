"""BPE with codes equals results computed by hand and results of the library tokenizers."""

import pickle

import pytest
from hypothesis import given, strategies as st
from tokenizers import models

from regard.data import EOS, UNKNOWN
from regard.data.bpe_codes import BpeCodesVocabulary, format_codes, parse_codes
from regard.data.prepare import read_vocabularies
from regard.errors import InputError
from regard.io.reading import DamageError
from tests.fairseq import codes_of
from tests.german import sentences

CODES = [("s", "c"), ("e", "e</w>"), ("sc", "h"), ("n", "ee</w>"), ("a", "a")]
SYMBOLS = ["sch@@", "nee", "a@@", "a", "aa@@"]


def test_by_hand() -> None:
    found = BpeCodesVocabulary(CODES, SYMBOLS)
    assert found.encode("schnee aaa a") == [4, 5, 8, 7, 7]
    assert found.pieces("schnee  asch ä") == ["▁sch", "nee", "▁a", "sc", "h", "▁ä"]
    assert found.encode("") == [] and found.decode([]) == "" and len(found) == 9
    assert found.decode([4, 5, 6, UNKNOWN, EOS, 4]) == "schnee a\N{REPLACEMENT CHARACTER}"
    assert found.decode([7, 4]) == "a sch"  # no other merge applies
    assert found.labels([4, 5, 7, EOS]) == ["▁sch", "nee", "▁a", "</s>"] and found.labels([5]) == ["nee"]
    assert found.unknown("schnee äa") == ["ä"] and found.encode("äa") == [UNKNOWN, 7]
    assert found.offsets(" schnee a") == [(1, 4), (4, 7), (8, 9)]


def test_the_first_of_two_equal_codes_wins() -> None:
    twice = [("a", "b"), ("b", "c</w>"), ("a", "b")]
    assert BpeCodesVocabulary(twice, ["ab@@", "c"]).encode("abc") == [4, 5]


def test_words_without_codes() -> None:
    found = BpeCodesVocabulary([], ["ein", "Hund"])
    assert found.encode("ein Hund rennt") == [4, 5, UNKNOWN] and found.decode([4, 5]) == "ein Hund"


@given(st.text(max_size=40))
def test_joined_pieces_equal_the_text(text: str) -> None:
    found = BpeCodesVocabulary(CODES, SYMBOLS)
    pieces, places = found.pieces(text), found.offsets(text)
    assert len(pieces) == len(places) == len(found.encode(text))
    ends = [0, *(end for _, end in places)]
    assert all(begin <= first <= end for begin, (first, end) in zip(ends, places, strict=False))
    assert "".join(text[begin:end] for begin, end in places) == "".join(text.split())


def test_pieces_equal_those_of_the_tokenizers_library() -> None:
    text = [text for pair in sentences() for text in pair]
    codes = codes_of(text)
    pieces = {piece for pair in codes for piece in (*pair, "".join(pair))}
    letters = {each for line in text for letter in line for each in (letter, f"{letter}</w>")}
    names = {piece: index for index, piece in enumerate(sorted(pieces | letters))}
    theirs = models.BPE(names, codes, end_of_word_suffix="</w>")
    ours = BpeCodesVocabulary(codes, ["x"])
    for line in text:
        found = [f"{piece}@@".replace("</w>@@", "") for word in line.split() for piece in _values(theirs, word)]
        assert list(ours._pieces(line)) == found


def _values(model: models.BPE, word: str) -> list[str]:
    return [token.value for token in model.tokenize(word)]


def test_json_round_trip() -> None:
    found = BpeCodesVocabulary(CODES, SYMBOLS)
    again, same = read_vocabularies(found.to_json(), found.to_json())
    assert isinstance(again, BpeCodesVocabulary) and same is again and again.to_json() == found.to_json()
    sent = pickle.loads(pickle.dumps(found))  # to a worker process
    assert sent.to_json() == found.to_json() and sent.encode("schnee") == [4, 5]
    for damage in ('"symbols":["a","a"]', '"symbols":[]', '"symbols":["a"],"more":1'):
        with pytest.raises(InputError, match="tokenizer is damaged: .* import it again"):
            BpeCodesVocabulary.from_json(f'{{"codes":[["a","b"]],{damage}}}')


def test_parse_codes() -> None:
    assert parse_codes(format_codes(CODES)) == CODES
    assert parse_codes("#version: 0.2\r\na \u2028</w>\r\n") == [("a", "\u2028</w>")]
    assert parse_codes("a b</w> 17\nab c 3\n") == [("a", "b</w>"), ("ab", "c")]
    for content, message in (
        ("#version: 0.1\na b\n", "its version is 0.1, not 0.2"),
        ("#version: 0.2\na b 7\n", "its line 2 is not a pair"),
        ("a b\n", "its line 1 is not a pair and its count"),
        ("#version: 0.2\n", "it has no codes"),
        ("", "it has no codes"),
    ):
        with pytest.raises(DamageError, match=message):
            parse_codes(content)
