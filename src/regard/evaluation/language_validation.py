"""Validation loss of a language model during training."""

from functools import cached_property
from typing import cast

from torch import nn

from regard.evaluation.next_tokens import measure_tokens
from regard.models.language_model import LanguageModel
from regard.streams import make_generator
from regard.tasks.base import AnyTask
from regard.tasks.batch import TokenBatch
from regard.tasks.text import Text
from regard.tasks.tokens import TokenTask
from regard.training.settings import TrainingConfig

BATCHES = 20
"""Number of validation batches, as in nanoGPT's settings for a CPU. With a validation every 500 steps, they take
about 1 % of the time of training."""


class LanguageValidation:
    """Validation that measures the loss of a model on held-out samples of a task: text or pairs that are not in
    the training data, or newly drawn samples.

    The samples are the same in every validation, and for every seed of a training run. Their lengths are those of
    training.
    """

    criterion = None

    def __init__(self, task: TokenTask, batchsize: int) -> None:
        self.task, self.batchsize = task, batchsize

    @cached_property
    def batches(self) -> list[TokenBatch]:
        """The samples, drawn in the first validation, because a text is encoded after this object is created."""
        generator = make_generator(0, "validation")
        return [self.task.sample(self.batchsize, generator, unseen=True) for _ in range(BATCHES)]

    def __call__(self, model: nn.Module) -> dict[str, float]:
        figures = measure_tokens(cast(LanguageModel, model), self.task, self.batches, relevance=False)
        return {"valid_loss": figures.loss, "valid_exact_match": figures.exact_match}


def language_validation(task: AnyTask, settings: TrainingConfig) -> LanguageValidation | None:
    """Return the validation of a language model, or None for other models, without validation, and for a text
    without a held-out part."""
    if not isinstance(task, TokenTask) or not settings.validate_every:
        return None
    if isinstance(task, Text) and not task.config.valid_share:
        return None
    return LanguageValidation(task, settings.batchsize)
