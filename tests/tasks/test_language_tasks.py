"""The oracle of each language task equals a plain loop; its relevance is verified by changing inputs."""

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from hypothesis import given, strategies as st

from regard.errors import InputError
from regard.tasks.batch import IGNORE, BatchContext
from regard.tasks.language_tasks import (
    Dyck,
    DyckTaskConfig,
    Induction,
    InductionTaskConfig,
    Modular,
    ModularTaskConfig,
    Mqar,
    MqarTaskConfig,
    Parity,
    ParityTaskConfig,
    Regression,
    RegressionTaskConfig,
    SelectiveCopy,
    SelectiveCopyTaskConfig,
)
from regard.tasks.tokens import TokenTask
from regard.training.config import TrainingConfig

Tokens = list[str]


def next_after_last_occurrence(tokens: Tokens) -> dict[int, str]:
    last, answers = dict[str, int](), dict[int, str]()
    for position, token in enumerate(tokens):
        if token in last:
            answers[position] = tokens[last[token] + 1]
        last[token] = position
    return answers


def values_of_keys(tokens: Tokens) -> dict[int, str]:
    values, answers = dict[str, str](), dict[int, str]()
    for position, token in enumerate(tokens):
        if token in values:
            answers[position] = values[token]
        elif token[0] == "k" and position + 1 < len(tokens) and tokens[position + 1][0] == "v":
            values[token] = tokens[position + 1]
    return answers


def letters_in_order(tokens: Tokens) -> dict[int, str]:
    separator = tokens.index("|")
    letters = [token for token in tokens[:separator] if token != "."]
    return {separator + number: letter for number, letter in enumerate(letters)}


def parity_of_bits(tokens: Tokens) -> dict[int, str]:
    return {len(tokens) - 1: "1" if tokens.count("1") in range(1, len(tokens), 2) else "0"}


def closing_brackets(tokens: Tokens) -> dict[int, str]:
    closers, pairs = list[str](), {"(": ")", "[": "]", "{": "}"}
    answers = dict[int, str]()
    for position, token in enumerate(tokens):
        if token in pairs:
            closers.append(pairs[token])
        else:
            assert closers.pop() == token
        following = tokens[position + 1 : position + 2]
        if closers and not set(following) & set(pairs):
            answers[position] = closers[-1]
    return answers


CASES: dict[str, tuple[TokenTask, Callable[[Tokens], dict[int, str]]]] = {
    "induction": (Induction(InductionTaskConfig(max_len=13, repeated=5, vocab_size=11)), next_after_last_occurrence),
    "mqar": (Mqar(MqarTaskConfig(max_len=19, pairs=3, vocab_size=10)), values_of_keys),
    "modular": (Modular(ModularTaskConfig(modulus=7)), lambda tokens: {2: str((int(tokens[0]) + int(tokens[1])) % 7)}),
    "selective-copy": (SelectiveCopy(SelectiveCopyTaskConfig(max_len=13, letters=4, vocab_size=5)), letters_in_order),
    "parity": (Parity(ParityTaskConfig(max_len=11, test_len=17)), parity_of_bits),
    "dyck": (Dyck(DyckTaskConfig(max_len=14, test_len=20, vocab_size=3, depth=3)), closing_brackets),
}


@pytest.mark.parametrize("name", CASES)
@given(seed=st.integers(0, 10_000), vary=st.booleans(), unseen=st.booleans())
def test_the_answers_are_those_of_a_plain_loop(name: str, seed: int, vary: bool, unseen: bool) -> None:
    task, oracle = CASES[name]
    generator = torch.Generator().manual_seed(seed)
    inputs, targets, mask = task.sample(5, generator, vary_len=vary, unseen=unseen)
    mask = torch.ones_like(targets, dtype=torch.bool) if mask is None else mask
    for row, target, present in zip(inputs, targets, mask, strict=True):
        tokens = task.labels(row[present])
        assert len(tokens) in task.lengths
        expected = oracle(tokens)
        answers = {step: task.vocabulary[token] for step, token in enumerate(target.tolist()) if token != IGNORE}
        assert answers == expected
        following = {step: tokens[step + 1] for step in answers if step + 1 < len(tokens)}
        if name == "mqar":  # the answers are not inputs: a model could exclude the values of earlier queries
            assert set(following.values()) <= {"."}
        else:
            assert following.items() <= answers.items()
        assert torch.equal(task.parse(task.render(row[present])), row[present][None])


