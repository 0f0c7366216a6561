"""Lists of weights in the primer's format, and the heatmap."""

import dataclasses
import io

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from regard.viz.attention_map import AttentionMap
from regard.viz.maps import LayerMap
from regard.viz.terminal import cell, heatmap, largest_keys


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


def test_list_of_weights() -> None:
    assert str(example()) == "\n".join(
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


def test_equal_rounded_weights_tie() -> None:
    assert largest_keys(np.array([0.33332, 0.33331, 0.3324])) == [0, 1]


def test_heatmap_is_readable_without_colour() -> None:
    file = io.StringIO()
    Console(file=file, width=80).print(heatmap(example()))
    lines = file.getvalue().splitlines()
    assert lines[1].split() == ["A", "A", "B"]
    assert lines[2].split() == ["count", "A", "head", "0", "▒▒x▒▒x"]
    assert lines[3].split() == ["head", "1", "░░x", "x██"]


def test_shades_from_zero_to_the_largest() -> None:
    shown = [cell(weight, 0.8, False).plain for weight in (0.0, 0.2, 0.4, 0.6, 0.8)]
    assert shown == ["   ", "░░ ", "▒▒ ", "▓▓ ", "██ "]


def printed(attention: AttentionMap, width: int = 80) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width).print(heatmap(attention))
    return file.getvalue().splitlines()


def written(heads: int, words: list[str], layers: int = 2) -> AttentionMap:
    """Return the map of a translation, in which one head of the last layer aligns and all other heads are uniform."""
    even = np.full((heads, len(words), len(words)), 1 / len(words), dtype=np.float32)
    sharp = even.copy()
    sharp[-1] = np.eye(len(words))
    maps = {
        f"decoder.{number}.cross": LayerMap(
            name=f"decoder.{number}.cross",
            title=f"Layer {number}",
            weights=sharp if number == layers - 1 else even,
            query_labels=[word.upper() for word in words],
            key_labels=words,
        )
        for number in range(layers)
    }
    return dataclasses.replace(example(), prediction=" ".join(words), layers=maps, outputs=words)


WORDS = ["ein", "kleiner", "Hund", "läuft", "heute", "mit", "großer", "Freude", "über", "die", "lange"]
WORDS += ["Donaudampfschifffahrtsbrücke"]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_words_are_labelled_within_the_width(width: int) -> None:
    """Every row and, vertically, every column is labeled with its word, and no line is wrapped."""
    lines = printed(written(4, WORDS), width)
    assert all(cell_len(line) <= width for line in lines)
    for word in WORDS:
        assert any(line.startswith(word.upper()[:19]) for line in lines)
    if width == 80:
        heading = lines[1:15]
        left = next(index for index, line in enumerate(lines) if line.startswith("EIN"))
        assert left == 15 and lines[left].index("██") == lines[left].index("head 3") + len("head 3 ")
        columns = [lines[left].index("██") + 3 * place for place in range(len(WORDS))]
        read = ["".join(line.ljust(80)[column + 1] for line in heading).strip() for column in columns]
        assert read == [*WORDS[:-1], "Donaudampfsch…"]


def test_best_head_is_shown_and_others_are_mentioned() -> None:
    lines = printed(written(4, WORDS))
    assert lines[0] == "Layer 1:" and not any("head 2" in line for line in lines)
    text = " ".join(lines[-2:])
    assert "head 3 of decoder.1.cross: of 8 heads" in text and "--plot page.html" in text
    assert len(lines) < 40


def test_single_head_mentions_no_others() -> None:
    assert "others" not in "".join(printed(written(1, WORDS[:3], layers=1)))


def test_large_models_fit_a_screen() -> None:
    words = [f"w{step}" for step in range(30)]
    attention = dataclasses.replace(written(12, words, layers=12), prediction=None)
    assert len(printed(attention)) < 80


def test_long_lists_are_wrapped() -> None:
    weights = np.full((1, 1, 40), 0.025, dtype=np.float32)
    layer = dataclasses.replace(example().cross, weights=weights, key_labels=["A"] * 40, relevant=None)
    text = str(dataclasses.replace(example(), layers={"cross": layer}))
    assert max(map(len, text.splitlines())) <= 80 and text.count("0.025") == 40
