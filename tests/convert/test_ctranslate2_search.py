"""The search in CTranslate2 returns the same answers as Regard's own search, for all options."""

import copy
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

import regard
from regard.convert import ctranslate2
from regard.data.vocabulary import UNKNOWN
from regard.decoding import translation
from regard.decoding.controls import Controls
from regard.decoding.translation import Search
from regard.errors import InputError
from tests.conftest import train_german
from tests.german import sentences

pytest.importorskip("ctranslate2")

SOURCES = [source for source, _ in sentences()]
ODD = ["", " ", "☃", "<pad>", "der der der", "Hund " * 30, SOURCES[0].upper(), SOURCES[1][:9]]
TIE = 1e-4  # Largest difference of scores at which the order of two answers may differ


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> regard.TranslationRun:
    """Return a run with a vocabulary of whole words, so that disabled tokens are rarely among the best."""
    return train_german(tmp_path_factory, vocab_size=200, steps=150)


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Store the number of sources of each batch that fall back to Regard's search."""
    counts: list[int] = []
    search_batch = ctranslate2.search_batch

    def counting(model: Any, batch: Any, *args: Any, **options: Any) -> Any:
        counts.append(len(batch))
        return search_batch(model, batch, *args, **options)

    monkeypatch.setattr(ctranslate2, "search_batch", counting)
    yield counts


def check_same(run: regard.TranslationRun, texts: list[str], **options: Any) -> None:
    here = run.search(texts, **options)
    there = run.search(texts, engine="ctranslate2", **options)
    assert [len(each) for each in here] == [len(each) for each in there]
    for one, other in zip(here, there, strict=True):
        for rank, (mine, found) in enumerate(zip(one, other, strict=True)):
            assert found.score == pytest.approx(mine.score, abs=TIE)
            if found.tokens != mine.tokens:  # one of a tie, here or after the last rank
                assert (
                    any(abs(mine.score - each.score) < TIE for at, each in enumerate(one) if at != rank)
                    or rank == len(one) - 1
                )
                continue
            assert (found.text, found.finished) == (mine.text, mine.finished)
            assert found.log_probability == pytest.approx(mine.log_probability, abs=TIE)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.sampled_from(SOURCES + ODD), max_size=12),
    beam=st.integers(1, 6),
    data=st.data(),
    length_penalty=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    batchsize=st.integers(1, 9),
)
def test_all_options_give_the_answers_of_regards_search(
    run: regard.TranslationRun, texts: list[str], beam: int, data: st.DataObject, length_penalty: float, batchsize: int
) -> None:
    n_best = data.draw(st.integers(1, beam))
    check_same(run, texts, beam=beam, n_best=n_best, length_penalty=length_penalty, batchsize=batchsize)


SAME = [
    Controls(prefix="The old"),
    Controls(prefix="The", repetition_penalty=1.5),
    Controls(repetition_penalty=3.0, max_length=9),
    Controls(max_length=3),
    Controls(replace_unknown=True),
]
"""Controls with which CTranslate2 gives the same answers for every beam."""
GREEDY = [
    Controls(min_length=9),
    Controls(no_repeat_ngram=1, min_length=8),
    Controls(no_repeat_ngram=2, min_length=12, prefix="The small small"),
]
"""Controls with which CTranslate2 gives the same answers for greedy search."""


@pytest.mark.parametrize("controls", SAME)
@pytest.mark.parametrize("beam", [1, 2, 5])
def test_controls_give_the_answers_of_regards_search(
    run: regard.TranslationRun, ours: list[int], beam: int, controls: Controls
) -> None:
    texts = SOURCES[:20]
    changed = run.search(texts, beam=beam, controls=controls)
    assert controls.replace_unknown or changed != run.search(texts, beam=beam)
    check_same(run, texts, beam=beam, n_best=min(beam, 2), controls=controls)
    if controls.max_length != 3:  # unfinished answers come from Regard's own search
        assert sum(ours) < len(texts)


def test_each_text_has_its_prefix(run: regard.TranslationRun) -> None:
    prefixes = ["The small dog", "", "The", "The old", ""]
    for beam in (1, 4):
        check_same(run, [*SOURCES[:4], ""], beam=beam, controls=Controls(prefix=prefixes), batchsize=3)


@pytest.mark.parametrize("controls", GREEDY)
def test_greedy_controls_give_the_answers_of_regards_search(
    run: regard.TranslationRun, ours: list[int], controls: Controls
) -> None:
    texts = SOURCES[:20]
    here = run.translate(texts, beam=1, controls=controls)
    assert run.translate(texts, beam=1, controls=controls, engine="ctranslate2") == here
    assert here != run.translate(texts, beam=1) and sum(ours) <= 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"controls": Controls(terms=["dog"])}, "CTranslate2 does not support terms: give --engine regard"),
        ({"controls": Controls(glossary={"Hund": "dog"})}, "CTranslate2 does not support glossary"),
        ({"controls": Controls(min_length=3)}, "min_length 3 with beam 5 ranks answers by other probabilities"),
        ({"controls": Controls(no_repeat_ngram=3), "beam": 1}, "no_repeat_ngram 3 gives scores from other"),
        ({"temperature": 1.0, "top_k": 2}, "temperature 1 samples with Regard's seeds"),
    ],
)
def test_unsupported_options_are_refused_or_use_regards_search(
    run: regard.TranslationRun, options: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=message):
        run.search(SOURCES[:1], engine="ctranslate2", **options)
    assert run.search(SOURCES[:1], engine="auto", **options) == run.search(SOURCES[:1], **options)
    assert "using Regard's own search, because " in capsys.readouterr().err


