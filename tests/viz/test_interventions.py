"""Figures, pages, tables and JSON mention interventions and the prediction without them."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import regard
from regard.attention.interventions import active_interventions, temper
from regard.viz.attention_map import AttentionMap

TEXT = "BCCCBAABACCCA"
OFF, SET = "cross: head 1 off", "encoder.0.self_attention: head 0, weight of query 1 on key 3 set to 0.9"


@pytest.fixture(scope="module")
def changed(trained: regard.AnswerRun) -> AttentionMap:
    with (
        regard.intervene(trained, "cross", heads=[1]),
        regard.intervene(trained, "encoder.0.self_attention", heads=[0], to=0.9, query=1, key=3),
    ):
        return trained.attend(TEXT)


def test_map_contains_interventions_and_the_original_map(trained: regard.AnswerRun, changed: AttentionMap) -> None:
    plain = trained.attend(TEXT)
    assert changed.interventions == (OFF, SET) and changed.model == str(trained.folder)
    assert not changed.cross.weights[1].any() and plain.interventions == () and plain.original is None
    original = changed.original
    assert original is not None and original.interventions == ()
    assert original.prediction == plain.prediction and original.probabilities == pytest.approx(plain.probabilities)
    assert original.cross.weights == pytest.approx(plain.cross.weights, abs=1e-6)
    assert active_interventions(trained.model) == ()


def test_every_kind_of_intervention_is_described(trained: regard.AnswerRun, translator: regard.PairRun) -> None:
    with regard.intervene(trained, "cross", to="uniform"), temper(trained.model, "cross", 2.0, heads=[0]):
        with regard.intervene(translator, translator.layers[-1].name, heads=[0]):
            found = trained.attend(TEXT)
            written = translator.attend("3. Mai 1979")
    assert found.interventions == ("cross: all heads uniform", "cross: head 0, temperature 2")
    assert written.interventions == (f"{translator.layers[-1].name}: head 0 off",)
    assert written.original is not None and written.original.prediction == translator.attend("3. Mai 1979").prediction


@pytest.mark.parametrize("extension", ["png", "svg", "pdf", "html", "json", "terminal"])
def test_every_format_contains_interventions_and_predictions(
    trained: regard.AnswerRun, changed: AttentionMap, tmp_path: Path, extension: str
) -> None:
    path = changed.save(tmp_path / f"a.{extension}") if extension not in ("json", "terminal") else tmp_path
    before, after = (
        " ".join(map(str, each or ()))
        for each in (changed.original and changed.original.prediction, changed.prediction)
    )
    if extension == "terminal":
        console = Console(width=120, record=True, file=io.StringIO())
        console.print(changed.table(), str(changed))
        text, after = console.export_text(), repr(changed.prediction)
    elif extension == "json":
        text = json.dumps(changed.json(), default=str)
        assert changed.json()["original_prediction"] == list(changed.original.prediction)  # type: ignore[union-attr, arg-type]
        before = after = ""
    elif extension == "png":
        with Image.open(path) as image:
            text = str(image.info["Description"])
    elif extension == "html":
        text = path.read_text(encoding="utf-8")
        data = json.loads(text.partition('type="application/json">')[2].partition("</script>")[0])
        assert data["maps"][0]["interventions"] == [OFF, SET]
        assert data["original"]["prediction"] == changed.original.prediction  # type: ignore[union-attr]
        before = after = ""
    else:
        text = path.read_bytes().decode("utf-8", errors="replace")
    for each in (OFF, SET, before, after):
        assert each in text
    if extension in ("png", "svg", "pdf"):
        assert str(trained.folder) in text and "from 0 to" in text and "head 0, head 1" in text


def test_figure_shows_the_interventions(changed: AttentionMap, trained: regard.AnswerRun, tmp_path: Path) -> None:
    """Interventions are drawn, not only stored as metadata: the comments of an SVG contain the text of its glyphs."""
    comments = re.findall(r"<!-- (.*?) -->", changed.save(tmp_path / "a.svg").read_text(encoding="utf-8"))
    assert any(OFF in each for each in comments) and any(
        "Prediction without interventions" in each for each in comments
    )
    plain = re.findall(r"<!-- (.*?) -->", trained.attend(TEXT).save(tmp_path / "b.svg").read_text(encoding="utf-8"))
    assert not any("Interventions" in each for each in plain)
    assert any("square root of the weight, from 0 to" in each and "for all heads" in each for each in plain)


def test_records_contain_the_interventions_active_while_recording(trained: regard.AnswerRun) -> None:
    inputs = trained.task.parse(TEXT)
    with regard.record(trained.model) as records:
        with regard.intervene(trained.model, "cross", heads=[0]):
            trained.model(inputs)
        assert regard.make_maps(records)[0].interventions == ("cross: head 0 off",)
        trained.model(inputs)
        assert regard.make_maps(records)[0].interventions == ()


def test_caption_mentions_omitted_labels(tmp_path: Path) -> None:
    def saved(count: int) -> str:
        labels = [f"▁w{step}" for step in range(count)]
        drawn = regard.view_weights(np.eye(count, dtype=np.float32)[None], labels)
        return drawn.save(tmp_path / "a.svg").read_text(encoding="utf-8")

    assert "steps has a label" not in saved(12) and "w3" in saved(12) and "▁" not in saved(12)
    assert re.search(r"1 in \d+ steps has a label", saved(330))
