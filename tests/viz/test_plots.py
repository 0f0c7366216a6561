"""Size, fonts and style of figures for papers, and the files written with each figure."""

import csv
import json
import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

import regard
from regard.attention.positions import Sinusoidal
from regard.errors import InputError
from regard.interpret.figures import FIGURE_KINDS
from regard.viz.figure import WIDTHS, figure_style, new_figure
from regard.viz.heatmaps import HeadGrid, MatrixPlot, token_labels
from regard.viz.plots import drawn_dimensions, position_scale, similarity, spread_labels

KINDS = ["heads", "alignment", "importance", "entropy", "positions", "learning", "embeddings"]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", [*KINDS, "induction", "rollout"])
def test_width_fonts_and_text_size(
    trained: regard.AnswerRun, german: regard.TranslationRun, tmp_path: Path, kind: str, width: float
) -> None:
    subject: object = trained
    options: dict[str, object] = {"samples": 5}
    if kind in ("induction", "rollout"):
        subject = german
        options = {"inputs": ["der Hund und der Hund sieht den Mann"]}
    figure = regard.plot(kind, subject, width=width, **options)  # type: ignore[arg-type]
    drawn = figure.figure()
    assert drawn.get_size_inches()[0] == (min(width, 4.4) if kind == "heads" else width)  # as wide as its heads
    drawn.draw_without_rendering()
    texts = [text for text in drawn.findobj(Text) if text.get_text() and text.get_visible()]
    assert texts and min(float(text.get_fontsize()) for text in texts) >= 6
    needed = drawn.get_tightbbox()
    width_and_height = drawn.get_size_inches()
    assert (np.asarray(needed.min) > -0.02).all() and (np.asarray(needed.max) < width_and_height + 0.02).all()

    if kind != "heads" and width != WIDTHS[0]:
        return  # files of the other width differ only in the size, which "heads" checks
    width = float(drawn.get_size_inches()[0])
    pdf = figure.save(tmp_path / "figure.pdf").read_bytes()
    [right] = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ", pdf)
    assert float(right) == pytest.approx(width * 72)
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf
    with Image.open(figure.save(tmp_path / "figure.png")) as picture:
        assert picture.width == pytest.approx(width * 400, abs=1)
    svg = figure.save(tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert "<text" not in svg and f'width="{width * 72:.6g}pt"' in svg


def test_all_kinds_are_tested() -> None:
    assert {*KINDS, "induction", "rollout"} == set(FIGURE_KINDS)


def test_equal_figures_are_equal_files(trained: regard.AnswerRun, tmp_path: Path) -> None:
    files = [regard.plot("heads", trained).save(tmp_path / f"{name}.pdf").read_bytes() for name in "ab"]
    assert files[0] == files[1]


def test_a_style_sheet_wins_over_rcparams_and_these_over_the_sheet_of_regard(tmp_path: Path) -> None:
    with figure_style():
        assert matplotlib.rcParams["axes.labelsize"] == 7
    with matplotlib.rc_context({"axes.labelsize": 9, "axes.titlesize": 10}):
        style = tmp_path / "own.mplstyle"
        style.write_text("axes.titlesize: 11\n")
        with figure_style(style):
            assert matplotlib.rcParams["axes.labelsize"] == 9
            assert matplotlib.rcParams["axes.titlesize"] == 11
            assert matplotlib.rcParams["xtick.labelsize"] == 6
    assert matplotlib.rcParams["axes.labelsize"] == matplotlib.rcParamsDefault["axes.labelsize"]


@pytest.mark.parametrize("content", [b"no.such.setting: 3\n", b"axes.labelsize: enormous\n", b"\xff\xfe\x00"])
def test_a_broken_style_sheet_is_one_line(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    style = tmp_path / "own.mplstyle"
    style.write_bytes(content)
    with pytest.raises(InputError, match=r"style '.*own.mplstyle' ") as error:
        regard.plot("positions", style=style)
    assert "\n" not in str(error.value)
    assert capsys.readouterr().err == ""


def test_a_larger_font_labels_fewer_steps_and_the_caption_says_so(
    german: regard.TranslationRun, tmp_path: Path
) -> None:
    style = tmp_path / "large.mplstyle"
    style.write_text("xtick.labelsize: 24\nytick.labelsize: 24\n")
    text = ["der Hund sieht den Mann und der Mann sieht den Hund"]
    assert "has a label" not in regard.plot("alignment", german, inputs=text, width=6.9).caption
    assert "steps has a label" in regard.plot("alignment", german, inputs=text, width=6.9, style=style).caption


def test_data_files_hold_the_numbers(trained: regard.AnswerRun, tmp_path: Path) -> None:
    attention = trained.attend("BCCCBAABACCCA")
    figure = regard.plot("heads", trained, inputs=["BCCCBAABACCCA"])
    figure.save(tmp_path / "heads.pdf")
    data = json.loads((tmp_path / "heads.data.json").read_text(encoding="utf-8"))
    assert data["input"] == "BCCCBAABACCCA"
    for name, layer in attention.layers.items():
        np.testing.assert_allclose(data["layers"][name]["weights"], layer.weights, atol=1e-6)
        assert data["layers"][name]["keys"] == layer.key_labels
    regard.plot("importance", trained, samples=20).save(tmp_path / "importance.pdf")
    rows = list(csv.DictReader((tmp_path / "importance.data.csv").read_text().splitlines()))
    added = trained.importance(samples=20).added
    assert {(row["layer"], int(row["head"])): float(row["added"]) for row in rows} == {
        (layer, head): value for layer, values in added.items() for head, value in enumerate(values)
    }


def test_a_notebook_shows_the_figure(trained: regard.AnswerRun) -> None:
    figure = regard.plot("learning", trained)
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert str(figure) == figure.caption
    assert figure.json()["kind"] == "learning" and len(figure.json()["data"]) == len(trained.metrics)


def test_interventions_are_in_the_caption(trained: regard.AnswerRun) -> None:
    with regard.intervene(trained.model, "cross", heads=[1], to="off"):
        figure = regard.plot("heads", trained, inputs=["BCCCBAABACCCA"])
    assert "Interventions: cross: head 1 off." in figure.caption


def test_the_grid_of_heads_shows_every_weight() -> None:
    rows = [np.eye(4)[None].repeat(3, 0), np.ones((2, 2, 4)) / 4]
    with figure_style():
        grid = HeadGrid(rows=rows, labels=["0", "1"], width=3.3)
        assert grid.largest == 1.0
        [axes, *_] = grid.draw().axes
    image = np.asarray(axes.images[0].get_array())
    panel = image[: len(image) // 2, : image.shape[1] // 3]
    dark = panel[..., 0] < 60  # the darkest color is #38249b
    assert 0.15 < dark.mean() < 0.3  # the diagonal of 4 x 4, without the gaps
    assert (image[-1, -1] == 0).all()  # the second layer has no third head: transparent


def test_long_inputs_are_thinned_and_said_to_be() -> None:
    weights = np.zeros((3000, 3000), dtype=np.float32)
    weights[1500, 7] = 1
    labels = [str(step) for step in range(3000)]
    with figure_style():
        plot = MatrixPlot(weights=weights, queries=labels, keys=labels, width=3.3, axis_names=("query", "key"))
        figure = new_figure(plot.width, plot.height)
        plot.draw(figure)
        assert re.search(
            r"1 in \d+ steps has a label\. Each pixel is the largest weight of \d+ x \d+ steps", plot.notes
        )
    image = np.asarray(figure.axes[0].images[0].get_array())
    assert (image[..., 0] < 60).any()  # the single weight is still drawn


def test_labels_of_tokens() -> None:
    assert token_labels(["[CLS]", "▁un", "seen", "▁", ",", "[SEP]"]) == ["[CLS]", "un", "·seen", "␣", ",", "[SEP]"]
    assert token_labels(["A", "B"]) == ["A", "B"]


def test_scales_dimensions_and_labels() -> None:
    vectors = np.full((100, 100), 0.1)
    assert position_scale(vectors) == pytest.approx(0.1)
    vectors[0, 0] = 9
    assert position_scale(vectors) == pytest.approx(0.1)
    assert drawn_dimensions(100) == [0, 14, 28, 42, 57, 71, 85, 99]
    points = np.array([[0.0, 0.0], [0.001, 0.0], [1.0, 1.0]])
    with figure_style():
        assert spread_labels(points, {0: "cat", 1: "dog", 2: "mat"}, 2.0, 2.0) == [0, 2]


def test_similarity_is_the_cosine() -> None:
    vectors = np.array([[3.0, 0.0], [0.0, 2.0], [1.0, 1.0], [0.0, 0.0]])
    half = 0.5**0.5
    np.testing.assert_allclose(
        similarity(vectors), [[1, 0, half, 0], [0, 1, half, 0], [half, half, 1, 0], [0, 0, 0, 0]]
    )


def test_sinusoidal_similarity_depends_only_on_distance() -> None:
    cosines = similarity(Sinusoidal(16).vectors(0, 30).numpy())
    for distance in range(30):
        np.testing.assert_allclose(np.diagonal(cosines, distance), cosines[0, distance])
