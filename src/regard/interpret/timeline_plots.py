"""Page of a timeline: a strip for each role with its interval over seeds and the loss below, a strip for each
head."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from regard.interpret.formation import Development, RoleHead, median_curves
from regard.interpret.head_scores import RELEVANT
from regard.viz.figure import figure_bytes
from regard.viz.heatmap import label_interval
from regard.viz.plots import letter_size, new_figure

COLOURS = {
    "previous-token": "#0072b2",
    "induction": "#d55e00",
    "duplicate-token": "#009e73",
    "current-token": "#e69f00",
    "first-token": "#cc79a7",
    "next-token": "#56b4e9",
    RELEVANT: "#d55e00",
    "same-position": "#009e73",
}
"""Colors of Okabe and Ito (2008), which are distinct for color-blind readers. Roles of the same kind of layer
have different colors."""
GREY = "#7f8894"
WIDTH, STRIP, ROW = 9.0, 1.05, 0.2
"""Width of a figure, height of a role's strip, and height of a head's row, in inches."""


def draw_roles(runs: Sequence[Development], matched: Mapping[str, Sequence[RoleHead]], threshold: float) -> bytes:
    """Draw a strip for each role, and below the strips the loss and the fraction of correct outputs, as SVG.

    `matched`: the role's head in each run, by role.
    """
    rows = len(matched) + 2
    figure = new_figure(WIDTH, STRIP * rows + 0.5)
    axes: list[Axes] = list(figure.subplots(rows, 1, sharex=True))
    for axis, (role, heads) in zip(axes, matched.items(), strict=False):
        curves = [run.roles[role][:, head.head] for run, head in zip(runs, heads, strict=True)]
        _draw_band(axis, np.array(curves), COLOURS[role])
        axis.axhline(threshold, color=GREY, linewidth=0.6, linestyle="--")
        formed = [head.snapshot for head in heads if head.snapshot is not None]
        # Seeds that form at the same snapshot stand beside each other.
        places = [snapshot + 0.15 * formed[:seed].count(snapshot) for seed, snapshot in enumerate(formed)]
        axis.plot(places, [-0.15] * len(places), "|", color=COLOURS[role], markersize=6)
        axis.set(ylim=(-0.3, 1.05), yticks=[0, 1])
        axis.set_title(f"{role} ({len(formed)} of {len(heads)} seeds)", loc="left", fontsize=9)
    for axis, name, values in (
        (axes[-2], "loss", np.array([run.loss for run in runs])),
        (axes[-1], "fraction of correct outputs", np.array([run.accuracy for run in runs])),
    ):
        _draw_band(axis, values, GREY)
        axis.set_ylim(0)
        axis.set_title(name, loc="left", fontsize=9)
    _label_steps(axes[-1], runs[0].steps)
    return figure_bytes(figure, "svg")


def _draw_band(axes: Axes, curves: np.ndarray, colour: str) -> None:
    """Draw the median of curves (seeds, S) as a line, and its interval as a band."""
    middle, low, high = median_curves(curves)
    places = np.arange(len(middle))
    axes.fill_between(places, low, high, color=colour, alpha=0.3, linewidth=0)
    axes.plot(places, middle, color=colour)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _label_steps(axes: Axes, steps: Sequence[int]) -> None:
    """Label as many snapshots as fit with their training steps."""
    letter, _ = letter_size()
    every = label_interval(len(steps), WIDTH - 2, letter * (len(f"{steps[-1]:,}") + 1))
    shown = range(len(steps) - 1, -1, -every)
    axes.set_xticks(list(shown), [f"{steps[index]:,}" for index in shown])
    axes.set(xlabel="training step", xlim=(-0.5, len(steps) - 0.5))


def draw_heads(runs: Sequence[Development], roles: Collection[str]) -> bytes:
    """Draw a strip for each head of each seed, colored by its role, as SVG."""
    heads = len(runs[0].heads)
    panel = max(ROW * heads, 0.5) + 0.35  # with the title
    figure = new_figure(WIDTH, panel * len(runs) + 1.2)
    panels = list(figure.subplots(len(runs), 1, sharex=True, squeeze=False).flat)
    for axes, run in zip(panels, runs, strict=True):
        axes.imshow(_colour_heads(run), aspect="auto", interpolation="nearest")
        _, line = letter_size()
        rows = range(0, heads, label_interval(heads, ROW * heads, line))
        names = [
            f"{run.heads[row].layer.removesuffix('.self_attention')} {run.heads[row].number}" for row in rows
        ]
        axes.set_yticks(list(rows), names, fontsize=7)
        axes.set_title(f"seed {run.seed}", loc="left", fontsize=9)
    _label_steps(panels[-1], runs[0].steps)
    for role in roles:
        panels[0].plot([], [], "s", color=COLOURS[role], label=role)
    figure.legend(loc="outside upper center", ncols=4, fontsize=8)
    return figure_bytes(figure, "svg")


def _colour_heads(run: Development) -> np.ndarray:
    """Return the colors of a run's heads, (N, S, 3): the color of the strongest role, mixed with the
    background."""
    scores = np.nan_to_num(np.stack([*run.roles.values()])).clip(0, 1)
    colours = np.array([to_rgb(COLOURS[role]) for role in run.roles])
    strength = scores.max(0).T[..., None]
    mixed: np.ndarray = colours[scores.argmax(0).T] * strength + to_rgb(rcParams["axes.facecolor"]) * (
        1 - strength
    )
    return mixed
