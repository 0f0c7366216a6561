"""Planted faults are wrong in the way that their names say."""

import pytest
from hypothesis import given, strategies as st

from regard_lab.doubts.faults import FAULTS, SOURCE_FAULTS, Planter
from tests.german import sentences

SOURCES, TARGETS = (list(side) for side in zip(*sentences()[:60], strict=True))
TEXTS = st.lists(
    st.lists(st.sampled_from(["a", "dog", "runs", "two", "is", "."]), min_size=1, max_size=14), min_size=1, max_size=9
)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_differs_from_its_text(kind: str) -> None:
    faulty = Planter(SOURCES, TARGETS).plant(kind)
    # The sentences have five words: omitted and truncated need six. They have no numbers and auxiliaries.
    assert len(faulty) >= (0 if kind in ("omitted", "truncated", "number", "negated") else 50)
    good = SOURCES if kind in SOURCE_FAULTS else TARGETS
    assert all(text != good[index] for index, text in faulty.items())


@pytest.mark.parametrize("kind", FAULTS)
@given(texts=TEXTS, seed=st.integers(0, 1000))
def test_any_text_can_be_planted(kind: str, texts: list[list[str]], seed: int) -> None:
    translations = ["a dog runs .", *(" ".join(words) for words in texts)]
    sources = [text.upper() for text in translations]
    planter = Planter(sources, translations, seed)
    faulty = planter.plant(kind)
    assert faulty == Planter(sources, translations, seed).plant(kind)
    for index, text in faulty.items():
        words, changed = translations[index].split(), text.split()
        different = [place for place, pair in enumerate(zip(words, changed, strict=False)) if pair[0] != pair[1]]
        if kind in ("omitted", "truncated"):
            missing = 1 - len(changed) / len(words)
            assert 0.3 <= missing <= {"omitted": 0.5, "truncated": 0.6}[kind] + 1 / len(words)
        if kind == "truncated":
            assert sources[index].startswith(text)
        if kind == "looped":
            lengths = [length for length in range(1, 5) if _repeats(changed, length) >= 3]
            assert lengths
        if kind == "copied":
            assert text == sources[index]
        if kind in ("replaced", "number"):
            assert len(words) == len(changed) and len(different) == 1
        if kind == "number":
            assert words[different[0]] == "two" and changed[different[0]] in planter.numbers
        if kind == "negated":
            assert changed.count("not") == 1 and [word for word in changed if word != "not"] == words
        if kind == "repeated":
            assert any(_repeats(changed, length) >= 2 for length in range(1, 4))
        if kind == "shuffled":
            assert sorted(changed) == sorted(sources[index].split())
        if kind in ("unknown language", "random letters", "misspelled"):
            assert [len(word) for word in changed] == [len(word) for word in words]


def test_other_letters_are_exchanged_alike_in_a_sentence() -> None:
    faulty = Planter(["Ein Hund, ein Kind.", "Zwei Vögel"], ["A dog", "Two birds"]).plant("unknown language")
    for source, changed in zip(["Ein Hund, ein Kind.", "Zwei Vögel"], faulty.values(), strict=True):
        pairs = set(zip(source, changed, strict=True))
        assert len(pairs) == len(set(source)) == len(set(changed))
        assert all(other.isupper() == letter.isupper() for letter, other in pairs)
        assert all(other == letter for letter, other in pairs if not letter.isalpha())


@pytest.mark.parametrize(
    ("translation", "number", "negated"),
    [
        ("Two dogs are here.", {"Three", "Nine", "Ten"}, "Two dogs are not here."),
        ("Zwei Hunde sind da, zwei.", {"Drei", "Neun", "Zehn"}, "Zwei Hunde sind nicht da, zwei."),
        ("Dva psi jsou tam.", {"Tři", "Devět", "Deset"}, "Dva psi nejsou tam."),
        ("Deux chiens sont là.", {"Trois", "Neuf", "Dix"}, "Deux chiens ne sont pas là."),
    ],
)
def test_numbers_and_negations_are_in_the_language_of_the_translations(
    translation: str, number: set[str], negated: str
) -> None:
    first = {Planter(["x"], [translation], seed).plant("number")[0].split()[0] for seed in range(60)}
    assert number <= first
    assert Planter(["x"], [translation]).plant("negated") == {0: negated}


def test_digits_are_numbers_in_any_language() -> None:
    assert Planter(["x"], ["kell 17:30"]).plant("number")[0] != "kell 17:30"


def test_a_text_without_blanks_consists_of_characters() -> None:
    sources = ["我们今天去看电影", "他明天来我家吃饭"]
    translations = ["Wir gehen ins Kino.", "Er kommt morgen zu uns."]
    shuffled = Planter(sources, translations).plant("shuffled")
    assert sorted(shuffled[0]) == sorted(sources[0]) and " " not in shuffled[0]
    assert len(Planter(translations, sources).plant("omitted")[0]) in (4, 5)


def test_a_replaced_word_has_a_similar_frequency() -> None:
    translations = ["often often", "rare", "seldom", "often often", "other other other other"]
    faulty = Planter(["x"] * 5, translations).plant("replaced")
    assert faulty[1] == "seldom" and faulty[2] == "rare" and "other" in faulty[0]


def _repeats(words: list[str], length: int) -> int:
    """Return how often a phrase of `length` words occurs in a row at most."""
    best = 0
    for begin in range(len(words)):
        phrase, count = words[begin : begin + length], 1
        while words[begin + count * length : begin + (count + 1) * length] == phrase:
            count += 1
        best = max(best, count)
    return best
