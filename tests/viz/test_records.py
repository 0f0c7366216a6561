"""Maps of recorded weights, and the widget."""

import io
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.attention.multihead import MultiHeadAttention
from tests.viz.test_page import data_of


@pytest.fixture
def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.ModuleDict({"a": torch.nn.ModuleDict({"layers": MultiHeadAttention(8, 2)})})


def _recorded(model: Any, **limits: Any) -> Any:
    with regard.record(model, **limits) as records:
        model["a"]["layers"](torch.randn(2, 3, 8))
    return regard.make_maps(records)


def test_records_fill_during_the_forward_pass(model: torch.nn.Module) -> None:
    with regard.record(model) as records:
        assert len(records) == 0
        with pytest.raises(regard.InputError, match="nothing is recorded yet"):
            regard.make_maps(records)
        model["a"]["layers"](torch.randn(2, 3, 8))  # type: ignore[index]
    assert list(records) == ["a.layers"] and "a.layers" in records
    with pytest.raises(KeyError):
        records["b"]


def test_page_contains_every_input_of_the_batch(model: torch.nn.Module, tmp_path: Path) -> None:
    found = _recorded(model, query_labels=list("abc"), key_labels=list("abc"))
    maps = data_of(found.to_html(tmp_path / "r.html").read_text())["maps"]
    assert [data["input"] for data in maps] == ["input 0", "input 1"]
    assert maps[0]["layers"][0]["queries"] == ["a", "b", "c"]


def test_unrecorded_labels_become_indices(model: torch.nn.Module) -> None:
    found = _recorded(model, rows=[2], query_labels=list("abc"))
    [layer] = found[0].layers.values()
    assert (layer.query_labels, layer.key_labels) == (["c"], ["0", "1", "2"])


def test_figures(model: torch.nn.Module, tmp_path: Path) -> None:
    for name, start in (("r.png", b"\x89PNG"), ("r.svg", b"<?xml"), ("r.pdf", b"%PDF")):
        assert _recorded(model).plot(tmp_path / name, input=1).read_bytes().startswith(start)


def test_a_heatmap_in_a_terminal(model: torch.nn.Module) -> None:
    from rich.console import Console

    console = Console(width=80, record=True, file=io.StringIO())
    console.print(_recorded(model, query_labels=["one", "two", "three"]))
    text = console.export_text()
    assert "a.layers:" in text and "three head 0" in text and "weight" in text


def test_widget_has_a_figure_as_fallback(model: torch.nn.Module) -> None:
    pytest.importorskip("anywidget")
    widget = _recorded(model).view()
    bundle, _ = widget._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle and bundle["image/png"].startswith(b"\x89PNG")


def test_widget_sends_exact_weights_on_request(trained: regard.AnswerRun) -> None:
    pytest.importorskip("anywidget")
    attention = trained.attend("BCCCBAABACCCA")
    widget = attention.view()
    sent: list[Any] = []
    widget.send = sent.append
    widget._answer(widget, {"map": 0, "layer": "cross", "head": 1, "query": 2, "id": "x"}, [])
    assert sent == [{"id": "x", "found": attention.cross.weights[1, 2].tolist()}]
    widget._answer(widget, {"map": 9, "layer": "cross"}, [])
    assert len(sent) == 1


def test_maps_without_attention_are_rejected(tmp_path: Path) -> None:
    pytest.importorskip("anywidget")
    run = regard.train("counting", model="pooling", pooling="max", hidden=4, steps=1, savepath=tmp_path, progress=False)
    with pytest.raises(regard.InputError, match="there is no attention to show"):
        run.attend("ABBA_CABBA").view()
