"""The tokenizer of BLEU depends on the script of the references."""

import pytest

from regard.data import bleu_tokenizer
from regard.data.bleu_tokenizer import OFFLINE, check_bleu_tokenizer, choose_bleu_tokenizer
from regard.errors import InputError

CHINESE, JAPANESE, KOREAN = "一只狗在草地上跑。", "犬が草の上を走っています。", "개가 풀밭 위를 달린다."


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        (["Ein Hund rennt."], "13a"),
        (["Собака бежит."], "13a"),
        (["कुत्ता दौड़ता है।", "الكلب يركض"], "13a"),
        ([CHINESE, "两个女人。"], "zh"),
        (["他在 Google 工作用 Python 写程序。"], "zh"),
        (["天地人"] * 3 + ["hello there"], "zh"),
        ([JAPANESE], "char"),
        (["カタカナ"], "char"),
        (["สุนัขวิ่งบนหญ้า"], "char"),
        (["ໝາແລ່ນ"], "char"),
        (["ឆ្កែរត់"], "char"),
        (["ခွေးပြေးသည်"], "char"),
        (["ཁྱི་རྒྱུག་གི་རེད།"], "char"),
        ([CHINESE, "สุนัขวิ่งบนหญ้า"], "char"),
        ([KOREAN], "13a"),
        (["개가풀밭위를달린다"], "char"),
        (["The word 狗 means dog, and that is all that there is to say of it."], "13a"),
        (["1 2 3", ""], "13a"),
        ([], "13a"),
    ],
    ids=str,
)
def test_by_script(references: list[str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bleu_tokenizer, "_is_installed", lambda name: not name.endswith("mecab"))
    assert choose_bleu_tokenizer(references) == expected


@pytest.mark.parametrize(("text", "expected"), [(JAPANESE, "ja-mecab"), (KOREAN, "ko-mecab"), (CHINESE, "zh")])
def test_mecab_is_chosen_if_installed(text: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bleu_tokenizer, "_is_installed", lambda name: True)
    assert choose_bleu_tokenizer([text]) == expected


def test_names_equal_those_of_sacrebleu() -> None:
    from sacrebleu.metrics.bleu import _TOKENIZERS, BLEU

    assert {*OFFLINE, *bleu_tokenizer.DOWNLOADED} == set(_TOKENIZERS)
    for name in OFFLINE:
        if bleu_tokenizer._is_installed(name):
            check_bleu_tokenizer(name)
            assert BLEU(tokenize=name).corpus_score(["a b c d e"], [["a b c d e"]]).score == pytest.approx(100)


def test_unavailable_tokenizers_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bleu_tokenizer, "find_spec", lambda name: None)
    for name, told in (
        ("flores200", "needs a model that sacrebleu downloads: choose 13a, intl, zh"),
        ("ja-mecab", "needs its package: pip install 'sacrebleu\\[ja\\]'"),
        ("ko-mecab", "needs its package: pip install 'sacrebleu\\[ko\\]'"),
        ("zhh", "bleu_tokenize 'zhh' is unknown: choose .*did you mean zh"),
    ):
        with pytest.raises(InputError, match=told):
            check_bleu_tokenizer(name)
    check_bleu_tokenizer("ja-mecab", installed=False)
