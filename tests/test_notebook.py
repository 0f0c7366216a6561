"""The example notebook runs, and its outputs are widgets and pictures."""

import base64
import json
import sys
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

NOTEBOOK = Path(__file__).parent.parent / "examples" / "look.ipynb"


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("anywidget")
    kernels = tmp_path / "share" / "jupyter" / "kernels" / "python3"
    kernels.mkdir(parents=True)
    # Use the kernel of this environment instead of another installed kernel.
    start = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel = {"argv": start, "display_name": "Python 3", "language": "python"}
    (kernels / "kernel.json").write_text(json.dumps(kernel))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    short = [cell for cell in notebook.cells if "steps=2000" in cell.source]
    assert len(short) == 1
    short[0].source = short[0].source.replace("steps=2000", "steps=20")
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", ())]
    widgets = [data for data in shown if "application/vnd.jupyter.widget-view+json" in data]
    assert len(widgets) == 3 and all("image/png" in data for data in widgets)
    assert (tmp_path / "patch.data.csv").exists() and (tmp_path / "importance.pdf").exists()
    assert (tmp_path / "attention.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_stored_outputs_are_pictures_that_need_no_kernel() -> None:
    """The notebook contains stored outputs for GitHub and exported pages. `python docs/pictures.py notebook`
    updates the outputs."""
    stored = nbformat.read(NOTEBOOK, as_version=4)
    outputs = [output for cell in stored.cells for output in cell.get("outputs", ())]
    shown = [output["data"] for output in outputs if "data" in output]
    pictures = [base64.b64decode(data["image/png"]) for data in shown if "image/png" in data]
    assert len(pictures) == 4 and all(picture.startswith(b"\x89PNG") for picture in pictures)
    assert not any("application/vnd.jupyter.widget-view+json" in data for data in shown)
    assert "widgets" not in stored.metadata
    assert not any(output["output_type"] == "error" for output in outputs)
    assert any("Exact match: 100.00%" in output.get("text", "") for output in outputs)
