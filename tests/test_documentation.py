"""What the README shows works as shown, only with fewer steps and samples."""

import gzip
import re
import shlex
import shutil
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import regard
from tests.german import sentences, write

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {
    "README.md": README,
    **{name: (ROOT / name).read_text(encoding="utf-8") for name in ("docs/recurrent.md", "docs/looking.md")},
}


@pytest.mark.parametrize(
    ("page", "least"), [("README.md", 20), ("docs/recurrent.md", 12), ("docs/looking.md", 5)]
)
def test_every_command_shown_works(
    command: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    page: str,
    least: int,
) -> None:
    pattern = r"^(regard [tpce].*?)(?: {2,}#.*)?$|^\|.*\| `(regard [tpce][^`]*)` \|$"
    shown = re.findall(pattern, PAGES[page], re.MULTILINE)
    lines = list(dict.fromkeys(first or second for first, second in shown))
    assert len(lines) >= least
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    for line in lines:
        _, *argv = shlex.split(line)
        if argv[0] == "train" and "--help" not in argv and "--resume" not in argv:
            argv += ["--steps", "2"]
        if argv[0] in ("test", "examine"):
            argv += ["--samples", "5"]
        if argv[0] == "compare":
            argv = [word.split(",")[0] for word in argv]  # one value of each: processes take seconds to start
            argv += ["--steps", "2", "--batchsize", "2", "--seeds", "1"]
        status, _, err = command(*argv)
        assert status == 0, f"{line}: {err}"


def test_every_command_of_the_translation_page_works(
    command: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the tests' German in place of Multi30k."""
    page = (ROOT / "docs/translation.md").read_text(encoding="utf-8")
    lines = re.findall(r"^regard (t.*?)(?: {2,}#.*)?$", page, re.MULTILINE)
    assert len(lines) == 4
    data = tmp_path / "data" / "multi30k"
    data.mkdir(parents=True)
    for part, files in write(tmp_path).items():
        name = {"train": "train", "valid": "val", "test": "test_2016_flickr"}[part]
        for file in map(Path, files):
            (data / f"{name}{file.suffix}.gz").write_bytes(gzip.compress(file.read_bytes()))
    monkeypatch.chdir(tmp_path)
    for line in lines:
        argv = shlex.split(line)
        if argv[0] == "train" and "--help" not in argv:
            argv += ["--vocab_size", "60", "--steps", "2", "--hidden", "16"]
        status, _, err = command(*argv)
        assert status == 0, f"{line}: {err}"
    assert (tmp_path / "hund.png").exists()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "corpus.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in sentences()))
    exec(shortened(block).replace("steps=2", "steps=2, overwrite=True"), {})


def test_the_python_of_the_readme_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    shown: dict[str, object] = {}
    exec(shortened(block), shown)
    assert isinstance(shown["run"], regard.PairRun)
    assert (tmp_path / "attention.html").exists() and (tmp_path / "alignment.png").exists()


def test_the_python_of_the_recurrent_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGES["docs/recurrent.md"], re.DOTALL)
    monkeypatch.chdir(tmp_path)
    shown: dict[str, Any] = {}
    exec(shortened(block), shown)
    assert shown["attention"].cross.weights.shape[2] == len("3. Mai 1979") + 1


def shortened(block: str) -> str:
    """Train for two steps where a page trains for all."""
    return re.sub(r"regard\.train\(([^)]*)\)", r"regard.train(\1, steps=2, progress=False)", block)


def test_the_examples_of_the_attention_page_work() -> None:
    page = (ROOT / "docs/attention.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 11
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


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link


def test_each_dependency_is_justified() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs/dependencies.md").read_text()
    needed = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    for requirement in needed:
        name = re.split(r"[<>=]", requirement)[0]
        assert f"| {name} |" in page or f"**{name}**" in page, name