def changed_inputs(task: TokenTask, tokens: list[int], position: int) -> list[list[int]]:
    """Return valid inputs in which one token is replaced: letters by letters, and nested brackets in pairs."""
    if isinstance(task, Dyck):
        depth, opener, closer = 0, position, -1
        if tokens[position] >= task.kinds:
            return []  # changed with the bracket that it closes
        for step in range(position, len(tokens)):
            depth += 1 if tokens[step] < task.kinds else -1
            if depth == 0:
                closer = step
                break
        changes = []
        for kind in set(range(task.kinds)) - {tokens[position]}:
            row = list(tokens)
            row[opener] = kind
            if closer >= 0:
                row[closer] = task.kinds + kind
            changes.append(row)
        return changes
    choices = set(range(len(task.vocabulary))) - {tokens[position]}
    if isinstance(task, SelectiveCopy):
        choices = choices - {0, 1} if tokens[position] > 1 else set()
    if isinstance(task, Modular | Parity):
        choices = choices - {len(task.vocabulary) - 1} if tokens[position] < len(task.vocabulary) - 1 else set()
    return [[*tokens[:position], token, *tokens[position + 1 :]] for token in choices]


@pytest.mark.parametrize("name", CASES)
@given(seed=st.integers(0, 10_000))
def test_relevant_inputs_change_the_answer_and_others_do_not(name: str, seed: int) -> None:
    task, _ = CASES[name]
    batch = task.sample(1, torch.Generator().manual_seed(seed))
    inputs = batch.inputs if batch.mask is None else batch.inputs[batch.mask][None]
    tokens, answers, relevance = inputs[0].tolist(), task.answer(inputs)[0], task.relevance(inputs)[0]
    assert torch.equal(relevance.any(1), answers != IGNORE)
    last = int((answers != IGNORE).nonzero().max())
    # A prefix: the last answer is then the answer at the end, and later tokens cannot matter.
    prefix, answer = tokens[: last + 1], int(answers[last])
    assert int(task.answer(torch.tensor([prefix]))[0, -1]) == answer
    assert not relevance[last, last + 1 :].any()
    for position in range(len(prefix)):
        changes = changed_inputs(task, prefix, position)
        if not relevance[last, position] and isinstance(task, Induction | Mqar):
            # Another occurrence of the current token would be the one to look for.
            changes = [row for row in changes if row[position] != prefix[-1]]
        results = {int(task.answer(torch.tensor([row]))[0, -1]) for row in changes}
        if relevance[last, position]:
            assert results - {answer}
        else:
            assert results <= {answer}


def test_worked_examples() -> None:
    induction = Induction(InductionTaskConfig(max_len=8, repeated=3, vocab_size=6))
    inputs = induction.parse("CADBFEDB")
    assert induction.answer(inputs)[0, -2:].tolist() == induction.parse("BF")[0].tolist()
    assert induction.relevance(inputs)[0, -1].nonzero().flatten().tolist() == [3, 4, 7]
    mqar = Mqar()
    inputs = mqar.parse("k3 v5 k1 v2 . . k1 . k3")
    assert mqar.render(mqar.answer(inputs)[0][[6, 8]]) == "v2 v5"
    assert mqar.relevance(inputs)[0, 8].nonzero().flatten().tolist() == [0, 1, 8]
    copy = SelectiveCopy()
    assert copy.render(copy.answer(copy.parse("..C.A..B|CA"))[0, -3:]) == "CAB"
    dyck = Dyck()
    assert dyck.render(dyck.answer(dyck.parse("([]"))[0, [1, 2]]) == "])"
    modular = Modular()
    assert modular.answer(modular.parse("5 57 ="))[0].tolist() == [IGNORE, IGNORE, 3]
    parity = Parity()
    assert parity.answer(parity.parse("01101="))[0].tolist() == [IGNORE] * 5 + [1]


