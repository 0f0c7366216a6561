"""Measure how quickly the page of a model reacts, in a headless Chromium.

    python benchmarks/page_times.py [--layers 12] [--heads 12] [--tokens 200] [--decoder] [--offline]

A BERT, or with `--decoder` a GPT-2, with random weights and width 384 reads a text. Without `--offline`, the
explorer runs in the same process. The program prints:

- model: seconds of one pass of the model that returns no weights, for the same text;
- picture: seconds from Enter until the weights of the new text are drawn, without those of the pass;
- click: largest and median time in ms from a click on another head until the next frame is painted (Event Timing API);
- hover: number of tasks that last longer than 50 ms while the pointer crosses the picture 200 times, and the longest;
- page, MB: with `--offline`, the bytes of the page that `save` writes, and its seconds until it is drawn.
"""

import argparse
import shutil
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import uvicorn
from first_answer import make_model, make_tokenizer
from playwright.sync_api import Page, sync_playwright

import regard
from regard.server.app import make_app
from regard.server.explorer import Explorer

WORDS = 500
CLICKS, MOVES = 12, 200
DRAWN = "() => document.querySelector('figure canvas')?.width > 100"
SHOWN = """text => document.querySelector('figure canvas')?.width > 100
    && JSON.parse(document.querySelector('.regard-view').dataset.selection).input === text"""
OBSERVE = """() => {
    window.clicks = []; window.tasks = [];
    new PerformanceObserver((list) => list.getEntries().forEach((entry) =>
        entry.name === "click" && window.clicks.push(entry.duration)))
        .observe({ type: "event", durationThreshold: 16 });
    new PerformanceObserver((list) => list.getEntries().forEach((entry) => window.tasks.push(entry.duration)))
        .observe({ type: "longtask" });
}"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("tokens", 200), ("layers", 12), ("heads", 12)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--decoder", action="store_true")
    parser.add_argument("--offline", action="store_true")
    flags = parser.parse_args()
    torch.manual_seed(0)
    text = " ".join(f"w{number}" for number in np.random.default_rng(0).integers(0, WORDS, flags.tokens))
    model = make_model(flags.layers, flags.heads, longest=flags.tokens + 8, decoder=flags.decoder)
    subject: Any = regard.look(model, make_tokenizer())
    print(f"{type(model).__name__}, {flags.layers} x {flags.heads} heads, {flags.tokens} words", flush=True)
    with sync_playwright() as started:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.set_default_timeout(180_000)
        if flags.offline:
            _open_file(page, subject, text)
        else:
            _open_explorer(page, subject, model, text)
        _react(page)


def _open_file(page: Page, subject: Any, text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        subject.attend(text).save(path)
        began = time.perf_counter()
        page.goto(path.as_uri(), wait_until="commit")
        page.wait_for_function(DRAWN)
        print(f"page, MB: {path.stat().st_size / 1e6:.2f}, drawn after {time.perf_counter() - began:.2f} s", flush=True)


def _open_explorer(page: Page, subject: Any, model: Any, text: str) -> None:
    with torch.inference_mode():
        ids = subject.tokenizer(text, return_tensors="pt")
        seconds = []
        for _ in range(3):
            began = time.perf_counter()
            model(ids["input_ids"])
            seconds.append(time.perf_counter() - began)
    own = statistics.median(seconds)
    print(f"model: {own:.2f} s", flush=True)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make_app(Explorer(subject)), log_level="error", lifespan="off", ws="none"))
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
    while not server.started:
        time.sleep(0.02)
    page.goto(f"http://127.0.0.1:{listening.getsockname()[1]}/")
    page.wait_for_function(DRAWN)
    page.fill("#input", text)
    began = time.perf_counter()
    page.press("#input", "Enter")
    page.wait_for_function(SHOWN, arg=text)
    print(f"picture: {time.perf_counter() - began - own:.2f} s", flush=True)
    page.wait_for_load_state("networkidle")


def _react(page: Page) -> None:
    """Click other heads and move over the picture; print the times."""
    page.evaluate(OBSERVE)
    box: Any = page.locator(".heads canvas").bounding_box()
    random = np.random.default_rng(0)
    for _ in range(CLICKS):
        x, y = random.uniform(0.15, 0.95, 2)
        page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])
        page.wait_for_timeout(250)
    clicks = page.evaluate("() => window.clicks")
    page.evaluate("() => { window.tasks.length = 0; }")
    box = page.locator("figure canvas").first.bounding_box()
    for step in range(MOVES):
        place = (step + 0.5) / MOVES
        page.mouse.move(box["x"] + place * box["width"], box["y"] + (7 * place % 1) * box["height"])
        page.wait_for_timeout(8)
    page.wait_for_timeout(300)
    tasks = page.evaluate("() => window.tasks")
    shown = f"{max(clicks):.0f} ms, median {statistics.median(clicks):.0f} ms" if clicks else "less than 16 ms"
    print(f"click: largest {shown} ({len(clicks)} of {CLICKS} clicks took 16 ms or more)")
    print(f"hover: {sum(task > 50 for task in tasks)} tasks over 50 ms, longest {max(tasks, default=0):.0f} ms")


if __name__ == "__main__":
    main()
