"""The primer's printout, and the heatmap."""

import io

import numpy as np
from rich.console import Console

from regard.inspection import AttentionMap, LayerMap
from regard.inspection.terminal import cell, describe, heatmap, mainly


def example() -> AttentionMap:
    weights = np.array([[[0.5, 0.5, 0.0]], [[0.1234, 0.0, 0.8766]]], dtype=np.float32)
    cross = LayerMap(
        name="cross",
        title="Encoder-decoder attention",
        weights=weights,
        query_labels=["count A"],
        key_labels=["A", "A", "B"],
        relevant=np.array([[True, True, False]]),
    )
    return AttentionMap(
        task="counting",
        input="AAB",
        prediction=[2],
        truth=[3],
        layers={"cross": cross},
        outputs=["count A"],
        probabilities=[0.75],
        position_norms=[1.0, 0.25, 0.12345],
    )


def test_the_printout() -> None:
    assert describe(example()) == "\n".join(
        [
            "Input:      'AAB'",
            "Prediction: [2]",
            "Truth:      [3]",
            "",
            "Encoder-decoder attention:",
            "Output step 0 (count A)",
            "    Head #0 attended mainly to Input steps: [0, 1]",
            "    [0.500, 0.500, 0.000]",
            "    Head #1 attended mainly to Input steps: [2]",
            "    [0.123, 0.000, 0.877]",
            "",
            "L2-Norm of Input Positional Encoding:",
            "[1.000, 0.250, 0.123]",
        ]
    )


def test_steps_that_differ_by_rounding_tie() -> None:
    assert mainly(np.array([0.33332, 0.33331, 0.3324])) == [0, 1]


def test_the_heatmap_is_readable_without_colour() -> None:
    file = io.StringIO()
    Console(file=file, width=80).print(heatmap(example()))
    lines = file.getvalue().splitlines()
    assert lines[1].split() == ["A", "A", "B"]
    assert lines[2].split() == ["count", "A", "head", "0", "▒▒x▒▒x"]
    assert lines[3].split() == ["head", "1", "░░x", "x██"]


def test_shades_go_from_nothing_to_the_largest() -> None:
    shown = [cell(weight, 0.8, False).plain for weight in (0.0, 0.2, 0.4, 0.6, 0.8)]
    assert shown == ["   ", "░░ ", "▒▒ ", "▓▓ ", "██ "]
