"""Exact match of samples."""

import torch
from torch import Tensor

from regard.evaluation.accuracy import exact_match, fresh_batches
from regard.models.query import QueryModel, QueryModelConfig
from regard.tasks.counting import Counting
from regard.training.objective import exact


def test_every_output_must_be_right() -> None:
    targets = torch.tensor([[1, 0], [1, 1], [0, 1]])
    logits = torch.nn.functional.one_hot(torch.tensor([[1, 0], [1, 0], [1, 0]]), 2).float()
    assert exact(logits, targets).tolist() == [True, False, False]


def test_counts_over_all_batches() -> None:
    class Half(QueryModel):
        """A model whose answer is correct only if the first letter has index 0."""

        def forward(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
            right = Counting().answer(inputs)
            return torch.nn.functional.one_hot((right + (inputs[:, :1] != 0).long()) % 11, 11).float()

    model = Half(QueryModelConfig(), letters=4, input_len=10, outputs=3, classes=11)
    task = Counting()
    inputs = torch.cat([batch.inputs for batch in fresh_batches(task, 2500, torch.Generator().manual_seed(0))])
    assert len(inputs) == 2500
    share = exact_match(model, fresh_batches(task, 2500, torch.Generator().manual_seed(0)))
    assert share == (inputs[:, 0] == 0).double().mean().item()
