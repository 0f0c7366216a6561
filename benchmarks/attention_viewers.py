"""Compare Regard's page with the head view of BertViz and with Inspectus, for the same attention weights.

    python benchmarks/attention_viewers.py [--peers FOLDER] [--scripts FOLDER]

`--peers` is the target folder of `pip install --no-deps --target FOLDER bertviz inspectus`. `--scripts` is a
folder in which `npm install requirejs d3 jquery` was run; the program answers the network requests of BertViz
from this folder, and counts their bytes. All pages are opened in a headless Chromium. The table shows medians
over several openings: the bytes of the page, the seconds until the page is drawn, and the memory of JavaScript
after the page is drawn. The last table shows the answers per second while a weight is dragged.
"""

import argparse
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

import regard
from regard.server.app import make_app
from regard.server.explorer import Explorer
from regard.viz.maps import LayerMap, Map
from regard.viz.page import page as regard_page

SENTENCE = "Zwei junge Männer stehen im Garten und sehen einem kleinen Hund zu , der einen roten Ball bringt ."
LAYERS, HEADS = 6, 8
ROUNDS = 5
PATIENCE = 25_000
"""Timeout for drawing a page in milliseconds."""
DRAWN = {
    "Regard": "() => document.querySelector('figure canvas')?.width > 100",
    "BertViz": "() => document.querySelector('svg text, svg rect, svg line')",
    "Inspectus": "() => document.querySelector('canvas, svg rect')",
}
CDN = {
    "require.min.js": "requirejs/require.js",
    "d3.min.js": "d3/dist/d3.min.js",
    "jquery.min.js": "jquery/dist/jquery.min.js",
}


def main() -> None:
    """Run all measurements, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--scripts", type=Path)
    flags = parser.parse_args()
    if flags.peers:
        sys.path.append(str(flags.peers))
    tokens = SENTENCE.split()
    small = _weights(LAYERS, HEADS, len(tokens))
    large = _weights(1, 1, 4096)
    names = [f"t{step}" for step in range(4096)]
    with sync_playwright() as started:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = started.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--enable-precise-memory-info"]
        )
        print("| program | tokens | page, KB | loaded from the network, KB | time until drawn, ms | heap, MB |")
        print("| --- | ---: | ---: | ---: | ---: | ---: |")
        for weights, labels in ((small, tokens), (large, names)):
            for name, make in PAGES.items():
                _line(browser, name, make, weights, labels, flags.scripts)
        _dragging(browser)


def _weights(layers: int, heads: int, length: int) -> np.ndarray:
    """Return weights (L, H, T, T) with peaked rows, like the self-attention of a sentence."""
    random = np.random.default_rng(0)
    scores = random.normal(size=(layers, heads, length, length)).astype(np.float32) * 2
    weights = np.exp(scores)
    return weights / weights.sum(-1, keepdims=True)


def _regard(weights: np.ndarray, tokens: list[str]) -> str:
    layers = {}
    for number, layer in enumerate(weights):
        name = f"encoder.{number}.self_attention"
        layers[name] = LayerMap(
            name=name, title=f"layer {number}", weights=layer, query_labels=tokens, key_labels=tokens
        )
    shown = Map(task="views", input="", prediction=None, truth=None, layers=layers, outputs=[], probabilities=[])
    return regard_page([shown])


def _bertviz(weights: np.ndarray, tokens: list[str]) -> str:
    from bertviz import head_view

    attention = [torch.from_numpy(layer).unsqueeze(0) for layer in weights]
    html: str = head_view(attention, tokens, html_action="return").data
    return f"<!doctype html><meta charset='utf-8'>{html}"


def _inspectus(weights: np.ndarray, tokens: list[str]) -> str:
    import inspectus
    from IPython.display import HTML

    shown: list[str] = []

    def display(*parts: Any, **_: Any) -> None:
        shown.extend(part.data for part in parts if isinstance(part, HTML))

    import IPython.display

    original, IPython.display.display = IPython.display.display, display
    try:
        inspectus.attention(weights, tokens)
    finally:
        IPython.display.display = original
    return f"<!doctype html><meta charset='utf-8'>{''.join(shown)}"


PAGES: dict[str, Callable[[np.ndarray, list[str]], str]] = {
    "Regard": _regard,
    "BertViz": _bertviz,
    "Inspectus": _inspectus,
}


def _line(
    browser: Browser,
    name: str,
    make: Callable[[np.ndarray, list[str]], str],
    weights: np.ndarray,
    tokens: list[str],
    scripts: Path | None,
) -> None:
    """Print a row of the table."""
    try:
        text = make(weights, tokens)
    except ImportError as error:
        print(f"| {name} | {len(tokens):,} | {error} | | | |")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(text, encoding="utf-8")
        try:
            measurements = [
                _opened(browser, path, DRAWN[name], scripts) for _ in range(ROUNDS if len(tokens) < 1000 else 1)
            ]
        except Exception as error:
            reason = str(error).splitlines()[0]
            print(
                f"| {name} | {len(tokens):,} | {path.stat().st_size / 1000:,.0f} | | not drawn: {reason} | |",
                flush=True,
            )
            return
    fetched, seconds, heap = (statistics.median(values) for values in zip(*measurements, strict=True))
    size = (len(text.encode()) + fetched) / 1000
    print(
        f"| {name} | {len(tokens):,} | {size:,.0f} | {fetched / 1000:,.0f} | {1000 * seconds:,.0f} "
        f"| {heap / 1e6:,.1f} |",
        flush=True,
    )


def _opened(browser: Browser, path: Path, drawn: str, scripts: Path | None) -> tuple[int, float, int]:
    """Open a page; return the bytes from the network, the seconds until the page is drawn, and the bytes of the
    heap."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    fetched = 0

    def answer(route: Any) -> None:
        nonlocal fetched
        wanted = route.request.url.rpartition("/")[2]
        if scripts is None or wanted not in CDN:
            route.abort()
            return
        body = (scripts / "node_modules" / CDN[wanted]).read_bytes()
        fetched += len(body)
        route.fulfill(body=body, content_type="text/javascript")

    page.route(re.compile(r"https?://"), answer)
    began = time.perf_counter()
    page.goto(path.as_uri(), wait_until="commit", timeout=PATIENCE)
    page.wait_for_function(drawn, timeout=PATIENCE)
    seconds = time.perf_counter() - began
    session = context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")
    heap = used["usedSize"] + used.get("backingStorageSize", 0)  # typed arrays are outside the heap
    context.close()
    return fetched, seconds, int(heap)


