"""The primer's printout, and the heatmap."""

import dataclasses
import io

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from regard.viz import AttentionMap, LayerMap
from regard.viz.terminal import cell, describe, heatmap, mainly


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


def printed(attention: AttentionMap, width: int = 80) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width).print(heatmap(attention))
    return file.getvalue().splitlines()


def written(heads: int, words: list[str], layers: int = 2) -> AttentionMap:
    """A translation: each word is a word of its source in one head of the last layer, and nowhere else."""
    even = np.full((heads, len(words), len(words)), 1 / len(words), dtype=np.float32)
    sharp = even.copy()
    sharp[-1] = np.eye(len(words))
    found = {
        f"decoder.{number}.cross": LayerMap(
            name=f"decoder.{number}.cross",
            title=f"Layer {number}",
            weights=sharp if number == layers - 1 else even,
            query_labels=[word.upper() for word in words],
            key_labels=words,
        )
        for number in range(layers)
    }
    return dataclasses.replace(example(), prediction=" ".join(words), layers=found, outputs=words)


WORDS = ["ein", "kleiner", "Hund", "läuft", "heute", "mit", "großer", "Freude", "über", "die", "lange"]
WORDS += ["Donaudampfschifffahrtsbrücke"]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_translation_keeps_its_words_and_the_width(width: int) -> None:
    """Every word stands beside its row, and letter by letter above its column; nothing is folded."""
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


def test_the_head_that_aligns_best_is_shown_and_the_others_are_told_of() -> None:
    lines = printed(written(4, WORDS))
    assert lines[0] == "Layer 1:" and not any("head 2" in line for line in lines)
    said = " ".join(lines[-2:])
    assert "head 3 of decoder.1.cross, of 8 heads" in said and "--plot page.html" in said
    assert len(lines) < 40


def test_one_head_has_no_others() -> None:
    assert "others" not in "".join(printed(written(1, WORDS[:3], layers=1)))


def test_records_of_a_large_model_are_no_wall() -> None:
    words = [f"w{step}" for step in range(30)]
    attention = dataclasses.replace(written(12, words, layers=12), prediction=None)
    assert len(printed(attention)) < 80


def test_numbers_are_folded() -> None:
    weights = np.full((1, 1, 40), 0.025, dtype=np.float32)
    layer = dataclasses.replace(example().cross, weights=weights, key_labels=["A"] * 40, relevant=None)
    text = describe(dataclasses.replace(example(), layers={"cross": layer}))
    assert max(map(len, text.splitlines())) <= 80 and text.count("0.025") == 40
