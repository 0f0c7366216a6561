"""The architecture of a run as a picture, drawn from its model at work on one input."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data import PairBatch, collate
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.runs.kinds import AnyRun

FEWEST = 3
"""Steps of an answer that is drawn."""


def draw_model(run: AnyRun, path: str | Path = "model.svg", *, input: str | None = None) -> Path:
    """Draw a run's model at work on an input (None: one that is drawn): .svg, .png, .pdf, or .html for a page.

    Boxes are its parts, with the shapes of what goes in and comes out and the number of parameters; arrows are
    what flows; attention is marked. Raises `InputError` for another ending, or an input that does not fit.
    """
    from regard.viz.architecture import trace_graph  # brings what only this needs
    from regard.viz.architecture_plot import save_graph

    asked: Any = run
    if input is None and not run.draws:
        raise InputError(f"run {str(run.folder)!r} has no inputs to draw one of: give one by --input")
    text = asked.draw(seed=0) if input is None else input
    asked.check(text)
    model: Any = copy.deepcopy(run.model).eval()
    task: Any = run.task
    if task.answers == "numbers":
        inputs = {"input": task.parse(text)}
        found = trace_graph(model, lambda: model(*inputs.values()), _title(run), inputs)
    else:
        source = collate([task.source_vocabulary.encode(text)])
        answer = task.target_vocabulary.encode(asked.translate([text])[0])
        # An answer of several steps shows what flows from one to the next, also where the run knows no better.
        target = collate([answer if len(answer) > 1 else [len(task.target_vocabulary) - 1] * FEWEST])
        batch = PairBatch(source, target).to(next(model.parameters()).device)
        inputs = {"source": batch.source, "target": batch.target_in}
        found = trace_graph(
            model, lambda: model(inputs["source"], batch.source_mask, inputs["target"]), _title(run), inputs
        )
    return save_graph(found, path)


def _title(run: AnyRun) -> str:
    return f"{run.name}, model {run.config.kind}"
