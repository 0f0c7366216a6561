"""Attention maps: what they hold, and saving them."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard import record
from regard.viz import LayerMap
from regard.viz.page import as_json
from tests.viz.test_terminal import example


def test_a_map_holds_the_models_own_weights_answer_and_labels(trained: regard.AnswerRun) -> None:
    text = "BCCCBAABACCCA"
    attention = trained.attend(text)
    inputs = trained.task.parse(text)
    with record(trained.model) as records:
        logits = trained.model(inputs)
    assert set(attention.layers) == set(records) == {"encoder.0.self_attention", "cross"}
    for name, layer in attention.layers.items():
        np.testing.assert_array_equal(layer.weights, records[name].weights[0].numpy())
    assert attention.prediction == logits[0].argmax(-1).tolist()
    assert attention.truth == [2, 4, 4]
    assert attention.input == text
    assert attention.cross.key_labels == list(text)
    assert attention.cross.query_labels == ["count B", "count C (1st)", "count C (2nd)"]
    assert attention.cross.relevant is not None
    assert np.flatnonzero(attention.cross.relevant[0]).tolist() == [0, 4, 7]
    assert attention.layers["encoder.0.self_attention"].query_labels == list(text)
    positions = trained.model.learned_positions
    assert positions is not None and attention.position_norms is not None
    torch.testing.assert_close(torch.tensor(attention.position_norms), positions.norm(dim=1))


def test_outputs_that_attend_to_outputs_and_rest(tmp_path: Path) -> None:
    run = regard.train("difference", self_att=True, vary_len=True, steps=2, savepath=tmp_path, progress=False)
    attention = run.attend("A_B")
    assert attention.cross.key_labels == ["A", "␣", "B", "rest"]
    assert attention.cross.relevant is not None
    assert attention.cross.relevant.tolist() == [
        [True, False, False, False],
        [False, False, True, False],
        [False, False, False, False],
        [True, False, True, False],
    ]
    assert attention.layers["self_attention"].key_labels == ["count A", "count B", "count C", "|A - B|"]
    assert attention.position_norms is None


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("map.png", b"\x89PNG\r\n"),
        ("map.svg", b"<?xml"),
        ("map.PDF", b"%PDF"),
        ("map.html", b"<!doctype html>"),
    ],
)
def test_saves_by_its_ending_the_same_each_time(
    trained: regard.AnswerRun, tmp_path: Path, name: str, start: bytes
) -> None:
    attention = trained.attend("BCCCBAABACCCA")
    file = attention.save(tmp_path / name)
    content = file.read_bytes()
    assert content.startswith(start)
    assert b"not drawn" not in content and len(content) > 2000
    if name != "map.svg":  # matplotlib names an SVG's parts at random
        assert attention.save(file).read_bytes() == content


def test_another_ending_is_refused(trained: regard.AnswerRun, tmp_path: Path) -> None:
    with pytest.raises(regard.InputError, match="has no known ending: choose one of .png, .svg, .pdf, .html"):
        trained.attend().save(tmp_path / "map.doc")


def test_shows_itself_in_a_notebook_and_in_print(trained: regard.AnswerRun) -> None:
    attention = trained.attend("BCCCBAABACCCA")
    assert attention._repr_png_().startswith(b"\x89PNG")
    assert "Output step 2 (count C (2nd))" in str(attention)


def _layer(name: str, weights: "np.ndarray", relevant: "np.ndarray | None" = None) -> LayerMap:
    queries, keys = weights.shape[1:]
    labels = [f"q{step}" for step in range(queries)], [f"k{step}" for step in range(keys)]
    return LayerMap(
        name=name, title=name, weights=weights, query_labels=labels[0], key_labels=labels[1], relevant=relevant
    )


def test_the_head_that_aligns_best() -> None:
    """Not one that looks everywhere alike, nor one that looks at the same input all the time, however surely."""
    even, stuck, one_to_one = np.full((5, 5), 0.2), np.zeros((5, 5)), 0.6 * np.eye(5)[::-1] + 0.08
    stuck[:, 4] = 1
    first = _layer("decoder.0.cross", np.stack([even, stuck]))
    second = _layer("decoder.1.cross", np.stack([stuck, one_to_one]))
    own = _layer("decoder.0.self_attention", np.eye(5)[None])
    attention = dataclasses.replace(example(), layers={each.name: each for each in (own, first, second)})
    assert attention.aligned is not None and attention.aligned.layer is second and attention.aligned.head == 1
    assert as_json(attention)["opens"] == "decoder.1.cross"
    relevant = np.zeros((5, 5), dtype=bool)
    relevant[:, 4] = True
    known = dataclasses.replace(first, relevant=relevant), dataclasses.replace(second, relevant=relevant)
    attention = dataclasses.replace(example(), layers={each.name: each for each in known})
    assert attention.aligned is not None and attention.aligned.layer is known[0] and attention.aligned.head == 1
    assert as_json(attention)["head"] is None
    chosen = dataclasses.replace(attention, aligning=("decoder.1.cross", 0))
    assert chosen.aligned is not None and chosen.aligned.layer is known[1] and chosen.aligned.head == 0
    found = as_json(chosen)
    assert (found["opens"], found["head"]) == ("decoder.1.cross", 0)
    some = chosen.chosen(heads=[1])  # without the head that was chosen
    assert some.chosen_head is None and as_json(some)["head"] is None
    nothing = dataclasses.replace(example(), layers={})
    assert nothing.aligned is None and as_json(nothing)["opens"] is None