def test_number_of_pytorchs_threads_is_kept(run: regard.TranslationRun) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert run.engines.choose(Search(), "ctranslate2", "float32") is not None
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_ensemble_is_refused(run: regard.TranslationRun) -> None:
    with pytest.raises(InputError, match="an ensemble of 2 runs is not supported by CTranslate2"):
        run.translate(SOURCES[:1], engine="ctranslate2", ensemble=[run])


def test_usual_options_use_ctranslate2(run: regard.TranslationRun, ours: list[int]) -> None:
    # Regard's own search recomputes answers that reach the length limit of their source.
    for options, most in (({"beam": 1}, 2), ({"beam": 2}, 20), ({}, 80)):
        ours.clear()
        check_same(run, SOURCES[:100], **options)
        assert sum(ours) <= most
    assert run.translate(SOURCES[:50], engine="ctranslate2") == run.translate(SOURCES[:50])


def test_order_is_kept_across_batches(run: regard.TranslationRun) -> None:
    texts = [SOURCES[index * 7 % 11] for index in range(200)]
    assert run.translate(texts, engine="ctranslate2", batchsize=3) == run.translate(texts, batchsize=3)


@pytest.mark.parametrize("beam", [1, 4])
def test_forbidden_tokens_keep_their_probability(run: regard.TranslationRun, ours: list[int], beam: int) -> None:
    """The unknown symbol is never generated, even if it is likelier than a word, and the probability of the
    word does not increase.
    """
    word = run.task.target_vocabulary.symbols.index("▁dog")
    dogs = [source for source in SOURCES if "Hund" in source][:20]
    for likely in (0.9, 1.2):
        model: Any = copy.deepcopy(run.model)
        with torch.no_grad():
            weight = model.vocabulary_layer[0]
            weight[UNKNOWN] = weight[word] * likely
        other = dataclasses.replace(run, model=model)
        [[[before, *_]], [[after, *_]]] = (each.search(dogs[:1], beam=beam) for each in (run, other))
        assert after.log_probability < before.log_probability - 0.1
        check_same(other, dogs, beam=beam)
    assert ours


@pytest.mark.parametrize("beam", [1, 3])
def test_unfinished_answers_have_the_same_limit(
    run: regard.TranslationRun, monkeypatch: pytest.MonkeyPatch, beam: int
) -> None:
    for module in (translation, ctranslate2):
        monkeypatch.setattr(module, "longest_answer", lambda batch, max_len: 4)
    found = run.search(SOURCES[:10], beam=beam, n_best=beam)
    assert not all(each.finished for one in found for each in one)
    check_same(run, SOURCES[:10], beam=beam, n_best=beam)


@pytest.mark.parametrize("beam", [1, 3])
def test_an_answer_may_be_as_long_as_the_longest(
    run: regard.TranslationRun, ours: list[int], monkeypatch: pytest.MonkeyPatch, beam: int
) -> None:
    [[best, *_]] = run.search(SOURCES[:1], beam=beam)
    for module in (translation, ctranslate2):
        monkeypatch.setattr(module, "longest_answer", lambda batch, max_len: len(best.tokens))
    assert run.search(SOURCES[:1], beam=beam)[0][0].finished
    check_same(run, SOURCES[:1], beam=beam)
    assert not ours


def test_dropped_hypothesis_may_be_better(run: regard.TranslationRun) -> None:
    """If two of three finished hypotheses are returned, the third hypothesis is less likely than both, even if
    it is as long as the longest hypothesis, which has the larger length penalty.
    """
    run.translate(SOURCES[:1], engine="ctranslate2")
    there = ctranslate2.CTranslate2Search(run, next((run.folder / "engines").iterdir()), precision="float32", threads=1)
    names = run.task.target_vocabulary.symbols
    hypotheses = [[*names[5:12], "</s>"], [names[5], "</s>"]]
    found = SimpleNamespace(hypotheses=hypotheses, scores=[-3.0, -3.5])
    asked = Search(beam=2, length_penalty=1.0)
    [best] = there._rank(found, asked, 100)
    assert best.tokens == list(range(5, 12)) and best.score == pytest.approx(-3.0 / (13 / 6))
    assert there._rank(found, dataclasses.replace(asked, n_best=2), 100) == []
    assert len(there._rank(found, dataclasses.replace(asked, n_best=2, length_penalty=0.0), 100)) == 2


@pytest.mark.parametrize(
    "options", [{"beam": 2, "length_penalty": -1.0}, {"beam": 2, "n_best": 3}, {"beam": 0}, {"batchsize": 0}]
)
def test_invalid_numbers_are_refused(run: regard.TranslationRun, options: dict[str, Any]) -> None:
    errors = []
    for engine in ("regard", "ctranslate2"):
        with pytest.raises(InputError) as error:
            run.search(["x"], engine=engine, **options)
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_too_long_text_is_refused(run: regard.TranslationRun, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="text 1, .* but at most 1024 are allowed"):
        run.translate(["Hund", "x " * 2000], engine="ctranslate2")


def test_unscored_answers_have_no_probability(run: regard.TranslationRun) -> None:
    [[best]] = run.search(SOURCES[:1], beam=1, engine="ctranslate2", scored=False)
    assert best.log_probability != best.log_probability and best.text == run.translate(SOURCES[:1], beam=1)[0]
