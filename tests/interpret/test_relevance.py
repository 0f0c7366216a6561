"""Relevance equals values computed by hand, also for uniform attention."""

import pytest
import torch
from torch import Tensor

from regard.attention.functional import uniform_weights
from regard.attention.layer import Attention
from regard.interpret.relevance import relevance_share
from regard.models.base import AnswerModel
from regard.models.query import QueryModel, QueryModelConfig
from regard.tasks.base import Task
from regard.tasks.batch import Batch
from regard.tasks.counting import Counting


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


def test_a_worked_example() -> None:
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


def test_uniform_weights_respect_the_mask() -> None:
    mask = torch.tensor([[True, True, False]])
    result = uniform_weights(torch.zeros(1, 2, 5, 3), mask[:, None, None])
    assert result.tolist() == torch.tensor([0.5, 0.5, 0.0]).expand(1, 2, 5, 3).tolist()
