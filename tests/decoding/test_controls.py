"""Constrained searches agree with an exhaustive search over all targets that satisfy the constraints."""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

from regard.data.batch import collate
from regard.data.subwords import train_subwords
from regard.data.vocabulary import BOS, EOS, UNKNOWN, CharacterVocabulary
from regard.decoding.controls import Controls, Requirement, encode_constraint, find_requirements, make_constraints
from regard.decoding.search import Hypothesis, beam_search
from regard.decoding.translation import Search, search_batch, translate
from regard.errors import InputError
from tests.decoding.test_search import LETTERS, LONGEST, every_target, make, make_transformer

WIDE = 400  # Width of a beam that holds all targets of up to `LONGEST` tokens
SOURCE = [4, 5, 6]
Tokens = Sequence[int]


def contains(target: Tokens, term: Tokens) -> bool:
    return any(list(target[begin : begin + len(term)]) == list(term) for begin in range(len(target)))


def repeats(target: Tokens, size: int) -> bool:
    ngrams = [tuple(target[begin : begin + size]) for begin in range(len(target) - size + 1)]
    return len(set(ngrams)) < len(ngrams)


def search(
    model: Any,
    sources: Sequence[Tokens],
    controls: Controls,
    targets: Sequence[tuple[Tokens, Sequence[Tokens]]] | None = None,
    **options: Any,
) -> list[list[Hypothesis]]:
    """Search under constraints; `targets`: the prefix and the terms of each source."""
    known = [
        Requirement(list(prefix), [list(term) for term in terms], controls.max_length or LONGEST)
        for prefix, terms in targets or [((), ())] * len(sources)
    ]
    return search_batch(
        model,
        collate([list(source) for source in sources]),
        Search(**options),
        most=[target.limit for target in known],
        seeds=range(len(sources)),
        constraints=make_constraints(controls, known),
    )


@pytest.mark.parametrize(
    ("controls", "prefix", "terms", "is_allowed"),
    [
        (Controls(), (5, 4), (), lambda target: target[:2] == [5, 4]),
        (Controls(min_length=3), (), (), lambda target: len(target) >= 3),
        (Controls(max_length=2), (), (), lambda target: len(target) <= 2),
        (Controls(no_repeat_ngram=1), (), (), lambda target: not repeats(target, 1)),
        (Controls(no_repeat_ngram=2), (), (), lambda target: not repeats(target, 2)),
        (Controls(), (), [(5,)], lambda target: contains(target, [5])),
        (Controls(), (), [(6, 5)], lambda target: contains(target, [6, 5])),
        (Controls(), (), [(4, 5), (5, 6)], lambda target: contains(target, [4, 5]) and contains(target, [5, 6])),
        (Controls(), (), [(4, 4, 6), (4,)], lambda target: contains(target, [4, 4, 6])),
        (
            Controls(min_length=2, no_repeat_ngram=2),
            (6,),
            [(4,)],
            lambda target: target[:1] == [6] and 4 in target and not repeats(target, 2),
        ),
    ],
    ids=["prefix", "min", "max", "unigram", "bigram", "term", "pair", "overlap", "restart", "all"],
)
@pytest.mark.parametrize(("make_model", "alpha"), [(make, 0.0), (make_transformer, 1.0)])
def test_wide_beam_finds_the_best_allowed_targets(
    make_model: Callable[[int], Any],
    alpha: float,
    controls: Controls,
    prefix: Tokens,
    terms: Sequence[Tokens],
    is_allowed: Callable[[list[int]], bool],
) -> None:
    model = make_model(2)
    expected = [pair for pair in every_target(model, collate([SOURCE]), alpha) if is_allowed(pair[1])][:5]
    options = {"beam": WIDE, "n_best": len(expected), "length_penalty": alpha}
    [found] = search(model, [SOURCE], controls, [(prefix, terms)], **options)
    assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in expected]
    for hypothesis, (score, _) in zip(found, expected, strict=True):
        assert hypothesis.finished and hypothesis.score == pytest.approx(score, abs=1e-9)


