"""A page of a run that answers inputs without a server: a single file that contains the parameters."""

import base64
import hashlib
import html
import json
import zlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from regard.arguments import public
from regard.io.writing import write_file
from regard.runs.live_data import live_data, text_of_bytes
from regard.runs.run_types import AnyRun
from regard.viz.attention_map import check_extension
from regard.viz.page import VIEW, bundle_modules

PAGE = files("regard.server") / "page"


@public
def write_live_page(run: AnyRun, path: str | Path) -> Path:
    """Write a page in which the model of a run answers typed inputs, without a server and without a network.

    The page shows the attention map of each answer; heads can be disabled and weights changed. Logits differ
    from PyTorch's by less than 1e-4. Raises `InputError` for a run that the page cannot compute, and
    `MachineError` if the file cannot be written.

    >>> regard.write_live_page(regard.load("runs/signal2"), "signal2.html")    # doctest: +SKIP
    """
    check_extension(Path(path), (".html",))
    write_file(Path(path), live_page(run).encode())
    return Path(path)


def live_page(run: AnyRun) -> str:
    """Return the page as HTML; raises `InputError` as `write_live_page` does."""
    data = live_data(run)
    parameters = data["parameters"].pop("text")
    # The page creates the worker from a text, because a page without a server cannot load a script file.
    worker = "" if data["training"] is None else bundle_modules(_module, "js/live/worker.js")
    loader, code = bundle_modules(_module, "js/live/loader.js"), bundle_modules(_module, "live.js")
    packed = zlib.compress(code.encode(), 9)
    hashes = " ".join(map(_hash, (loader, code)))
    sources = f"script-src {hashes}; style-src 'unsafe-inline'; img-src data:; worker-src blob:"
    policy = f"default-src 'none'; {sources}"
    plain = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    sizes = f'data-packed="{len(packed)}" data-size="{len(code.encode())}"'
    scripts = (
        f'<script id="live" type="application/json">{plain}</script>\n'
        f'<script id="parameters" type="text/plain">{parameters}</script>\n'
        f'<script id="worker" type="text/plain">{worker}</script>\n'
        f'<script id="code" type="text/plain" {sizes}>{text_of_bytes(packed)}</script>\n'
        f'<script type="module">{loader}</script>'
    )
    style = _text("explorer.css")
    parts = {
        '<meta charset="utf-8">': (
            f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
        ),
        '<link rel="stylesheet" href="explorer.css">': f"<style>\n{style}</style>",
        '<script type="module" src="explorer.js"></script>': scripts,
        "<title>Regard: explorer</title>": f"<title>{html.escape(run.name)} · Regard</title>",
    }
    page = _text("explorer.html")
    for before, after in parts.items():
        assert page.count(before) == 1, before
        page = page.replace(before, after)
    return page


def _module(name: str) -> Traversable:
    """Return the file of a JavaScript module; the module for server requests is replaced by the model in the
    page."""
    if name == "ask.js":
        return PAGE / "live-ask.js"
    return VIEW / name.removeprefix("js/") if name.startswith("js/") else PAGE / name


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _text(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")
