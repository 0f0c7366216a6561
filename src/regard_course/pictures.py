"""The picture at the beginning of each lesson, drawn from small examples that are computed here.

A function for each lesson adds the shapes; its docstring is the text for readers who do not see the picture.
"""

import inspect
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from regard_course import analysis_pictures, language_pictures
from regard_course.drawing import COLORS, SIZE, WIDTH, Array, Drawing, softmax
from regard_course.translated import ENGLISH, find_language

BLUE, RED, GREEN, GOLD = COLORS


def picture(lesson: str, language: str = ENGLISH) -> str:
    """Return the picture of a lesson as SVG, with its texts in a language.

    >>> picture("counting")[:4]
    '<svg'
    """
    say = find_language(language).say
    drawing = DRAWINGS[lesson]()
    return drawing.svg(say(_describe(lesson)), say)


def picture_texts(lesson: str) -> list[str]:
    """Return the English texts of a picture that a translation may change, first its description."""
    texts = dict.fromkeys(DRAWINGS[lesson]().texts())
    return [_describe(lesson), *(text for text in texts if any(map(str.isalpha, map("".join, pairwise(text)))))]


def _describe(lesson: str) -> str:
    return " ".join((inspect.getdoc(DRAWINGS[lesson]) or "").split())


def _lookups() -> Drawing:
    """A supermarket catalogue: the query drinks matches the keys water and juice, not bread and soap. Most of the
    weight is on the prices of water and juice, so the weighted sum of the prices is close to their mean."""
    drawing = Drawing(186)
    products, prices = ("water", "juice", "bread", "soap"), np.array([1.0, 3.0, 2.0, 6.0])
    weights = softmax(np.array([4.0, 4.0, 0.0, 0.0]))
    drawing.box(4, 66, "drinks?", width=66, color=RED)
    for x, name in ((37, "query"), (150, "keys"), (222, "weights"), (292, "values")):
        drawing.text(x, 10, name)
    for row, (product, weight, price) in enumerate(zip(products, weights, prices, strict=True)):
        y = 24 + row * 32
        drawing.line(70, 79, 118, y + SIZE / 2, color=RED, width=1 + 4 * weight, strength=0.3 + weight)
        drawing.box(118, y, product, width=64, color=BLUE)
        drawing.rectangle(190, y + 5, max(1, 60 * weight), 16, color=GREEN, fill=0.5)
        drawing.text(252, y + SIZE / 2, f"{weight:.2f}", size=11, anchor="end")
        drawing.box(262, y, f"{price:.0f}", width=60, color=GOLD)
    total = float(weights @ prices)
    drawing.text(WIDTH / 2, 172, f"sum of weight * price = {total:.2f}: a drink's price")
    return drawing


def _counting() -> Drawing:
    """One-hot tables. The input, A B blank A, is a table of 4 steps with 3 columns: blank, A and B. The label,
    2 times A and 1 time B, is a table of 2 outputs with 5 columns: the counts 0 to 4."""
    drawing = Drawing(158)
    letters = [1, 2, 0, 1]
    inputs, labels = np.eye(3)[letters], np.eye(5)[[2, 1]]
    drawing.text(75, 8, "input (4, 3)")
    drawing.grid(36, 40, inputs, rows=["A", "B", "_", "A"], columns=["_", "A", "B"], labels=_digits(inputs))
    drawing.arrow(130, 92, 164, 92)
    drawing.text(254, 8, "label (2, 5)")
    drawing.grid(196, 66, labels, rows=["A?", "B?"], columns=list("01234"), labels=_digits(labels), color=GREEN)
    drawing.text(262, 134, "one row for each query", size=11)
    return drawing


def _digits(values: Array) -> list[list[str]]:
    return [[f"{value:.0f}" for value in row] for row in values]


def _difference() -> Drawing:
    """Four outputs, count A, count B, count C and their difference, attend to each other. Lines to the difference
    come from count A and count B."""
    drawing = Drawing(142)
    names, weights = ("A", "B", "C", "|A-B|"), softmax(np.array([3.0, 3.0, 0.0, 1.0]))
    for number, name in enumerate(names):
        x = 22 + number * 80
        drawing.text(x + 28, 10, f"{weights[number]:.2f}", size=11)
        drawing.box(x, 20, name, width=56, color=RED)
        drawing.box(x, 106, name, width=56, color=GREEN)
        strength = 0.15 + 0.85 * float(weights[number]) / weights.max()
        drawing.line(x + 28, 46, 290, 106, color=BLUE, width=1 + 6 * weights[number], strength=strength)
    return drawing


