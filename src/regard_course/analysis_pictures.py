"""The pictures of the lessons on the logit lens, sinks, grokking and doubt."""

import numpy as np

from regard_course.drawing import COLORS, SIZE, Drawing, softmax
from regard_course.mistakes.solution import Solution

BLUE, RED, GREEN, GOLD = COLORS
STEPS = (0, 50, 100, 150, 200, 250, 300, 400, 500, 600)
FITTED = (0.03, 0.28, 0.99, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
GENERALIZED = (0.03, 0.02, 0.33, 0.63, 0.86, 0.97, 0.98, 0.99, 1.0, 1.0)
"""Share of right answers in the run of the lesson with seed 0; the untrained model guesses one of 31 numbers."""


def draw_lens() -> Drawing:
    """A state passes two blocks. The lens reads it three times with the output layer: before the first block it
    reads B, after block 1 still B, and after block 2 C, the answer."""
    drawing = Drawing(168)
    parts = np.array([[0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 1.5, 0.0], [0.0, 0.0, 3.0, 0.0]])
    states = parts.cumsum(0)
    shares = Solution().logit_lens(states[:, None], np.ones(4), np.eye(4))[:, 0]
    for block, (name, row) in enumerate(zip(("embedding", "block 1", "block 2"), shares, strict=True)):
        x = 14 + 112 * block
        drawing.box(x, 136, name, width=84, color=BLUE)
        if block:
            drawing.arrow(x - 28, 149, x - 2, 149)
        drawing.arrow(x + 42, 134, x + 42, 108, color=GREEN)
        drawing.bars(x - 10, 84, [float(share) for share in row], "ABCD", height=62)
        drawing.text(x + 42, 10, f"reads {'ABCD'[int(row.argmax())]}", color=GREEN)
    return drawing


def draw_sinks() -> Drawing:
    """The weights of a head that has nothing to do in most rows: the column of the first token is dark. The value
    of the first token is short, so these rows write nearly nothing."""
    drawing = Drawing(176)
    scores = np.zeros((5, 5))
    scores[:, 0] = 3.0
    scores[4, 2] = 6.0
    allowed = np.tril(np.ones((5, 5), dtype=bool))
    weights = softmax(np.where(allowed, scores, -np.inf))
    names = list("SABCA")
    drawing.grid(34, 26, weights, rows=names, columns=names, color=RED)
    drawing.text(99, 168, "the sink: first column", size=11)
    for row, (name, length) in enumerate(zip(names, (0.06, 0.8, 0.9, 0.7, 0.8), strict=True)):
        y = 26 + row * SIZE
        drawing.text(218, y + 13, name, size=11)
        drawing.rectangle(230, y + 7, 100 * length, 12, color=BLUE, fill=0.5)
    drawing.text(268, 10, "length of the value", size=11)
    return drawing


def draw_grokking() -> Drawing:
    """Two curves over 600 steps of the run with seed 0: after 100 steps, 99 of 100 training answers are right,
    but only 33 of 100 held-out answers. These reach 99 after 400 steps."""
    drawing = Drawing(160)
    drawing.line(36, 124, 316, 124)
    drawing.line(36, 124, 36, 14)
    for name, values, color, x, y in (
        ("training", FITTED, BLUE, 88, 13),
        ("held out", GENERALIZED, RED, 150, 72),
    ):
        width = 280 / (len(values) - 1)
        drawing.curve(
            [(36 + number * width, 124 - 100 * value) for number, value in enumerate(values)], color=color
        )
        drawing.text(x, y, name, color=color, anchor="start")
    for step in (100, 300, 500):
        drawing.text(36 + 280 * step / 600, 136, str(step), size=11)
    drawing.text(176, 152, "step →")
    drawing.text(30, 24, "1", anchor="end")
    drawing.text(30, 124, "0", anchor="end")
    return drawing


def draw_doubt() -> Drawing:
    """Two tables of attention, a row for each word of a translation. The first reads every source token in turn.
    In the second, a detached translation, all rows look at the end of the source. Below, the mass of each source
    token and its distance from uniform."""
    drawing = Drawing(212)
    reads = softmax(4.0 * np.eye(4))
    detached = softmax(np.array([[0.5, 0.0, 0.5, 3.0]] * 4) + 0.5 * np.eye(4))
    for number, (name, weights, color) in enumerate(
        (("reads the source", reads, GREEN), ("detached", detached, RED))
    ):
        x = 34 + 172 * number
        drawing.text(x + 52, 10, name, color=color)
        drawing.grid(x, 26, weights, color=color)
        drawing.bars(x, 176, [float(share) for share in weights.mean(0)], ["the", "dog", "ran", "."], height=40)
        distance = float(Solution().distance_from_uniform(weights[None]))
        drawing.text(x + 52, 204, f"from uniform: {distance:.2f}", size=11)
    return drawing