def _dragging(browser: Browser) -> None:
    """Print the redraws and answers per second while a weight of Signal 2 is dragged."""
    import socket

    with tempfile.TemporaryDirectory() as folder, socket.socket() as listening:
        run = regard.train("signal2", steps=20, savepath=folder, progress=False)
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(make_app(Explorer(run)), log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.02)
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.goto(f"http://127.0.0.1:{listening.getsockname()[1]}/#input=BCCCBAABACCCA&head=0&query=1&key=1")
        page.wait_for_selector("input[data-name=weight]")
        frames, redraws, answers = _redraws(page)
        print(
            f"\nDragging a weight of Signal 2: {redraws:.0f} redraws (of {frames:.0f} frames) and "
            f"{answers:.0f} answers per second"
        )
        server.should_exit = True
        thread.join(10)


def _redraws(page: Page) -> tuple[float, float, float]:
    """Move the slider at every frame for three seconds; return frames, redraws of the heatmap and answers per
    second.
    """
    frames, redraws, answers = page.evaluate(
        """() => new Promise((done) => {
            const slider = document.querySelector("input[data-name=weight]");
            let [frames, redraws, answers] = [0, 0, 0];
            const heatmap = document.querySelector("figure canvas");
            const { drawImage } = CanvasRenderingContext2D.prototype;
            CanvasRenderingContext2D.prototype.drawImage = function (...args) {
                if (this.canvas === heatmap) redraws += 1; // its cells are drawn once per redraw
                return drawImage.apply(this, args);
            };
            const { fetch } = window;
            window.fetch = (...args) => fetch(...args).finally(() => { answers += 1; });
            const began = performance.now();
            const move = () => {
                const seconds = (performance.now() - began) / 1000;
                if (seconds > 3) return done([frames / seconds, redraws / seconds, answers / seconds]);
                frames += 1;
                slider.value = String(0.5 + 0.5 * Math.sin(3 * seconds));
                slider.dispatchEvent(new Event("input"));
                requestAnimationFrame(move);
            };
            move();
        })"""
    )
    return frames, redraws, answers


if __name__ == "__main__":
    main()