def _signal() -> Drawing:
    """Two orders of the same letters are the same set for attention. With a mark on the first step, they
    differ."""
    drawing = Drawing(140)
    for row, word in enumerate(("BAC", "CAB")):
        y = 20 + row * 62
        for column, letter in enumerate(word):
            drawing.box(8 + column * 30, y, letter, width=SIZE, color=BLUE)
        drawing.arrow(100, y + 13, 124, y + 13)
        drawing.text(168, y + 13, "{A, B, C}", color=RED)
        for column, letter in enumerate(word):
            drawing.box(228 + column * 36, y, letter + ("₁" if column == 0 else ""), width=SIZE, color=GREEN)
    drawing.text(168, 72, "the same set")
    drawing.text(280, 72, "with a position")
    return drawing


def _signal2() -> Drawing:
    """Four heads as lenses on the same letters, signal B first: one head shows the signal, the other heads show
    the letters A, B and C. Darker cells have more weight."""
    drawing = Drawing(172)
    letters, lenses = "B ACABCAC", ("signal", "A", "B", "C")
    matches = [[number == 0 for number in range(len(letters))]]
    matches += [[letter == lens and number > 1 for number, letter in enumerate(letters)] for lens in lenses[1:]]
    weights = softmax(3.0 * np.array(matches, float))
    for row, (lens, line) in enumerate(zip(lenses, weights, strict=True)):
        y, color = 12 + row * 40, COLORS[row]
        drawing.grid(76, y, line[None] * 2, labels=[list(letters)], color=color)
        drawing.text(2, y + 13, f"{row}: {lens}", color=color, anchor="start")
    return drawing


def _forgetting() -> Drawing:
    """Three curves: how much of the first letter is left after each of ten steps, if a state keeps nine tenths,
    a half or a tenth of its value at each step."""
    drawing = Drawing(150)
    drawing.line(36, 120, 310, 120)
    drawing.line(36, 120, 36, 14)
    for keep, color in ((0.9, GREEN), (0.5, GOLD), (0.1, RED)):
        drawing.curve([(36 + step * 28, 120 - 100 * keep**step) for step in range(10)], color=color)
        x, y = (100, 112 - 100 * keep**2) if keep > 0.1 else (200, 108)
        drawing.text(x, y, f"keeps {keep}", color=color, anchor="start")
    drawing.text(172, 136, "step →")
    drawing.text(30, 20, "1", anchor="end")
    drawing.text(30, 120, "0", anchor="end")
    return drawing


def _decoders() -> Drawing:
    """Bahdanau: the state before the step is the query, and the context enters the cell. Luong: the state after
    the step is the query, and the context enters the output layer."""
    drawing = Drawing(170)
    for top, name, boxes, color in (
        (24, "Bahdanau", ("state before", "attention", "cell"), BLUE),
        (104, "Luong", ("cell", "state after", "attention", "output"), GREEN),
    ):
        drawing.text(4, top - 12, name, anchor="start", color=color)
        step = 336 / len(boxes)
        for number, text in enumerate(boxes):
            drawing.box(4 + number * step, top, text, width=step - 22, color=color)
            if number:
                drawing.arrow(4 + number * step - 22, top + 13, 4 + number * step - 2, top + 13, color=color)
    drawing.text(WIDTH / 2, 66, "the context changes the next state", size=11)
    drawing.text(WIDTH / 2, 146, "the context changes the output only", size=11)
    return drawing


def _scores() -> Drawing:
    """Arrows for a query and a key. Equal directions: the dot product is 4. A right angle: 0. Opposite
    directions: minus 4."""
    drawing = Drawing(142)
    query = np.array([2.0, 0.0])
    for number, (name, angle) in enumerate((("equal", 0), ("orthogonal", 90), ("opposite", 180))):
        x = 56 + number * 114
        key = 2 * np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))])
        drawing.arrow(x, 72, x + 22 * query[0], 72 - 22 * query[1], color=RED, width=3)
        drawing.arrow(x, 76, x + 22 * key[0], 76 - 22 * key[1], color=BLUE)
        drawing.text(x, 110, f"q · k = {round(float(query @ key)) + 0}")
        drawing.text(x, 128, name, size=11)
    drawing.text(18, 10, "query", color=RED, anchor="start")
    drawing.text(64, 10, "key", color=BLUE, anchor="start")
    return drawing


