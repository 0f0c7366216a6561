"""Take the pictures of docs/how-to/look-inside.md in a headless Chromium: `make docs-pictures`.

Train Signal 2 with heads and snapshots, and a Transformer on Dates. Open their explorers and follow the steps of
the page. Take each picture in light and dark.
"""

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

import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

import regard
from regard.server import Explorer
from regard.server.app import make_app

HERE = Path(__file__).parent / "pictures"
INPUT = "BCCCBAABACCCA"
DATE = "3. Mai 1979"
MOST_HIGH = 1300  # pixels
PATIENCE = 180_000  # milliseconds; the roles of heads need many samples


def main() -> None:
    """Write all pictures."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("docs/pictures.py needs Chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        run = regard.train("signal2", snapshots=40, savepath=folder)
        with served(run) as address:
            at = f"{address}#input={INPUT}"
            take(browser, at, "explorer", explorer)
            take(
                browser,
                f"{at}&head=1&query=1&key=1&sum=true",
                "sum",
                lambda page: page.wait_for_selector(".sum h3"),
            )
            take(browser, f"{at}&mode=overview&asked=importance,roles", "gallery", gallery)
            take(browser, at, "playback", playback)
        run = regard.train("dates", model="transformer", hidden=32, heads=4, steps=1000, savepath=folder)
        with served(run) as address:
            at = f"{address}#input={DATE}"
            take(
                browser,
                f"{at}&mode=flow",
                "flow",
                lambda page: page.wait_for_selector("text=through the encoder"),
            )
            take(browser, f"{at}&written=3,0", "tree", lambda page: page.wait_for_selector(".steps svg"))


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


def explorer(page: Page) -> None:
    """Set a head to uniform, and measure head importance."""
    page.click("text=Head importance")
    page.wait_for_selector("text=off: loss")
    page.locator("figure [role=grid]").first.focus()
    page.keyboard.press("ArrowDown")
    page.click("text=head 0 uniform")
    page.wait_for_selector("text=1 changed")


def gallery(page: Page) -> None:
    """Wait for the roles and importance of all heads."""
    page.wait_for_selector(".thumb .role")
    page.wait_for_selector("text=sorted by importance")


def playback(page: Page) -> None:
    """Move the slider of snapshots to the middle of the training."""
    page.click("text=Play training")
    slider = page.locator("input[data-name=time]")
    slider.focus()
    for _ in range(7):
        page.keyboard.press("ArrowLeft")
        page.wait_for_timeout(100)


def take(browser: Browser, address: str, name: str, do: Callable[[Page], object]) -> None:
    """Call `do`, then take a picture of the page in the light and the dark theme."""
    for dark in (False, True):
        context = browser.new_context(
            viewport={"width": 1120, "height": 560}, color_scheme="dark" if dark else "light"
        )
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        page.wait_for_selector("figure canvas, .thumb canvas")
        do(page)
        page.evaluate("document.activeElement.blur()")
        # In a window as high as the page, the sticky legend has its normal position.
        high = min(int(page.evaluate("document.documentElement.scrollHeight")), MOST_HIGH)
        page.set_viewport_size({"width": 1120, "height": high})
        page.wait_for_timeout(500)
        path = HERE / (f"{name}-dark.png" if dark else f"{name}.png")
        page.screenshot(path=path)
        context.close()
        print(f"Wrote {path}", flush=True)


if __name__ == "__main__":
    main()
