"""What the README shows works as shown, only with fewer steps and samples."""

import gzip
import importlib
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import regard
from tests.german import LINKS, sentences, write

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {
    "README.md": README,
    **{name: (ROOT / name).read_text(encoding="utf-8") for name in ("docs/recurrent.md", "docs/looking.md")},
}

LINKED = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(set((ROOT / "docs").rglob("*.md")) - set((ROOT / "docs" / "reference").glob("*.md"))),
]
"""All pages that are written, not made."""


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
    assert len(lines) == 8
    data = tmp_path / "data" / "multi30k"
    data.mkdir(parents=True)
    for part, files in write(tmp_path).items():
        name = {"train": "train", "valid": "val", "test": "test_2016_flickr"}[part]
        for file in map(Path, files):
            (data / f"{name}{file.suffix}.gz").write_bytes(gzip.compress(file.read_bytes()))
    monkeypatch.chdir(tmp_path)
    for name in ("large.tsv", "small.tsv", "mine.tsv", "mine-valid.tsv", "corpus.tsv"):
        (tmp_path / name).write_text("".join(f"{source}\t{target}\n" for source, target in sentences()))
    for line in lines:
        argv = shlex.split(line)
        if argv[0] == "train" and "--help" not in argv:
            argv += ["--vocab_size", "60", "--steps", "2", "--hidden", "16"]
        status, _, err = command(*argv)
        assert status == 0, f"{line}: {err}"
    assert (tmp_path / "hund.png").exists()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(shortened(block).replace("steps=2", "steps=2, overwrite=True"), {})


