"""How Sphinx makes the site of README, docs/ and the docstrings: `make docs`.

The source folder is the repository, so that links between files mean on the site what they mean in the files.
Nothing is fetched, and every warning is an error, a link without an aim among them.
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
smartquotes = False  # they would turn the two dashes of a flag into one

html_theme = "furo"
html_title = "Regard"
html_static_path = ["static"]
html_css_files = ["regard.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False  # it would fetch the pages, which a site that is opened from disk may not

CONTENTS = {
    "README": """
```{toctree}
:hidden:
:glob:
:caption: Pages

docs/looking
docs/check
docs/recurrent
docs/translation
docs/aligning
docs/exchange
docs/attention
docs/results
docs/benchmarks
docs/*
```

```{toctree}
:hidden:
:caption: Package

docs/reference/index
CHANGELOG
CONTRIBUTING
SECURITY
```
""",
    "docs/results": """
```{toctree}
:hidden:
:glob:

results/*
```
""",
}
"""What is added to pages for the site's table of contents, which has no place in a file that is read as it is.
A new page of docs/ comes by itself, after those that stand here in the order of reading."""


def setup(app: Sphinx) -> None:
    """Write the reference before the build, and after it the first page under the name that servers look for."""
    app.add_post_transform(LinkNames)
    app.connect("builder-inited", lambda _: write_reference(ROOT / "src" / "regard", ROOT / "docs" / "reference"))
    app.connect("source-read", add_contents)
    app.connect("doctree-read", unlink_builtins)
    app.connect("build-finished", write_first_page)


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Add a page's table of contents to its text."""
    source[0] += CONTENTS.get(name, "")


def write_first_page(app: Sphinx, error: Exception | None) -> None:
    """Make the README the site's index.html too, and take along the pictures, which pages name in HTML."""
    if error is None and app.builder.name == "html":
        shutil.copytree(ROOT / "docs" / "pictures", app.outdir / "docs" / "pictures", dirs_exist_ok=True)
        shutil.copyfile(app.outdir / "README.html", app.outdir / "index.html")
