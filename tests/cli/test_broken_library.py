"""A broken or incomplete library is reported in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import regard

BROKEN = {
    "raises": "raise ValueError('broken')",
    "part missing": "import a_part_that_is_missing",
    "no Python": "def (",
    "shared library missing": "raise ImportError('libfoo.so.1: cannot open shared object file')",
}


@pytest.mark.parametrize(
    ("library", "way"), [("matplotlib", way) for way in BROKEN] + [("safetensors", "raises")]
)
def test_a_broken_library_is_named(tmp_path: Path, library: str, way: str) -> None:
    regard.train("counting", hidden=4, heads=1, steps=1, savepath=tmp_path / "models", progress=False)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / f"{library}.py").write_text(BROKEN[way])
    path = os.pathsep.join([str(tmp_path / "broken"), *sys.path])
    command = [sys.executable, "-P", "-m", "regard", "plot", "positions", "-o", "model.png"]
    ended = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1), ended.stderr
    assert f"importing {library} fails: " in ended.stderr
    assert ended.stderr.endswith(f"; reinstall it with pip install --force-reinstall {library}\n")
