"""Vocabularies learned from text."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from regard.data.subwords import MIN_COUNT, SubwordVocabulary, train_subwords, vocabulary_from_symbols
from regard.data.vocabulary import BLANK, BOS, EOS, PAD, UNKNOWN, TokenizerKind
from regard.errors import InputError
from tests.toy_corpora import LEXICA, toy_pairs

TEXT = ["der kleine Hund läuft.", "die kleinen Hunde laufen, sagt der Hund.", "klein ist der Hund"] * 3
KINDS: list[TokenizerKind] = ["bpe", "unigram", "words", "characters"]


@pytest.fixture(scope="module", params=KINDS)
def subwords(request: pytest.FixtureRequest) -> SubwordVocabulary:
    return train_subwords(TEXT, kind=request.param, size=60)


def test_encode_decode_round_trip(subwords: SubwordVocabulary) -> None:
    for text in TEXT:
        indices = subwords.encode(text)
        assert subwords.decode([BOS, *indices, EOS, 9, PAD]) == text
        assert "".join(subwords.labels(indices)) == BLANK + text.replace(" ", BLANK)
        assert subwords.pieces(text) == subwords.labels(indices) and not subwords.unknown(text)
        assert all(UNKNOWN < index < len(subwords) for index in indices)
    assert subwords.encode_all(TEXT) == [subwords.encode(text) for text in TEXT]


def test_a_vocabulary_is_stored_as_json(subwords: SubwordVocabulary) -> None:
    again = SubwordVocabulary.from_json(subwords.to_json())
    assert again.symbols == subwords.symbols and again.encode(TEXT[0]) == subwords.encode(TEXT[0])
    with pytest.raises(InputError, match="tokenizer is damaged"):
        SubwordVocabulary.from_json("{}")


def test_sentencepiece_cannot_be_learned() -> None:
    with pytest.raises(InputError, match="tokenizer sentencepiece comes with imported models"):
        train_subwords(TEXT, kind="sentencepiece", size=60)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab": {}}, "its first pieces are not <pad>, <s>, </s>, <unk>"),
        ({"vocab": []}, "'model.vocab' is a list, not an object"),
        ({"type": "Other"}, "'model.type' has an invalid value"),
        ({"type": None}, "'model.type' is null, not a text"),
        ({"merges": [["a", "☃"]]}, "its merges use '(a|☃|a☃)', which is not in its vocabulary"),
        ({"merges": [["a"]]}, r"'model.merges\[0\]' has an invalid value|list"),
        ({"merges": None}, "'model.merges' is null, not a list"),
        ({"unk_token": 3}, "the tokenizers library cannot read it"),
        ({"continuing_subword_prefix": []}, "the tokenizers library cannot read it"),
    ],
)
def test_a_damaged_vocabulary_is_refused(change: dict[str, object], message: str) -> None:
    stored = json.loads(LEARNED[0].to_json())
    stored["model"] |= change
    with pytest.raises(
        InputError, match=f"^tokenizer is damaged: {message}.*; restore the model from a copy, or train it again"
    ):
        SubwordVocabulary.from_json(json.dumps(stored))


def test_gaps_in_indices_and_duplicate_pieces_are_refused() -> None:
    stored = json.loads(LEARNED[0].to_json())
    vocab = stored["model"]["vocab"]
    vocab[max(vocab, key=vocab.__getitem__)] += 1
    with pytest.raises(InputError, match="has index [0-9]+, not [0-9]+"):
        SubwordVocabulary.from_json(json.dumps(stored))
    stored = json.loads(LEARNED[1].to_json())
    stored["model"]["vocab"].append(stored["model"]["vocab"][-1])
    with pytest.raises(InputError, match="it lists a piece twice"):
        SubwordVocabulary.from_json(json.dumps(stored))


@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_gives_a_valid_vocabulary_or_one_error(place: int, bit: int) -> None:
    for subwords in LEARNED:
        content = bytearray(subwords.to_json().encode())
        content[place % len(content)] ^= 1 << bit
        try:
            found = SubwordVocabulary.from_json(content.decode(errors="replace"))
        except InputError as error:
            assert "\n" not in str(error)
        else:
            found.encode("der Hund")


def test_an_unpaired_surrogate_is_unknown(subwords: SubwordVocabulary) -> None:
    text = "der \ud800Hund"
    assert subwords.encode(text) == subwords.encode("der \ufffdHund") == subwords.encode_all([text])[0]
    assert len(subwords.pieces(text)) == len(subwords.encode(text)) and "\ud800" not in subwords.unknown(text)


def test_unseen_tokens_are_unknown(subwords: SubwordVocabulary) -> None:
    text = "der Hund ☃ läuft."
    assert UNKNOWN in subwords.encode(text) and "☃" in subwords.unknown(text) and "☃" in subwords.pieces(text)
    assert subwords.decode(subwords.encode(text)) in ("der Hund � läuft.", "der Hund� läuft.")


@pytest.mark.parametrize("kind", KINDS)
def test_errors_of_the_text_pass_unchanged(kind: TokenizerKind) -> None:
    def refused() -> Iterator[str]:
        yield from TEXT
        raise InputError("line 10 is not UTF-8")

    with pytest.raises(InputError, match=r"^line 10 is not UTF-8$"):
        train_subwords(refused(), kind=kind, size=60)


@given(text=st.text(alphabet=st.sampled_from("<>/spadunkHu ▁"), max_size=20))
def test_no_text_spells_a_special_symbol(text: str) -> None:
    for subwords in LEARNED:
        assert all(index >= UNKNOWN for index in subwords.encode(text))


LEARNED = [train_subwords([*TEXT, "<s> </s> <pad> <unk>"], kind=kind, size=70) for kind in KINDS]


@given(words=st.lists(st.text(alphabet="dreHunkliäuft", min_size=1), max_size=8))
def test_known_characters_round_trip_in_any_order(words: list[str]) -> None:
    text = " ".join(words)
    for subwords in (LEARNED[0], LEARNED[3]):
        assert subwords.decode(subwords.encode(text)) == text


def test_bpe_merges_the_most_frequent_pair() -> None:
    """As in algorithm 1 of Sennrich et al. 2016, a pair in four words is merged before a pair in one word."""
    symbols = train_subwords(["low low low lower newest"] * MIN_COUNT, kind="bpe", size=100).symbols
    assert symbols.index(f"{BLANK}low") < symbols.index(f"{BLANK}lower")


def test_rare_pairs_are_not_merged() -> None:
    often, seldom = "ab " * MIN_COUNT, "cd " * (MIN_COUNT - 1)
    symbols = train_subwords([often + seldom], kind="bpe", size=100).symbols
    assert f"{BLANK}ab" in symbols and not {"cd", f"{BLANK}c", f"{BLANK}cd"} & set(symbols)


def tokens_each(vocabulary: SubwordVocabulary, texts: list[str]) -> float:
    return sum(map(len, vocabulary.encode_all(texts))) / len(texts)


@pytest.mark.parametrize("language", LEXICA)
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_new_sentences_have_as_many_tokens_as_those_of_training(kind: TokenizerKind, language: str) -> None:
    pairs = toy_pairs(language, 400)
    training, unseen = ([pair[1] for pair in part] for part in (pairs[:300], pairs[300:]))
    vocabulary = train_subwords([side for pair in pairs[:300] for side in pair], kind=kind, size=12_000)
    before, after = tokens_each(vocabulary, training), tokens_each(vocabulary, unseen)
    assert after < 1.1 * before and before >= 6
    spaced = language in ("korean", "german")
    assert bool(vocabulary.without_blanks) != spaced and "latin" not in vocabulary.without_blanks
    assert vocabulary.decode(vocabulary.encode(unseen[0])) == unseen[0]


@pytest.mark.parametrize(
    ("texts", "scripts"),
    [
        (["thewhitehorsecallsthechild"], ["latin"]),
        (["白い馬 が 庭 で 大きい 子ども を 呼ぶ"], []),  # words separated by spaces
        (["白い馬が New York で大きい子どもを呼ぶ"], ["cjk", "hiragana"]),
        (["하얀 말이 정원에서 큰 아이를 부른다"], []),
        (["하얀말이정원에서큰아이를부른다"], ["hangul"]),
        (["ม้าสีขาวเรียกเด็กใหญ่ ในสวนสาธารณะ และในป่าใหญ่"], ["thai"]),  # spaces between phrases
        (["Das Rindfleischetikettierungsgesetz und viele andere lange Wörter"], []),
    ],
)
def test_scripts_without_spaces_are_found_in_the_text(texts: list[str], scripts: list[str]) -> None:
    assert train_subwords(texts, kind="bpe", size=200).without_blanks == scripts


def test_settings() -> None:
    assert train_subwords(["Der HUND"], kind="bpe", size=40, lowercase=True).decode([]) == ""
    lower = train_subwords(["Der HUND"], kind="words", size=40, lowercase=True)
    assert lower.decode(lower.encode("DER Hund")) == "der hund"
    composed, apart = "über", "u\u0308ber"
    subwords = train_subwords([composed], kind="bpe", size=40)
    assert subwords.encode(apart) == subwords.encode(composed)
    assert len(train_subwords(TEXT, kind="bpe", size=30)) == 30
    for size in (20, 50):  # the vocabulary has space for all or only some characters
        assert len({train_subwords(TEXT, kind="bpe", size=size).to_json() for _ in range(5)}) == 1


@pytest.mark.parametrize(("kind", "size"), [*((kind, 4) for kind in KINDS), ("unigram", 6)])
def test_a_vocabulary_without_room_is_refused(kind: TokenizerKind, size: int) -> None:
    with pytest.raises(InputError, match=f"no unigram vocabulary of 6 symbols|vocab_size {size} leaves no room"):
        train_subwords(TEXT, kind=kind, size=size)


def test_a_vocabulary_from_symbols() -> None:
    words = vocabulary_from_symbols(["Hund", "der"], words=True)
    assert words.encode("der Hund") == [5, 4] and words.decode([5, 4]) == "der Hund"
    assert words.encode("der  Hund.") == [5, 3, 3] and words.offsets("der Hund") == [(0, 3), (3, 8)]
    characters = vocabulary_from_symbols(["a", "b", BLANK], words=False, lowercase=True)
    assert characters.encode("A b") == [4, 6, 5] and characters.decode([4, 6, 5]) == "a b"
    assert characters.offsets("A b") == [(0, 1), (1, 2), (2, 3)] and not characters.encode("")
    again = SubwordVocabulary.from_json(characters.to_json())
    assert again.encode("ab ☃") == characters.encode("ab ☃") == [4, 5, 6, 3]
