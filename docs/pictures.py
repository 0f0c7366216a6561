"""Make the pictures of docs/looking.md, in a headless Chromium: `make docs-pictures`.

Trains Signal 2 with heads and snapshots, opens its explorer, and does what the page describes.
"""

import shutil
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

import uvicorn
from playwright.sync_api import Page, sync_playwright

import regard
from regard.serving import Explorer
from regard.serving.app import make_app

HERE = Path(__file__).parent / "pictures"
INPUT = "BCCCBAABACCCA"


def main() -> None:
    """Write all pictures."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("docs/pictures.py needs Chromium")
    with tempfile.TemporaryDirectory() as folder, socket.socket() as listening, sync_playwright() as started:
        run = regard.train("signal2", snapshots=40, savepath=folder)
        assert isinstance(run, regard.AnswerRun)
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(make_app(Explorer(run)), log_level="error"))
        threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
        while not server.started:
            time.sleep(0.05)
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1120, "height": 640})
        page.goto(f"http://127.0.0.1:{listening.getsockname()[1]}/")
        page.wait_for_selector("canvas")
        page.fill("#input", INPUT)
        page.wait_for_function("text => document.querySelector('.answer code')?.textContent === text", arg=INPUT)
        explorer(page)
        playback(page)
        server.should_exit = True


def explorer(page: Page) -> None:
    """A head switched off, with what each head is worth."""
    page.click("text=Head importance")
    page.wait_for_selector("text=off: loss")
    page.locator("figure [role=grid]").first.focus()
    page.keyboard.press("ArrowDown")
    page.click("text=head 0 uniform")
    page.wait_for_selector("text=1 changed")
    take(page, "explorer.png")


def playback(page: Page) -> None:
    """Attention in the middle of training, in a dark page."""
    page.emulate_media(color_scheme="dark")
    page.click("text=Watch it form")
    slider = page.locator("input[data-name=time]")
    slider.focus()
    for _ in range(7):
        page.keyboard.press("ArrowLeft")
        page.wait_for_timeout(100)
    take(page, "playback.png")


def take(page: Page, name: str) -> None:
    """Write a picture of the page."""
    page.wait_for_timeout(300)
    page.screenshot(path=HERE / name, full_page=True)
    print(f"Wrote {HERE / name}")


if __name__ == "__main__":
    main()
