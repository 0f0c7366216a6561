"""Validation: what a training asks of its model now and then, to keep the best one."""

from collections.abc import Callable
from typing import cast

from torch import nn

from regard.decoding import Search, translate
from regard.evaluation.bleu import bleu
from regard.models import Seq2Seq
from regard.tasks import Translation
from regard.text.prepare import read_pairs


def validation(task: Translation) -> Callable[[nn.Module], dict[str, float]] | None:
    """Return what validates a model on the task's validation text, by greedy search; None without one.

    Raises `InputError` where the text cannot be read.
    """
    text = task.config.text("valid")
    if text is None:
        return None
    pairs = read_pairs(text, "validation")
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]

    def validate(model: nn.Module) -> dict[str, float]:
        found = translate(
            cast(Seq2Seq, model),  # which training knows as a module
            task.source_vocabulary,
            task.target_vocabulary,
            sources,
            Search(),
            max_len=task.longest_target,
        )
        return {"bleu": bleu([best.text for best, *_ in found], references, lowercase=task.config.lowercase)}

    return validate