@given(seed=st.integers(0, 1000))
def test_induction_repeats_once_from_anywhere(seed: int) -> None:
    task = Induction(InductionTaskConfig(max_len=12, repeated=4, vocab_size=9))
    rows = task.sample(200, torch.Generator().manual_seed(seed)).inputs.tolist()
    begins = set[int]()
    for row in rows:
        assert len(set(row[:8])) == 8
        begin = row.index(row[8])
        assert row[8:] == row[begin : begin + 4]
        begins.add(begin)
    assert begins == set(range(5))


def test_mqar_queries_each_key_once_and_soon(generator: torch.Generator) -> None:
    task = Mqar(MqarTaskConfig(max_len=64, pairs=4, vocab_size=40))
    inputs, targets, _ = task.sample(2000, generator)
    is_output = targets != IGNORE
    assert (is_output.sum(1) == 4).all()
    # The slots' probabilities without replacement: the first slot is drawn more often than any other.
    counts = is_output.sum(0)[8::2]
    assert counts.argmax() == 0 and counts[0] > 4 * counts[-1]
    assert (is_output.sum(0)[9::2] == 0).all()
    queried = inputs[is_output].view(-1, 4).sort(1).values
    assert torch.equal(queried, inputs[:, :8:2].sort(1).values)


def test_held_out_pairs_are_never_trained_on() -> None:
    task = Modular(ModularTaskConfig(modulus=59))
    train, held_out = ({tuple(pair) for pair in part.tolist()} for part in task.pairs)
    assert len(train) == round(0.3 * 59**2) and len(train) + len(held_out) == 59**2
    assert not train & held_out
    generator = torch.Generator().manual_seed(3)
    assert {tuple(row[:2]) for row in task.sample(5000, generator).inputs.tolist()} <= train
    assert {tuple(row[:2]) for row in task.sample(5000, generator, unseen=True).inputs.tolist()} <= held_out
    # The same split on every machine, so that runs can be compared.
    assert sorted(train)[:3] == [(0, 2), (0, 5), (0, 6)]


def test_a_large_batch_has_every_training_pair_once() -> None:
    task = Modular(ModularTaskConfig(modulus=11))
    context = BatchContext(generator=torch.Generator())

    def rows(size: int, step: int) -> list[tuple[int, ...]]:
        settings = Settings(size)
        inputs = task.batches(settings, context).draw(step).inputs
        return [tuple(row[:2]) for row in inputs.tolist()]

    train = sorted(tuple(pair) for pair in task.pairs[0].tolist())
    assert sorted(rows(1000, 0)) == train
    small = rows(10, 0)
    assert len(set(small)) == 10 and set(small) < set(train) and small != rows(10, 1) and small == rows(10, 0)


class Settings(TrainingConfig):
    """Settings that include a batch size."""

    def __init__(self, batchsize: int) -> None:
        object.__setattr__(self, "seed", 0)
        object.__setattr__(self, "batchsize", batchsize)


@pytest.mark.parametrize(("task", "longest"), [(Parity(), 101), (Dyck(), 100)], ids=["parity", "dyck"])
def test_longer_samples_test_generalisation(task: TokenTask, longest: int, generator: torch.Generator) -> None:
    trained = task.sample(500, generator)
    assert trained.mask is not None
    assert set(trained.mask.sum(1).tolist()) == set(task.lengths)
    assert task.longest == longest > task.lengths[-1]
    longer = task.sample(3, generator, sample_len=longest)
    assert longer.inputs.shape == (3, longest) and longer.mask is None


def test_dyck_words_are_balanced_and_bounded(generator: torch.Generator) -> None:
    task = Dyck(DyckTaskConfig(max_len=30, test_len=30, vocab_size=2, depth=3))
    deepest = 0
    for row in task.sample(300, generator, sample_len=30).inputs.tolist():
        depth = 0
        for token in row:
            depth += 1 if token < 2 else -1
            assert 0 <= depth <= 3
            deepest = max(deepest, depth)
        assert depth == 0
    assert deepest == 3