def test_every_command_of_the_aligning_page_works(
    command: Callable[..., tuple[int, str, str]],
    german: regard.TranslationRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the tests' German and a run on it, for every run that the page names."""
    page = (ROOT / "docs/aligning.md").read_text(encoding="utf-8")
    lines = re.findall(r"^regard (.*?)(?: +#.*| > .*)?$", page, re.MULTILINE)
    assert len(lines) == 12
    monkeypatch.chdir(tmp_path)
    for name in ("translation", "de-en", "en-de"):
        shutil.copytree(german.folder, tmp_path / "models" / name)
    pairs = sentences()
    for names, side in ((("source.txt", "val.de", "train.de"), 0), (("target.txt", "val.en", "train.en"), 1)):
        for name in names:
            (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    for name in ("gold.txt", "train.links"):
        (tmp_path / name).write_text(f"{LINKS}\n" * len(pairs))
    for line in lines:
        argv = shlex.split(line)
        if "--silver" in argv and importlib.util.find_spec("eflomal") is None:
            continue
        if argv[0] == "train":
            argv += ["--steps", "2", "--overwrite", *(["--vocab_size", "60"] if argv[1] == "translation" else [])]
        status, _, err = command(*argv)
        assert status == 0, f"{line}: {err}"
    (tmp_path / "gold.txt").write_text(f"{LINKS}\n" * 100)
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    shown: dict[str, Any] = {}
    exec(block, shown)
    assert shown["found"].weights.shape == (7, 7) and len(shown["known"]) == 100


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
    assert len(blocks) == 12
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


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        aim = (page.parent / path).resolve() if path else page
        assert aim.exists(), f"{link}: there is no {aim}"
        assert not anchor or anchor in anchors_of(aim), f"{link}: {aim.name} has no such heading"


def test_links_and_anchors_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# `regard.attention`: a, b-c (d)?\n## Why\n## Why\n[a\nb](x.md#why-1) ![c](d.png) <https://e.org> [f](https://g.org)\n"
        "`[h](i.md)`\n```sh\n# no heading [j](k.md)\n```\n[l]: m.md\n"
    )
    assert links_of(page) == ["x.md#why-1", "d.png", "m.md"]
    assert anchors_of(page) == {"regardattention-a-b-c-d", "why", "why-1"}


def links_of(page: Path) -> list[str]:
    """Return the links of a page to files and headings, without those to the network."""
    prose = re.sub(r"`[^`\n]*`", "", without_code(page))
    found = re.findall(r"\]\(([^)\s]+)\)|^\[[^\]]+\]:\s+(\S+)", prose, re.MULTILINE)
    return [link for link in map("".join, found) if not re.match(r"[a-z]+:", link)]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    found: list[str] = []
    for title in re.findall(r"^#+ (.*)$", without_code(page), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        again = sum(re.fullmatch(rf"{re.escape(slug)}(-\d+)?", each) is not None for each in found)
        found.append(f"{slug}-{again}" if again else slug)
    return set(found)


def without_code(page: Path) -> str:
    """Return a page without its listings, in which a `#` is no heading and a bracket no link."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def test_each_table_of_results_has_one_place() -> None:
    """Programs write the tables between these markers, wherever they stand."""
    pages = [page.read_text(encoding="utf-8") for page in LINKED if "results" in str(page.relative_to(ROOT))]
    assert len(pages) == 5
    names = re.findall(r"<!-- table: (.*?) -->\n\|.*?\n<!-- end -->", "".join(pages), re.DOTALL)
    assert len(names) == len(set(names)) == "".join(pages).count("<!-- table:") == 21


def test_the_reference_has_every_room_and_every_public_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    pages = importlib.import_module("reference").reference(ROOT / "src" / "regard")
    rooms = {each.parent.name for each in (ROOT / "src/regard").glob("*/__init__.py")}
    assert set(pages) == {"index", "regard"} | rooms
    for package in ("regard", "regard.attention", "regard.models"):
        for name in importlib.import_module(package).__all__:
            if not name.startswith("_"):
                documented = re.compile(rf"\{{py:\w+\}} {name}\b.*\n:module: regard(\.\w+)?\n")
                assert any(documented.search(page) for page in pages.values()), f"{package}.{name}"


def test_the_reference_shows_what_docstrings_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = tmp_path / "house" / "kitchen"
    room.mkdir(parents=True)
    (tmp_path / "house" / "__init__.py").write_text('"""A house."""\n')
    (room / "__init__.py").write_text('"""To cook."""\nfrom house.kitchen.pots import Pot\n__all__ = ["Pot"]\n')
    (room / "pots.py").write_text(
        'class Pot:\n    """A `pot` of <b>."""\n    lid: "Pot | None" = None\n    """Its own."""\n'
        '    def boil(self, how: str = "soft") -> "Pot":\n        """Boil."""\n    def _hide(self): ...\n'
    )
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    pages = importlib.import_module("reference").reference(tmp_path / "house")
    assert "| [house.kitchen](kitchen.md) | To cook. |" in pages["index"]
    (found,) = re.findall(r"(?s)`{4}\{py:class\} Pot\n.*`{4}", pages["kitchen"])
    assert ":module: house.kitchen\n:canonical: house.kitchen.pots.Pot\n\nA `pot` of \\<b>.\n" in found
    assert "{py:attribute} lid\n:type: 'house.kitchen.Pot | None'\n:value: 'None'\n\nIts own.\n" in found
    assert "{py:method} boil(how: str='soft') -> house.kitchen.Pot\n\nBoil.\n" in found
    assert "_hide" not in found


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="the site needs the extra docs")
    sphinx = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet"]
    places = ["--conf-dir", ROOT / "docs" / "site", "--doctree-dir", tmp_path / "trees", ROOT, tmp_path / "site"]
    done = subprocess.run([*sphinx, *map(str, places)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert 'href="docs/results.html"' in first and 'href="docs/reference/attention.html"' in first


def test_each_dependency_is_justified() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs/dependencies.md").read_text()
    needed = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    for requirement in needed:
        name = re.split(r"[<>=]", requirement)[0]
        assert f"| {name} |" in page or f"**{name}**" in page, name
