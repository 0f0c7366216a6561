"""Architecture diagram of a run, drawn from a forward pass of its model."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data import PairBatch, collate
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.runs.run_types import AnyRun

FEWEST_STEPS = 3
"""Number of decoding steps in a diagram."""


def draw_model(run: AnyRun, path: str | Path = "model.svg", *, input: str | None = None) -> Path:
    """Draw the modules and tensors of a run's model in a file: .svg, .png, .pdf, or .html for a page.

    Boxes are modules, with input and output shapes and the number of parameters. Arrows are tensors. Attention
    layers are highlighted. `input`: text to run the model on. None: a random input. Raises `InputError` for an
    unknown file extension and for an invalid input.
    """
    from regard.viz.architecture import trace_graph  # imported only for this command
    from regard.viz.architecture_plot import save_graph

    subject: Any = run
    if input is None and not run.draws:
        raise InputError(f"run {str(run.folder)!r} cannot generate an input: give an input with --input")
    text = subject.draw(seed=0) if input is None else input
    subject.check(text)
    model: Any = copy.deepcopy(run.model).eval()
    task: Any = run.task
    if task.answers in ("numbers", "tokens"):
        inputs = {"input": task.parse(text)}
        graph = trace_graph(model, lambda: model(*inputs.values()), _title(run), inputs)
    else:
        source = collate([task.source_vocabulary.encode(text)])
        answer = task.target_vocabulary.encode(subject.translate([text])[0])
        # The diagram shows several steps, so that the recurrence is visible even if the run answers with a single
        # token.
        target = collate([answer if len(answer) > 1 else [len(task.target_vocabulary) - 1] * FEWEST_STEPS])
        batch = PairBatch(source, target).to(next(model.parameters()).device)
        inputs = {"source": batch.source, "target": batch.target_in}
        graph = trace_graph(
            model, lambda: model(inputs["source"], batch.source_mask, inputs["target"]), _title(run), inputs
        )
    return save_graph(graph, path)


def _title(run: AnyRun) -> str:
    return f"{run.name}, model {run.config.kind}"