def test_regression_answers_are_those_of_exact_least_squares() -> None:
    """Two points determine a function of two numbers; one point gives the weights of the smallest norm."""
    task = Regression(RegressionTaskConfig(dims=2, points=3))
    inputs = task.parse("1,2=5; 3,1=5; 2,-1")
    answers = task.answer(inputs)[0].tolist()
    assert answers[0] == 0 and all(math.isnan(answers[step]) for step in (1, 3))
    # Smallest norm for w . (1, 2) = 5: w = 5 (1, 2) / 5 = (1, 2), so w . (3, 1) = 5.
    assert answers[2] == pytest.approx(5)
    a, b, c, d = map(Fraction, (1, 2, 3, 1))
    determinant = a * d - b * c
    w = ((5 * d - 5 * b) / determinant, (5 * a - 5 * c) / determinant)
    assert answers[4] == pytest.approx(float(2 * w[0] - w[1]))


@given(seed=st.integers(0, 1000))
def test_regression_targets_are_the_function_and_depend_on_earlier_points(seed: int) -> None:
    task = Regression(RegressionTaskConfig(dims=3, points=5))
    inputs, targets, _ = task.sample(2, torch.Generator().manual_seed(seed))
    torch.testing.assert_close(targets[:, ::2], inputs[:, 1::2, 0])
    assert targets[:, 1::2].isnan().all() and (inputs[:, 1::2, 1:] == 0).all()
    answers, relevance = task.answer(inputs), task.relevance(inputs)
    # Four points or more determine a function of three numbers, whatever noise single precision adds.
    torch.testing.assert_close(answers[:, 8], targets[:, 8], atol=1e-3, rtol=1e-2)
    assert torch.equal(relevance.any(2), ~answers.isnan())
    for position in range(10):
        changed = inputs.clone()
        changed[:, position, 0] += 1.5
        same = (task.answer(changed) == answers).all(0)
        for step in range(0, 10, 2):
            # Before the first point, every prediction is 0.
            if not relevance[0, step, position]:
                assert same[step]
            elif step:
                assert not same[step]


def test_regression_reads_and_writes_points() -> None:
    task = Regression(RegressionTaskConfig(dims=2, points=3))
    text = "0.5,1=2; 1,0=-1; 0.5,0"
    inputs = task.parse(text)
    assert inputs.tolist() == [[[0.5, 1.0], [2.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.5, 0.0]]]
    assert task.render(inputs[0]) == text and task.labels(inputs[0]) == ["x1", "y1", "x2", "y2", "x3"]


@pytest.mark.parametrize("text", ["", "1,2,3=4", "1,2; 3,4=5", "1,x=3", "1,2=", "nan,1=2", "1,2=inf"])
def test_other_points_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="does not fit: regression takes 1 to 3 points of 2 numbers"):
        Regression(RegressionTaskConfig(dims=2, points=3)).parse(text)
    with pytest.raises(InputError, match="has 4 points"):
        Regression(RegressionTaskConfig(dims=2, points=3)).parse("1,2=3; 1,2=3; 1,2=3; 1,2")


def test_bad_inputs_are_refused(generator: torch.Generator) -> None:
    with pytest.raises(InputError, match=r"bracket '\)' at position 2 of '\(\[\)' does not close the innermost"):
        Dyck().parse("([)")
    with pytest.raises(InputError, match="sample_len 7 does not fit: dyck takes 2 to 100 tokens in steps of 2"):
        Dyck().sample(1, generator, sample_len=7)
    with pytest.raises(InputError, match="sample_len 102 does not fit: parity takes 2 to 101 tokens"):
        Parity().sample(1, generator, sample_len=102)
    with pytest.raises(InputError, match="token 'k65' at position 0 is not in the vocabulary"):
        Mqar().parse("k65 v1")