@pytest.mark.parametrize("terms", [[(5,)], [(6, 5)], [(4, 5), (5, 6)], []], ids=["term", "pair", "overlap", "none"])
@pytest.mark.parametrize("width", [5, 40, 200, WIDE])
@pytest.mark.parametrize("seed", range(3))
def test_finished_answers_leave_wide_beams(width: int, seed: int, terms: Sequence[Tokens]) -> None:
    """All answers of a beam that holds every target are different, and none goes on after its end."""
    model = make(seed)
    [answers] = search(model, [SOURCE], Controls(), [((), terms)], beam=width, n_best=width)
    texts = [tuple(answer.tokens) for answer in answers]
    assert len(set(texts)) == len(texts) and not any(EOS in text for text in texts)
    allowed = [
        tokens for _, tokens in every_target(model, collate([SOURCE])) if all(contains(tokens, term) for term in terms)
    ]
    finished = [answer.tokens for answer in answers if answer.finished]
    assert width < WIDE or sorted(finished) == sorted(allowed)
    assert all(tokens in allowed for tokens in finished)


@torch.no_grad()
def penalized(model: Any, target: Tokens, penalty: float) -> float:
    """Return the log-probability of a target under a repetition penalty, one step after the other."""
    source, total = collate([SOURCE]), 0.0
    for time, token in enumerate([*target, EOS]):
        logits = model(source, source != 0, torch.tensor([[BOS, *target[:time]]]))[0, -1].tolist()
        for used in set(target[:time]):
            logits[used] = logits[used] / penalty if logits[used] > 0 else logits[used] * penalty
        total += logits[token] - math.log(sum(map(math.exp, logits)))
    return total


def test_wide_beam_finds_the_best_targets_under_a_repetition_penalty() -> None:
    model = make(3)
    targets = [tokens for _, tokens in every_target(model, collate([SOURCE]))]
    expected = sorted(((penalized(model, tokens, 2.0), tokens) for tokens in targets), reverse=True)[:20]
    assert [tokens for _, tokens in expected] != targets[:20]
    [found] = search(model, [SOURCE], Controls(repetition_penalty=2.0), beam=WIDE, n_best=20)
    assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in expected]
    assert found[0].log_probability == pytest.approx(expected[0][0], abs=1e-9)


tokens = st.lists(st.sampled_from(LETTERS), min_size=1, max_size=2)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    sources=st.lists(
        st.tuples(
            st.lists(st.sampled_from(LETTERS), max_size=5),
            st.lists(st.sampled_from(LETTERS), max_size=2),
            st.lists(tokens, max_size=2),
        ),
        min_size=2,
        max_size=5,
    ),
    beam=st.integers(1, 4),
    controls=st.sampled_from(
        [
            Controls(max_length=9),
            Controls(max_length=9, min_length=5),
            Controls(max_length=9, repetition_penalty=1.5),
            Controls(max_length=9, no_repeat_ngram=4),
            Controls(max_length=9, replace_unknown=True),
        ]
    ),
    temperature=st.sampled_from([0.0, 1.0]),
    recurrent=st.booleans(),
)
def test_answer_does_not_depend_on_the_batch(
    seed: int,
    sources: list[tuple[list[int], list[int], list[list[int]]]],
    beam: int,
    controls: Controls,
    temperature: float,
    recurrent: bool,
) -> None:
    """Nor on the order of its lines; and all prefixes, terms and lengths are respected, also by a narrow beam."""
    model = make(seed) if recurrent else make_transformer(seed)
    options: dict[str, Any] = {"temperature": 1.0} if temperature else {"beam": beam}
    known = [(prefix, terms if beam > 1 and not temperature else []) for _, prefix, terms in sources]
    texts = [source for source, _, _ in sources]
    together = search(model, texts, controls, known, **options)
    # Sampling has one seed per place of the batch, so only searches are compared alone.
    turned = together if temperature else search(model, texts[::-1], controls, known[::-1], **options)[::-1]
    for index, (source, (prefix, terms)) in enumerate(zip(texts, known, strict=True)):
        answers = [hypotheses[index][0].tokens for hypotheses in (together, turned)]
        if not temperature:
            answers.append(search(model, [source], controls, [(prefix, terms)], **options)[0][0].tokens)
        assert all(answer == answers[0] for answer in answers)
        assert answers[0][: len(prefix)] == prefix and controls.min_length <= len(answers[0]) <= 9
        if not controls.no_repeat_ngram:
            assert all(contains(answers[0], term) for term in terms)


