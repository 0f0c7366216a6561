"""Exact match: the fraction of samples whose outputs are all correct."""

from collections.abc import Iterator

import torch

from regard.fast.onednn import OneDNNMode
from regard.models.base import AnswerModel
from regard.tasks.base import Task
from regard.tasks.batch import Batch
from regard.training.objective import exact

CHUNK = 1000  # Number of samples in a batch


def fresh_batches(
    task: Task,
    samples: int,
    generator: torch.Generator,
    *,
    sample_len: int | None = None,
    vary_len: bool = False,
    signal: str | None = None,
) -> Iterator[Batch]:
    """Yield `samples` samples in batches of at most `CHUNK`; other arguments as in `Task.sample`.

    >>> from regard.tasks.counting import Counting
    >>> batches = fresh_batches(Counting(), 1500, torch.Generator())
    >>> [len(batch.inputs) for batch in batches]
    [1000, 500]
    """
    for done in range(0, samples, CHUNK):
        size = min(CHUNK, samples - done)
        yield task.sample(size, generator, sample_len=sample_len, vary_len=vary_len, signal=signal)


@torch.inference_mode()
def exact_match(model: AnswerModel, batches: Iterator[Batch]) -> float:
    """Return the fraction of samples (0 to 1) that `model` answers without an error.

    >>> from regard.models.query import QueryModel, QueryModelConfig
    >>> from regard.tasks.counting import Counting
    >>> task = Counting()
    >>> model = QueryModel(QueryModelConfig(), **task.sizes)
    >>> 0 <= exact_match(model, fresh_batches(task, 10, torch.Generator())) <= 1
    True
    """
    model.eval()
    with OneDNNMode():
        right = torch.cat([exact(model(inputs, mask), targets) for inputs, targets, mask in batches])
    return right.double().mean().item()
