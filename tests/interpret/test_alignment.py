"""Alignment error rates against known alignments."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from regard import record
from regard.attention.layer import Attention
from regard.data.word_alignment import Link, WordAlignment
from regard.errors import InputError
from regard.interpret.alignment import (
    AligningHeads,
    Head,
    agreement,
    alignment,
    alignment_error_rate,
    choose_heads,
    combine_heads,
    error_rate,
    extract_links,
    relevance_share,
)
from regard.models.base import AnswerModel
from regard.models.query import QueryModel, QueryModelConfig
from regard.tasks.base import Task
from regard.tasks.batch import Batch
from regard.tasks.counting import Counting


def test_a_worked_example() -> None:
    """The four target steps are a sure hit, a sure miss, a possible hit, and a step of unknown origin."""
    known = torch.tensor([[[1, 0, 0], [0, 1, 0], [0, 1, 1], [0, 0, 0]]], dtype=torch.bool)
    weights = torch.tensor([[[0.6, 0.3, 0.1], [0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [0.9, 0.1, 0.0]]])
    # |A| = 3, |S| = 2; A and S: 1; A and P: 2.
    assert error_rate(weights, known) == pytest.approx(1 - (1 + 2) / (3 + 2))


def test_limits_of_the_error_rate() -> None:
    known = torch.eye(3, dtype=torch.bool)[None]
    assert error_rate(torch.eye(3)[None], known) == 0.0
    assert error_rate(torch.eye(3)[None].roll(1, 2), known) == 1.0
    assert math.isnan(error_rate(torch.eye(3)[None], torch.zeros_like(known)))


def test_alignment_of_a_model_matches_a_loop(translator: regard.PairRun) -> None:
    generator = torch.Generator().manual_seed(0)
    pairs = translator.task.pairs(30, generator)
    result = alignment(translator.model, translator.task, [pairs[:7], pairs[7:]])["decoder.cross"]
    hits = sure_hits = links = sure = 0
    share, uniform = [], []
    for pair in pairs:
        batch = translator.task.batch([pair])
        with torch.inference_mode(), record(translator.model) as records:
            translator.model(batch.source, batch.source_mask, batch.target_in)
        weights = records["decoder.cross"].weights[0, 0]
        for step, positions in enumerate(pair.alignment):
            if not positions:
                continue
            best = int(weights[step].argmax())
            links += 1
            hits += best in positions
            sure += len(positions) == 1
            sure_hits += len(positions) == 1 and best in positions
            share.append(float(weights[step, list(positions)].sum()))
            uniform.append(len(positions) / (len(pair.source) + 1))
    assert result.error_rate == pytest.approx(1 - (hits + sure_hits) / (links + sure), abs=1e-6)
    assert result.share == pytest.approx(sum(share) / len(share), abs=1e-5)
    assert result.uniform == pytest.approx(sum(uniform) / len(uniform), abs=1e-6)


def test_a_model_without_attention_has_no_alignment(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("models")
    run = regard.train("copy", score="none", hidden=4, steps=1, savepath=folder, progress=False)
    assert isinstance(run, regard.PairRun)
    report = run.test(samples=5)
    assert report.alignments == {} and "alignment" not in str(report)


# Head selection with planted heads that are known to align, and agreement with reference links by hand.


HEADS: list[Head] = [("decoder.layers.0.cross", 0), ("decoder.layers.0.cross", 1), ("decoder.layers.1.cross", 0)]
RANDOM = np.random.default_rng(0)


def make_pairs(count: int, *, right: dict[tuple[int, int], float]) -> tuple[list[np.ndarray], list[WordAlignment]]:
    """Return random weights (2, C, 4, 5) of `count` pairs, and their known links.

    `right`: by (shift, head), the fraction of steps in which the largest weight is on the known word.
    """
    weights, known = [], []
    for _ in range(count):
        array = RANDOM.random((2, len(HEADS), 4, 5)).astype(np.float32)
        order = RANDOM.permutation(4)
        for place, share in right.items():
            for target, source in enumerate(order):
                if RANDOM.random() < share:
                    array[place][target, source] = 2
        weights.append(array)
        known.append(WordAlignment.of([(int(source), target) for target, source in enumerate(order)]))
    return weights, known


@pytest.mark.parametrize("place", [(0, 1), (1, 2)])
def test_selects_the_aligning_head_and_its_step(place: tuple[int, int]) -> None:
    weights, known = make_pairs(60, right={place: 1.0})
    choice = choose_heads(weights, HEADS, known, against="all")
    assert choice.ways["head"].heads == (HEADS[place[1]],)
    assert choice.ways["head"].shifted == bool(place[0])
    best = choice.found["best head"].error_rate
    assert choice.best == "head" and best is not None and best.mean == 0
    assert choice.error_rates[place] == 0
    assert (choice.chosen_on, choice.reported_on) == (30, 30)
    assert choice.writing.shifted is False and choice.ways["all"].name == f"mean of {len(choice.heads)} heads"
    assert choice.ways["head"].name in str(choice.ways["head"])


def test_selects_a_set_of_complementary_heads() -> None:
    """Each of two heads has its largest weight on the correct word in a different 60 % of the steps."""
    weights, known = make_pairs(80, right={(0, 0): 0.6, (0, 2): 0.6})
    choice = choose_heads(weights, HEADS, known, against="all")
    assert choice.best == "set"
    assert set(choice.ways["set"].heads) == {HEADS[0], HEADS[2]}
    alone, together = (choice.found[name].error_rate for name in ("best head", "set of heads"))
    assert alone is not None and together is not None and together.mean < alone.mean
    assert "set of heads" in str(choice)


def test_reports_on_pairs_outside_the_selection() -> None:
    """For random links, the best set on the pairs of the selection is not better than chance on the other pairs."""
    weights, known = make_pairs(400, right={})
    found = choose_heads(weights, HEADS, known, against="all").found["set of heads"].error_rate
    assert found is not None and found.mean > 0.7
    diagonal = [WordAlignment.of([(word, word) for word in range(array.shape[2])]) for array in weights]
    assert "than equal positions: check" in str(choose_heads(weights, HEADS, diagonal, against="all"))


def test_reports_other_aligners_on_the_same_pairs() -> None:
    weights, known = make_pairs(40, right={(0, 0): 1.0})
    reported: list[int] = []

    def beside(numbers: Sequence[int], chosen: AligningHeads) -> dict[str, Sequence[frozenset[Link]]]:
        reported.extend(numbers)
        assert chosen.heads == (HEADS[0],)
        return {"gold": [known[number].sure for number in numbers]}

    choice = choose_heads(weights, HEADS, known, against="all", beside=beside)
    assert len(reported) == choice.reported_on == 20
    gold = choice.found["gold"].error_rate
    assert gold is not None and gold.mean == 0


def test_refuses_too_few_pairs() -> None:
    weights, known = make_pairs(19, right={})
    with pytest.raises(InputError, match=r"too few pairs to choose heads \(19\): give at least 20"):
        choose_heads(weights, HEADS, known, against="all")


def test_the_end_of_the_source_gives_no_link() -> None:
    assert extract_links(np.array([[0.2, 0.1, 0.7], [0.5, 0.4, 0.1]])) == {(0, 1)}
    assert extract_links(np.zeros((0, 3))) == extract_links(np.zeros((2, 3))) == frozenset()
    weights, known = make_pairs(20, right={})
    all_heads = choose_heads(weights, HEADS, known, against="x").ways["all"]
    assert combine_heads(np.ones((2, 3, 4, 5)), HEADS, all_heads).shape == (4, 5)


def test_rates_match_a_worked_example() -> None:
    """Och and Ney 2003, equations 11 to 13."""
    known = [WordAlignment.of([(0, 0), (1, 1)], [(2, 2)]), WordAlignment.of([(0, 0)])]
    predicted = [frozenset({(0, 0), (2, 2), (3, 3)}), frozenset({(0, 0)})]
    rates = agreement(predicted, known)
    # The sums are 4 predicted, 3 sure, 2 predicted sure and 3 predicted possible links.
    assert rates.error_rate is not None and rates.error_rate.mean == pytest.approx(1 - (2 + 3) / (4 + 3))
    assert rates.precision is not None and rates.precision.mean == pytest.approx(3 / 4)
    assert rates.recall is not None and rates.recall.mean == pytest.approx(2 / 3)
    for rate in (rates.error_rate, rates.precision, rates.recall):
        assert rate.low <= rate.mean <= rate.high


def test_error_rate_is_0_for_equal_links_and_1_for_disjoint_links() -> None:
    known = [WordAlignment.of([(0, 0), (1, 1)])] * 3
    same = agreement([links.sure for links in known], known)
    apart = agreement([frozenset({(0, 1)})] * 3, known)
    assert same.error_rate is not None and (same.error_rate.mean, same.error_rate.low) == (0, 0)
    assert apart.error_rate is not None and (apart.error_rate.mean, apart.error_rate.high) == (1, 1)
    # Three pairs without an error do not show that the rate is 0: exact for three trials.
    assert same.error_rate.high == pytest.approx(1 - 0.025 ** (1 / 3))


def test_without_any_links() -> None:
    nothing = agreement([frozenset()] * 3, [WordAlignment.of([])] * 3)
    assert (nothing.error_rate, nothing.precision, nothing.recall) == (None, None, None)
    assert alignment_error_rate(np.zeros((2, 4), dtype=int)).tolist() == [1, 1]


# Relevance equals values computed by hand, also for uniform attention.


class Fixed(AnswerModel):
    """A model whose cross-attention has fixed weights, because the scores are their logarithms."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.cross, self.weights = Attention(), weights
        self.cross_layers = ("cross",)

    def forward(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        keys = self.weights.log().transpose(1, 2) * self.weights.shape[1] ** 0.5
        queries = torch.eye(self.weights.shape[1]).expand(len(inputs), -1, -1)
        return self.cross(queries, keys, keys, mask)


def batch_of(task: Task, text: str, mask: Tensor | None = None) -> Batch:
    inputs = task.parse(text)
    return Batch(inputs, task.answer(inputs), mask)


def test_the_relevance_of_a_worked_example() -> None:
    # "AAB_": The weights of A on its two letters are 0.5 and 0.2, the weight of B on its letter is 0.4, and C
    # does not occur.
    weights = torch.tensor([[[0.5, 0.2, 0.2, 0.1], [0.2, 0.2, 0.4, 0.2], [0.25, 0.25, 0.25, 0.25]]])
    task = Counting()
    share = relevance_share(Fixed(weights), task, [batch_of(task, "AAB_")])
    assert share.heads == [pytest.approx((0.7 + 0.4) / 2)]
    assert share.uniform == pytest.approx((2 / 4 + 1 / 4) / 2)


def test_uniform_attention_has_the_uniform_share(generator: torch.Generator) -> None:
    task = Counting()
    model = QueryModel(QueryModelConfig(hidden=8), letters=4, input_len=10, outputs=3, classes=11)
    with torch.no_grad():
        model.queries.zero_()  # all scores are 0
    for vary_len in (False, True):
        share = relevance_share(model, task, [task.sample(100, generator, vary_len=vary_len)])
        assert share.heads == [pytest.approx(share.uniform, abs=1e-6)]


def test_the_rest_step_is_not_relevant() -> None:
    model = QueryModel(QueryModelConfig(hidden=8), letters=4, input_len=10, outputs=3, classes=11, vary_len=True)
    task = Counting()
    share = relevance_share(model, task, [batch_of(task, "AAA")])
    assert share.uniform == pytest.approx(3 / 4)
    assert len(share.heads) == 1