def test_terms_change_only_the_sources_that_have_terms() -> None:
    model, sources = make_transformer(1), [[4, 5], [6, 4, 4], [5]]
    source = collate(sources)
    plain = beam_search(model, source, source != 0, width=3, max_len=9, n_best=3)
    targets = [((), [(6, 6, 4)]), ((), ()), ((), ())]
    found = search(model, sources, Controls(max_length=9), targets, beam=3, n_best=3)
    assert plain[1:] == found[1:] and plain[0] != found[0]


@pytest.mark.parametrize("beam", [2, 3, 5])
def test_many_terms_fit_into_a_narrow_beam(beam: int) -> None:
    terms = [(4, 6), (6, 5), (5, 4, 4), (6, 6)]
    for seed in range(8):
        [[best]] = search(make(seed), [SOURCE], Controls(max_length=12), [((), terms)], beam=beam)
        assert all(contains(best.tokens, term) for term in terms)


def test_unknown_symbol_occurs_only_if_it_is_replaced() -> None:
    model = make(0)
    with torch.no_grad():
        model.output.bias[UNKNOWN] = 1e4
    for beam in (1, 3):
        [[plain]] = search(model, [SOURCE], Controls(), beam=beam)
        [[unknown]] = search(model, [SOURCE], Controls(replace_unknown=True), beam=beam)
        assert UNKNOWN not in plain.tokens and set(unknown.tokens) == {UNKNOWN}


def test_constraints_that_exclude_each_other_are_an_error() -> None:
    for options in ({"beam": 1}, {"beam": 3}, {"temperature": 1.0}):
        with pytest.raises(InputError, match="no target satisfies all constraints of the search"):
            search(make(0), [SOURCE], Controls(min_length=4, no_repeat_ngram=1), **options)


def text_search(search: Search, texts: Sequence[str] = ("ab", "c"), **options: Any) -> list[str]:
    source, target = CharacterVocabulary("abc"), CharacterVocabulary("xyz")
    models = options.pop("models", make(0))
    found = translate(models, source, target, texts, search, max_len=20, **options)
    return [best.text for best, *_ in found]


def test_prefixes_and_glossary_terms_are_texts() -> None:
    controls = Controls(prefix=["xz", ""], glossary={"c": "yyx", "b": "zz"})
    first, second = text_search(Search(beam=3, controls=controls))
    assert first.startswith("xz") and "yyx" not in first  # "b" is not a whole word of "ab"
    assert "yyx" in second
    [answer] = text_search(Search(beam=3, controls=Controls(glossary={"a": "xxx", "a b": "zyz"})), ["a b"])
    assert "zyz" in answer and "xxx" not in answer  # the longest term counts


@given(st.dictionaries(st.text("ab é-", min_size=1, max_size=5), st.just("x"), min_size=1), st.text("ab é-"))
def test_glossary_terms_are_those_of_a_pattern_of_all_terms(terms: dict[str, str], text: str) -> None:
    glossary = {term.strip(): f"{term} translated" for term in terms if term.strip()}
    longest_first = sorted(glossary, key=len, reverse=True)
    pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")
    matches = pattern.finditer(text) if glossary else ()
    expected = [(match.span(), glossary[match.group()]) for match in matches]
    assert Controls(glossary=glossary).translations(text) == expected