def _waves() -> Drawing:
    """The sinusoidal positions of 12 steps in 8 dimensions: the first columns change from step to step, the last
    columns hardly change."""
    drawing = Drawing(196)
    positions, pairs = np.arange(12)[:, None], np.arange(4)
    angles = positions / 10000 ** (2 * pairs / 8)
    waves = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(12, 8)
    names = [f"{name}{pair}" for pair in range(4) for name in ("s", "c")]
    drawing.grid(
        60, 22, (waves + 1) / 2, rows=[str(step) for step in range(12)], columns=names, size=14, color=BLUE
    )
    for pair, color in enumerate((RED, GOLD)):
        points = [
            (196 + 12 * t, 70 + 80 * pair - 26 * float(np.sin(t / 10000 ** (pair / 4))))
            for t in np.linspace(0, 11, 60)
        ]
        drawing.curve(points, color=color)
        drawing.text(262, 32 + 80 * pair, f"sine of pair {pair}", color=color, size=11)
    return drawing


def _multihead() -> Drawing:
    """The dog eats steak. For the word dog, one head attends to eats and another head attends to steak."""
    drawing = Drawing(140)
    words = ("the", "dog", "eats", "steak")
    centers = [44 + number * 84 for number in range(4)]
    for x, word in zip(centers, words, strict=True):
        drawing.box(x - 34, 74, word, width=68)
    drawing.arc(centers[1], centers[2], 72, 22, color=BLUE)
    drawing.arc(centers[1], centers[3], 72, 34, color=GREEN)
    drawing.text(centers[2] + 26, 14, "head 1: what?", color=GREEN)
    drawing.text(2, 50, "head 0: does what?", color=BLUE, anchor="start")
    drawing.text(WIDTH / 2, 122, "one head alone would return the mean of both", size=11)
    return drawing


def _transformer() -> Drawing:
    """Three tables of attention: encoder to encoder is full, decoder to decoder is a triangle, decoder to encoder
    is full."""
    drawing = Drawing(146)
    tables = (
        ("encoder", np.ones((4, 4)), BLUE),
        ("decoder, causal", np.tril(np.ones((4, 4))), RED),
        ("decoder to encoder", np.ones((4, 4)), GREEN),
    )
    for number, (name, allowed, color) in enumerate(tables):
        x = 8 + number * 116
        drawing.text(x + 46, 12, name, size=11, color=color)
        drawing.grid(x, 28, allowed / np.maximum(allowed.sum(1, keepdims=True), 1), color=color, size=23)
    drawing.text(WIDTH / 2, 134, "rows: queries, columns: keys", size=11)
    return drawing


def _translation() -> Drawing:
    """Lines from German words to English words: that the birds can hear songs, dass die Vögel Lieder hören
    können. The lines of the last words cross."""
    drawing = Drawing(132)
    source, target = (
        ("that", "the", "birds", "can", "hear", "songs"),
        ("dass", "die", "Vögel", "Lieder", "hören", "können"),
    )
    links = (0, 1, 2, 5, 4, 3)
    for number, (english, german) in enumerate(zip(source, target, strict=True)):
        drawing.text(28 + number * 57, 14, english)
        drawing.text(28 + number * 57, 118, german)
    for row, column in enumerate(links):
        color = BLUE if row == column else RED
        drawing.line(28 + row * 57, 106, 28 + column * 57, 26, color=color, width=2.5, strength=0.8)
    return drawing


def _explaining() -> Drawing:
    """The first layer mixes three letters, so the state that the answer reads in the second layer contains all
    three."""
    drawing = Drawing(170)
    for number, letter in enumerate("ABC"):
        x = 80 + number * 80
        drawing.box(x, 134, letter, width=SIZE, color=COLORS[number])
        drawing.box(x - 22, 72, "⅓ ⅓ ⅓", width=70, color=GOLD)
        for other in range(3):
            drawing.line(93 + 80 * other, 134, x + 13, 98, color=COLORS[other], strength=0.6)
    drawing.box(150, 8, "answer", width=66, color=GREEN)
    drawing.line(93, 72, 168, 34, color=GREEN, width=4)
    drawing.text(60, 46, "weight 1", size=11)
    return drawing


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "lookups": _lookups,
    "counting": _counting,
    "difference": _difference,
    "signal": _signal,
    "signal2": _signal2,
    "forgetting": _forgetting,
    "decoders": _decoders,
    "scores": _scores,
    "waves": _waves,
    "multihead": _multihead,
    "transformer": _transformer,
    "translation": _translation,
    "explaining": _explaining,
    "explanations": language_pictures.draw_explanations,
    "causal": language_pictures.draw_causal,
    "tokens": language_pictures.draw_tokens,
    "sampling": language_pictures.draw_sampling,
    "cache": language_pictures.draw_cache,
    "modern": language_pictures.draw_modern,
    "induction": language_pictures.draw_induction,
    "lens": analysis_pictures.draw_lens,
    "sinks": analysis_pictures.draw_sinks,
    "grokking": analysis_pictures.draw_grokking,
    "doubt": analysis_pictures.draw_doubt,
}
"""The function that draws the picture of each lesson."""
