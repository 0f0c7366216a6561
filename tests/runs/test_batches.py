"""An answer is independent of the length, number and order of the other texts in its batch."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import regard

WORDS = ["a", "b", "c", "never"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=20).map(" ".join), min_size=2, max_size=8)
SEARCHES: list[dict[str, Any]] = [
    {"beam": 1},
    {"beam": 3, "n_best": 3},
    {"beam": 3, "n_best": 2, "length_penalty": 1.0},
    {"beam": 1, "temperature": 1.0, "seed": 3},
]


@pytest.fixture(scope="module", params=["transformer", "recurrent"])
def endless(request: Any, tmp_path_factory: pytest.TempPathFactory) -> regard.TranslationRun:
    """A run that repeats a word until its answers reach their length limits."""
    folder = tmp_path_factory.mktemp("endless")
    pairs = ["a b\t" + "x y " * 50, "c\tx", "b a\t" + "y x x " * 30]
    (folder / "pairs.tsv").write_text("".join(f"{pair}\n" for pair in pairs * 10))
    flags: dict[str, Any] = {"model": request.param, "tokenizer": "words", "hidden": 16, "enc_layers": 1}
    if request.param == "transformer":
        flags |= {"heads": 2, "inner": 16, "dec_layers": 1}
    run = regard.train(
        "translation",
        train=(str(folder / "pairs.tsv"),),
        **flags,
        steps=25,
        tokens=1000,
        savepath=folder,
        progress=False,
    )
    assert isinstance(run, regard.TranslationRun)
    return run


def answers(run: regard.SequenceRun, texts: list[str], **options: Any) -> list[list[tuple[Any, ...]]]:
    found = run.search(texts, **options)
    return [
        [
            (each.text, each.finished, pytest.approx(each.log_probability, abs=1e-3), round(each.score, 2))
            for each in some
        ]
        for some in found
    ]


def check_alone(run: regard.SequenceRun, texts: list[str], order: list[int], **options: Any) -> None:
    alone = [answers(run, [text], batchsize=1, **options)[0] for text in texts]
    for batchsize in (1, 7, 64):
        assert answers(run, texts, batchsize=batchsize, **options) == alone
    turned = answers(run, [texts[place] for place in order], batchsize=7, **options)
    assert [turned[order.index(place)] for place in range(len(texts))] == alone


@pytest.mark.parametrize("options", SEARCHES, ids=str)
@settings(max_examples=3)
@given(texts=TEXTS, data=st.data())
def test_answer_is_independent_of_the_batch(
    endless: regard.TranslationRun, options: dict[str, Any], texts: list[str], data: st.DataObject
) -> None:
    check_alone(endless, texts, data.draw(st.permutations(range(len(texts)))), **options)


@pytest.mark.parametrize("options", SEARCHES[:3], ids=str)
def test_answer_is_independent_of_the_batch_in_ctranslate2(
    endless: regard.TranslationRun, options: dict[str, Any]
) -> None:
    pytest.importorskip("ctranslate2")
    if endless.config.kind != "transformer":
        pytest.skip("CTranslate2 has Transformers only")
    texts = ["a b", "a b " * 6, "c", "never " * 12, "b a", "a " * 20, "c c c"]
    check_alone(endless, texts, [3, 1, 6, 0, 2, 5, 4], engine="ctranslate2", **options)
    here = [[each.text for each in some] for some in endless.search(texts, **options)]
    there = endless.search(texts, engine="ctranslate2", **options)
    assert [[each.text for each in some] for some in there] == here


def test_limits_are_reached(endless: regard.TranslationRun) -> None:
    """The sources differ in length and in their answers. Otherwise the other tests would be trivial."""
    short, long = endless.search(["a b", "a b" + " a b" * 5], beam=1)
    assert not short[0].finished and not long[0].finished
    assert (len(short[0].tokens), len(long[0].tokens)) == (56, 76)


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_answers_on_dates_are_independent_of_the_batch(translator: regard.PairRun, options: dict[str, Any]) -> None:
    texts = [f"{day}. Mai {1950 + 2 * day}" for day in (1, 11, 28)] + ["1", "x" * 90, "14 juillet 1989", "1 1 1"]
    check_alone(translator, texts, [6, 0, 5, 2, 4, 1, 3], **options)


def test_sampled_answers_depend_on_text_and_seed_only(endless: regard.TranslationRun) -> None:
    first, again, other = endless.search(["a b", "a b", "b a"], temperature=1.0, seed=1)
    assert first[0].text == again[0].text != other[0].text
    assert endless.search(["a b"], temperature=1.0, seed=2)[0][0].text != first[0].text


def test_command_writes_the_same_answers(endless: regard.TranslationRun, command: Any, tmp_path: Path) -> None:
    lines = ["a b", "a b " * 6, "c", "b " * 9]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    found = set()
    for size in (1, 7, 64):
        words = ("--input", tmp_path / "in.txt", "--batchsize", str(size), "--beam", "2", "--engine", "regard")
        status, out, _ = command("translate", endless.folder, *words, "--n_best", "2", "--align")
        assert status == 0 and out.count("\n") == 8
        found.add(out)
    assert len(found) == 1
