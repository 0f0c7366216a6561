"""The architecture of a run as a picture, drawn from its model at work on one input."""

import copy
from pathlib import Path
from typing import Any

from regard.errors import InputError
from regard.runs.loading import AnyRun
from regard.text import PairBatch, collate


def draw_model(run: AnyRun, path: str | Path = "model.svg", *, input: str | None = None) -> Path:
    """Draw a run's model at work on an input (None: one that is drawn): .svg, .png, .pdf, or .html for a page.

    Boxes are its parts, with the shapes of what goes in and comes out and the number of parameters; arrows are
    what flows; attention is marked. Raises `InputError` for another ending, or an input that does not fit.
    """
    from regard.inspection.blueprint import blueprint_of  # brings what only this needs
    from regard.inspection.drafting import save_blueprint

    asked: Any = run
    if input is None and not run.draws:
        raise InputError(f"run {str(run.folder)!r} has no inputs to draw one of: give one by --input")
    text = asked.draw(seed=0) if input is None else input
    asked.check(text)
    model: Any = copy.deepcopy(run.model).eval()
    task: Any = run.task
    if task.answers == "numbers":
        found = blueprint_of(model, lambda: model(task.parse(text)), _title(run))
    else:
        source = collate([task.source_vocabulary.encode(text)])
        target = collate([task.target_vocabulary.encode(asked.translate([text])[0])])
        batch = PairBatch(source, target).to(next(model.parameters()).device)
        found = blueprint_of(model, lambda: model(batch.source, batch.source_mask, batch.target_in), _title(run))
    return save_blueprint(found, path)


def _title(run: AnyRun) -> str:
    return f"{run.name}, model {run.config.kind}"
