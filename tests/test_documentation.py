"""What the README shows works as shown, only with fewer steps and samples."""

import re
import shlex
import shutil
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import regard

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_command_of_the_readme_works(
    command: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = re.findall(r"^(regard [tp].*?)(?: {2,}#.*)?$|^\|.*\| `(regard [tp][^`]*)` \|$", README, re.MULTILINE)
    lines = list(dict.fromkeys(first or second for first, second in shown))
    assert len(lines) >= 20
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    for line in lines:
        _, *argv = shlex.split(line)
        if argv[0] == "train" and "--help" not in argv and "--resume" not in argv:
            argv += ["--steps", "2"]
        if argv[0] == "test":
            argv += ["--samples", "5"]
        status, _, err = command(*argv)
        assert status == 0, f"{line}: {err}"


def test_the_python_of_the_readme_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    shown: dict[str, object] = {}
    exec(block.replace("heads=8", "heads=8, steps=2, progress=False"), shown)
    assert isinstance(shown["run"], regard.Run)
    assert (tmp_path / "attention.html").exists()


def test_the_examples_of_the_attention_page_work() -> None:
    page = (ROOT / "docs/attention.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 10
    shown: dict[str, Any] = {}
    for block in blocks:  # each goes on from the one before, as a reader does
        exec(block, shown)
    assert shown["wide"].shape == (2, 7, 80)
    assert shown["target"].shape == (2, 3, 64)
    assert shown["records"]["decoder.layers.0.multihead_attn"].weights.shape == (1, 1, 3, 5)


def test_the_rooms_of_the_readme_are_the_rooms_there_are() -> None:
    (tree,) = re.findall(r"```text\nsrc/regard/\n(.*?)\ntests/", README, re.DOTALL)
    named = {line.split()[0].rstrip("/") for line in tree.splitlines()}
    there = {each.name for each in (ROOT / "src/regard").iterdir() if not each.name.startswith("_")}
    assert named == there - {"py.typed", "version.py"}


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


def test_each_dependency_is_justified() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs/dependencies.md").read_text()
    needed = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    for requirement in needed:
        name = re.split(r"[<>=]", requirement)[0]
        assert f"| {name} |" in page or f"**{name}**" in page, name
