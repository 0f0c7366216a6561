"""`plot`: figures for papers, with caption and data, of a run or an external model."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from regard.arguments import public
from regard.errors import InputError, check_range, unknown_choice
from regard.interpret import map_figures, number_figures
from regard.interpret.figure_inputs import FigureOptions, is_external
from regard.viz.paper_figure import COLUMN, PAGE_WIDTH, WIDTHS, PaperFigure, figure_style
from regard.viz.subject import Subject

FIGURE_KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    "heads": map_figures.heads_figure,
    "alignment": map_figures.alignment_figure,
    "rollout": map_figures.rollout_figure,
    "induction": map_figures.induction_figure,
    "importance": number_figures.importance_figure,
    "entropy": number_figures.entropy_figure,
    "positions": number_figures.positions_figure,
    "learning": number_figures.learning_figure,
    "embeddings": number_figures.embeddings_figure,
}
WIDE = ("heads", "importance", "positions")
"""Kinds of figures that fill both columns of a page unless a width is given."""

SINGLE = ("heads", "alignment", "rollout")
"""Kinds of figures that show one input."""


@public
def plot(
    kind: str,
    subject: Subject[Any] | None = None,
    *,
    inputs: Iterable[Any] = (),
    layer: str | int | None = None,
    head: int | None = None,
    samples: int | None = None,
    seed: int = 0,
    width: float | None = None,
    style: str | Path | None = None,
    dimensions: int = 64,
    length: int = 100,
) -> PaperFigure:
    """Measure the values of a figure, and return the figure; `save(path)` writes the figure, its caption and
    its data.

    `kind`: heads, alignment, rollout, induction, importance, entropy, positions, learning or embeddings.
    `subject`: a run, or a result of `regard.look`; only `positions` needs no subject (the sinusoidal encoding
    of width `dimensions`). `inputs`: texts; by default `samples` inputs that the subject draws with `seed`, or
    that were not used in training. Kinds that show a single input use the first input. For induction in an
    external model, each text is repeated once. `layer`: number or name. `width`: 3.3 or 6.9 inches. `style`: a
    matplotlib style sheet. `length`: number of positions.

    Raises `InputError` if the subject lacks the quantity that the figure shows.

    >>> figure = plot("positions", dimensions=8, length=20, width=3.3)
    >>> figure.caption.partition(".")[0]
    'Sinusoidal positions (Vaswani et al'
    >>> figure.save("positions.pdf")    # doctest: +SKIP
    """
    if kind not in FIGURE_KINDS:
        raise unknown_choice("figure", kind, FIGURE_KINDS)
    if subject is None and kind != "positions":
        raise InputError(f"{kind} needs a model: name a run, or the folder of an external model")
    if width is not None and width not in WIDTHS:
        raise InputError(f"width {width} is not the width of a column or of a page: choose 3.3 or 6.9 inches")
    if samples is not None:
        check_range("samples", samples, 1, 10**7)
    every = list(inputs)
    shown = texts = every[:1] if kind in SINGLE else every[:samples]
    if texts and subject is not None and is_external(subject):
        doubled = kind == "induction"
        external: Any = subject
        subject = external.over(
            [f"{text} {text}" if doubled and isinstance(text, str) else text for text in texts]
        )
        shown, samples = [], len(texts)
    options = FigureOptions(
        inputs=shown,
        layer=None if layer is None else str(layer),
        head=head,
        samples=samples,
        seed=seed,
        width=width or (PAGE_WIDTH if kind in WIDE else COLUMN),
        dimensions=dimensions,
        length=length,
    )
    with figure_style(style):  # the size of its text decides which labels fit, and the caption says so
        parts = FIGURE_KINDS[kind](subject, options)
    left = f"Of {len(every)} texts, the figure uses the first{f' {len(texts)}' if len(texts) > 1 else ''}."
    caption = " ".join(filter(None, [*parts["caption"], left * (len(texts) < len(every))]))
    return PaperFigure(
        kind=kind, caption=caption, data=parts["data"], width=options.width, draw=parts["draw"], style=style
    )
