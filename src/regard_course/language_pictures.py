"""The pictures of the lessons on language models and on explanations."""

import numpy as np

from regard_course.drawing import COLORS, INK, SIZE, WIDTH, Drawing, softmax

BLUE, RED, GREEN, GOLD = COLORS


def draw_explanations() -> Drawing:
    """Bars: how well methods rank inputs. On learned models attention has 0.86 and rollout 0.95. On models that
    were built to mislead, attention has 0.43 and rollout 0.27, below chance, and replacing tokens has 1.00."""
    drawing = Drawing(160)
    methods = (("other tokens", 0.99, 1.0), ("attention", 0.86, 0.43), ("rollout", 0.95, 0.27))
    for row, (name, learned, trap) in enumerate(methods):
        y = 34 + row * 42
        drawing.text(92, y + 14, name, anchor="end")
        for line, (value, color) in enumerate(((learned, BLUE), (trap, RED))):
            drawing.rectangle(100, y + 15 * line, 190 * value, 12, color=color, fill=0.5)
            drawing.text(296, y + 6 + 15 * line, f"{value:.2f}", size=11, anchor="start")
    drawing.line(195, 26, 195, 152, strength=0.6)
    drawing.text(195, 16, "0.5: chance", size=11)
    drawing.text(100, 16, "learned", size=11, color=BLUE, anchor="end")
    drawing.text(290, 16, "traps", size=11, color=RED)
    return drawing


def draw_causal() -> Drawing:
    """Five brackets and the weights of a causal layer with equal scores: each row is the mean over the brackets
    so far. The target of each row is the next bracket."""
    drawing = Drawing(178)
    weights = np.tril(np.ones((5, 5)))
    weights /= weights.sum(1, keepdims=True)
    text, following = "<([])", "([])>"
    drawing.text(60, 100, "queries", anchor="end", size=11)
    drawing.grid(96, 34, weights, rows=list(text), columns=list(text))
    drawing.text(162, 10, "keys", size=11)
    drawing.text(286, 10, "predict", size=11, color=GREEN)
    for row, bracket in enumerate(following):
        drawing.arrow(232, 47 + 26 * row, 266, 47 + 26 * row, color=GREEN)
        drawing.box(273, 34 + 26 * row, bracket, width=SIZE, color=GREEN)
    return drawing


def draw_tokens() -> Drawing:
    """Byte-pair encoding of lower: five letters, then lo, then low, then lowe: two tokens are left."""
    drawing = Drawing(150)
    for row, line in enumerate(("l o w e r", "lo w e r", "low e r", "lowe r")):
        x, y = 20.0, 8 + 36 * row
        for piece in line.split():
            width = SIZE * len(piece)
            drawing.box(x, y, piece, width=width, color=GOLD if len(piece) > 1 else BLUE)
            x += width + 8
        drawing.text(256, y + 13, f"{len(line.split())} tokens")
    return drawing


def draw_sampling() -> Drawing:
    """Bars of the same four probabilities at three temperatures: sharp at 0.5, the model's own at 1, flat at
    2."""
    drawing = Drawing(130)
    logits = np.log([0.6, 0.3, 0.08, 0.02])
    for number, temperature in enumerate((0.5, 1.0, 2.0)):
        x = 8 + number * 114
        drawing.bars(x, 94, [float(share) for share in softmax(logits / temperature)], "abcd", height=76)
        drawing.text(x + 54, 120, f"temperature {temperature:g}", size=11)
    return drawing


def draw_cache() -> Drawing:
    """Keys that are computed for four new tokens. Without a cache, each step computes all keys again: 1, 2, 3 and
    4 keys. With a cache, each step computes one key and reads the others."""
    drawing = Drawing(150)
    steps = ("step 1", "step 2", "step 3", "step 4")
    without, cached = np.tril(np.ones((4, 4))), np.eye(4)
    drawing.text(106, 10, "without a cache: 10")
    drawing.grid(54, 28, without, rows=steps, color=RED)
    drawing.text(264, 10, "with a cache: 4")
    drawing.grid(212, 28, np.maximum(cached, 0.15 * without), color=GREEN)
    drawing.text(WIDTH / 2, 144, "dark: computed, light: read from the cache", size=11)
    return drawing


def draw_modern() -> Drawing:
    """Three rows of six query heads with their heads of keys below: one for each, one for each group of three,
    one for all."""
    drawing = Drawing(140)
    for row, (groups, name) in enumerate(((6, "one each"), (2, "shared by three"), (1, "shared by all"))):
        y = 6 + row * 46
        for head in range(6):
            x = 10 + head * 34
            drawing.rectangle(x, y, 24, 12, color=RED, fill=0.4)
            group = head // (6 // groups)
            center = 10 + (group + 0.5) * (6 // groups) * 34 - 5
            drawing.line(x + 12, y + 12, center, y + 24, color=INK, strength=0.6)
            drawing.rectangle(center - 12, y + 24, 24, 12, color=BLUE, fill=0.12)
        drawing.text(226, y + 18, name, anchor="start")
    return drawing


def draw_induction() -> Drawing:
    """The text A B C D B. An arrow from the second B to C, the token after the first B: the induction head. An
    arrow from C to the first B: the previous-token head."""
    drawing = Drawing(126)
    for number, letter in enumerate("ABCDB"):
        drawing.box(20 + 62 * number, 56, letter, width=36, color=GOLD if letter == "B" else BLUE)
    drawing.arc(286, 162, 54, 24, color=GREEN)
    drawing.text(224, 14, "induction: what came next?", color=GREEN)
    drawing.line(154, 82, 154, 96, color=RED)
    drawing.line(154, 96, 100, 96, color=RED)
    drawing.arrow(100, 96, 100, 84, color=RED)
    drawing.text(127, 112, "previous token", color=RED)
    return drawing
