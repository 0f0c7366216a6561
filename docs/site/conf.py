"""Sphinx configuration of the site of the README, docs/ and the docstrings, for `make docs`.

The source folder is the repository, so links between files work on the site and in the repository. The build
fetches nothing. Every warning is an error, including a broken link.
"""

import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

from links import LinkNames, unlink_builtins  # noqa: E402
from reference import write_reference  # noqa: E402

project = "Regard"
copyright = "The Regard founders"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**.md"]
exclude_patterns = [".*", "build", "dist", "models", "comparisons", "node_modules", "src", "tests"]

myst_heading_anchors = 4
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
highlight_language = "default"
smartquotes = False  # smart quotes would replace the two dashes of a flag by one

html_theme = "furo"
html_title = "Regard"
html_static_path = ["static"]
html_css_files = ["regard.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False  # summaries fetch pages, which browsers forbid for a site on disk

PARTS = {"Tutorials": "tutorials", "How-to guides": "how-to", "Reference": "reference", "Explanation": "explanation"}
FIRST = {
    "tutorials": ["first-model", "hugging-face", "own-mechanism", "language-model", "translator", "larger-corpus"],
    "how-to": [
        "README",
        "install",
        "upgrade",
        "look-inside",
        "watch-a-training",
        "make-figures",
        "test-explanations",
        "external-models",
    ],
    "reference": ["commands", "attention", "recording"],
    "explanation": ["results", "speed"],
    "dev": ["overview", "extending"],
}
"""First pages of each folder in the table of contents. The other pages follow in alphabetical order."""


MORE = {"explanation": ["docs/mechanisms/README"]}
"""Pages of other folders that follow these."""


def toctree(caption: str, folder: str, *more: str) -> str:
    """Return a hidden table of contents of the pages in a folder."""
    names = sorted(page.stem for page in (ROOT / "docs" / folder).glob("*.md"))
    names.sort(key=lambda name: FIRST[folder].index(name) if name in FIRST[folder] else len(names))
    pages = [*(f"docs/{folder}/{name}" for name in names), *more]
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])


API = """
```{toctree}
:hidden:
:caption: Python API

docs/reference/api/index
```
"""

CONTENTS = {
    "README": "".join(
        [
            *(toctree(caption, folder, *MORE.get(folder, [])) for caption, folder in PARTS.items()),
            API,
            toctree("Contributors", "dev", "CHANGELOG", "CONTRIBUTING", "SECURITY"),
        ]
    ),
    "docs/explanation/results": """
```{toctree}
:hidden:
:glob:

../dev/results/*
```
""",
}
"""Tables of contents that the build appends to pages. The Markdown files omit these tables."""


def setup(app: Sphinx) -> None:
    """Write the API reference before the build, and index.html after it."""
    app.add_post_transform(LinkNames)
    app.connect("builder-inited", lambda _: write_reference(ROOT / "src", ROOT / "docs" / "reference" / "api"))
    app.connect("source-read", add_contents)
    app.connect("doctree-read", unlink_builtins)
    app.connect("build-finished", write_first_page)


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Add a page's table of contents to its text."""
    source[0] += CONTENTS.get(name, "")


def write_first_page(app: Sphinx, error: Exception | None) -> None:
    """Copy README.html to index.html, and the pictures, which pages include as HTML."""
    if error is None and app.builder.name == "html":
        shutil.copytree(ROOT / "docs" / "pictures", app.outdir / "docs" / "pictures", dirs_exist_ok=True)
        shutil.copyfile(app.outdir / "README.html", app.outdir / "index.html")
