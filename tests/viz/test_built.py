"""The bundled scripts, which are files of the package."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from regard.viz.page import built_script

ROOT = Path(__file__).parents[2]
ESBUILD = ROOT / "node_modules" / ".bin" / "esbuild"
NAMES = ("explorer", "live", "loader", "view", "worker")


@pytest.mark.skipif(not ESBUILD.exists() or shutil.which("npm") is None, reason="needs Node and make build-view")
def test_bundles_are_those_of_the_sources(tmp_path: Path) -> None:
    command = ["npm", "run", "--silent", "build", "--", f"--outdir={tmp_path}"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    for name in NAMES:
        made = (tmp_path / f"{name}.js").read_text(encoding="utf-8").strip()
        assert made == built_script(name), f"{name}.js is old: run make build-view"


@pytest.mark.parametrize("name", NAMES)
def test_a_bundle_imports_nothing_and_cannot_end_its_script_element(name: str) -> None:
    text = built_script(name)
    assert not re.search(r"\bimport\s*[{*(\"']", text) and "</script" not in text
