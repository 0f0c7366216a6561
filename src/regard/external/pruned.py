"""Pruning a model that was not built here: its least important heads go, and what is left is saved."""

import copy
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from regard.errors import InputError
from regard.external.removing import save_pruned
from regard.external.wrappers import check_whole
from regard.interpret import Pruned, take_out
from regard.io import new_folder
from regard.result import to_plain


@dataclass(frozen=True, kw_only=True, repr=False)
class ForeignPruned(Pruned):
    """What pruning a model that was not built here took away, and what it cost."""

    subject: Any
    """What is left."""

    def json(self) -> dict[str, Any]:
        """Return all as plain values; of the model, where it is."""
        figures = {name: to_plain(each) for name, each in vars(self).items() if name != "subject"}
        return {**figures, "folder": self.subject.where}


def prune_model(whole: Any, heads: int, output: Path, *, samples: int, overwrite: bool) -> ForeignPruned:
    """Do what `ForeignModel.prune` says, to a copy of a subject that has inputs; `samples`: of them at most."""
    if output.exists() and not overwrite:
        raise InputError(f"{str(output)!r} is there already: choose another folder, or overwrite=True")
    check_whole(whole.model)
    subject = dataclasses.replace(copy.deepcopy(whole), fed=tuple(whole.unseen(samples, 0)))
    with new_folder(output) as folder:
        taken = take_out(subject, heads)
        save_pruned(subject.model, whole.layers, taken.left, subject.layers, folder)
        if hasattr(whole.tokenizer, "save_pretrained"):
            whole.tokenizer.save_pretrained(folder)
    return ForeignPruned(
        subject=dataclasses.replace(subject, name=output.name, where=str(output), fed=None),
        removed=taken.removed,
        samples=taken.before.samples,
        measure=whole.measure,
        loss_before=taken.before.loss,
        loss_after=taken.after.loss,
        parameters_before=count_of(whole.model),
        parameters_after=count_of(subject.model),
    )


def count_of(model: nn.Module) -> int:
    """Return how many numbers a model has learned."""
    return sum(each.numel() for each in model.parameters())