@pytest.mark.parametrize(
    ("text", "term", "begins"),
    [
        ("我看见狗在跑", "狗", [3]), ("หมากินข้าว", "กิน", [3]), ("iPhoneを買う", "iPhone", [0]),
        ("あ狗い狗う", "狗", [1, 3]), ("ឆ្កែស៊ីត្រី", "ស៊ី", [4]), ("doghouse", "dog", []),
        ("ཁྱི་མེ་ཏོག་ཉོ་", "མེ་ཏོག་", [4]),
        ("कुत्ता", "ता", []), ("घर कुत्ता", "कुत्ता", [3]),
    ],
)  # fmt: skip
def test_glossary_terms_in_scripts_without_spaces(text: str, term: str, begins: list[int]) -> None:
    found = Controls(glossary={term: "x"}).translations(text)
    assert [span for span, _ in found] == [(begin, begin + len(term)) for begin in begins]


def test_terms_without_spaces_stand_within_the_text() -> None:
    vocabulary = train_subwords(["我看见狗在跑", "狗在跑", "狗"] * 100, kind="bpe", size=60)
    term = encode_constraint("term", "狗", vocabulary)
    assert term == vocabulary.encode("我狗")[-1:] != vocabulary.encode("狗")
    controls = Controls(terms=["狗"])
    for text in ("我看见狗在跑", "狗在跑"):  # with and without the space that begins the first token
        assert not controls.missing("", vocabulary.encode(text), vocabulary)
    assert controls.missing("", vocabulary.encode("在跑"), vocabulary) == ["狗"]


def test_default_limit_grows_by_the_length_of_the_constraints() -> None:
    model = make(0)
    with torch.no_grad():
        model.output.bias[EOS] = -1e4
    [plain] = text_search(Search(), ["a"], models=model)
    assert len(plain) == 20  # the largest length of the model
    [target] = find_requirements(Controls(prefix="xyz"), ["a"], [5], CharacterVocabulary("xyz"), 20)
    assert target == Requirement([4, 5, 6], [], 8)
    [target] = find_requirements(Controls(prefix="xyz", max_length=6), ["a"], [5], CharacterVocabulary("xyz"), 20)
    assert target.limit == 6


@pytest.mark.parametrize(
    ("controls", "message"),
    [
        ({"prefix": ["x"]}, "1 prefixes for 2 texts: give one prefix for each text"),
        ({"prefix": "xyz", "max_length": 2}, "the constraints of text 'ab' need 3 tokens, but .* at most 2"),
        ({"min_length": 21}, "the constraints of text 'ab' need 21 tokens, but an answer has at most 20"),
        ({"terms": ["xyz", "zz"], "max_length": 4}, "need 5 tokens, but an answer has at most 4"),
    ],
)
def test_controls_that_do_not_fit_the_texts_are_refused(controls: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        text_search(Search(beam=2, controls=Controls(**controls)))


def test_ensemble_of_equal_models_is_the_model_and_means_probabilities() -> None:
    first, second, vocabulary = make(1), make(2), CharacterVocabulary("abc")
    alone = translate(first, vocabulary, vocabulary, ["ab"], Search(beam=4), max_len=9)
    twice = translate([first, first], vocabulary, vocabulary, ["ab"], Search(beam=4), max_len=9)
    assert [best.tokens for best in alone[0]] == [best.tokens for best in twice[0]]
    assert alone[0][0].log_probability == pytest.approx(twice[0][0].log_probability, abs=1e-9)
    [[both]] = translate([first, second], vocabulary, vocabulary, ["ab"], Search(), max_len=9)
    source, total = collate([[4, 5]]), 0.0
    with torch.no_grad():
        for time, token in enumerate([*both.tokens, *([EOS] if both.finished else [])]):
            inputs = source, source != 0, torch.tensor([[BOS, *both.tokens[:time]]])
            mean = sum(model(*inputs)[0, -1].softmax(-1) for model in (first, second)) / 2
            total += math.log(mean[token])
            mean[[0, BOS, UNKNOWN]] = 0
            assert int(mean.argmax()) == token
    assert both.log_probability == pytest.approx(total, abs=1e-9)
