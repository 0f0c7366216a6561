"""A headless Chromium, and the explorer of a partly trained run."""

import asyncio
import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.viz.attention_map import AttentionMap
from regard.viz.maps import LayerMap

playwright = pytest.importorskip("playwright.sync_api")
uvicorn = pytest.importorskip("uvicorn")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> regard.AnswerRun:
    """Return a partly trained run of Signal 2 with snapshots."""
    folder = tmp_path_factory.mktemp("learned")
    run = regard.train(
        "signal2", hidden=32, heads=2, steps=150, snapshots=8, batchsize=50, savepath=folder, progress=False
    )
    assert isinstance(run, regard.AnswerRun)
    return run


@contextmanager
def served(run: Any, beside: Sequence[Any] = ()) -> Iterator[str]:
    """Serve the explorer of a run, with other runs for comparison; yields the address."""
    from regard.server.app import make_app
    from regard.server.explorer import Explorer

    with served_app(make_app(Explorer(run, beside))) as address:
        yield address


@contextmanager
def served_app(app: Any) -> Iterator[str]:
    """Serve an application; yields the address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_level="error", lifespan="off", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="session")
def address(learned: regard.AnswerRun) -> Iterator[str]:
    """Return the address of the explorer of `learned`."""
    with served(learned) as found:
        yield found


@pytest.fixture(scope="session")
def translating(german: regard.TranslationRun) -> Iterator[str]:
    """Return the address of the explorer of a translator."""
    with served(german) as found:
        yield found


@pytest.fixture(scope="session")
def started() -> Iterator[tuple[Any, asyncio.AbstractEventLoop]]:
    """Start the browser, once for all files; return the browser and its event loop."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield browser, loop
        asyncio._set_running_loop(loop)
        browser.close()


@pytest.fixture(scope="package")
def chromium(started: tuple[Any, asyncio.AbstractEventLoop]) -> Iterator[Any]:
    """Return the browser. Its event loop is set only for this package, because it blocks those of other tests."""
    browser, loop = started
    asyncio._set_running_loop(loop)
    yield browser
    asyncio._set_running_loop(None)


VIEWPORT = {"width": 1280, "height": 800}


def _open(chromium: Any) -> Any:
    """Open a page that collects its errors in `complaints`."""
    page = chromium.new_context(viewport=VIEWPORT).new_page()
    page.set_default_timeout(15_000)
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("console", lambda said: page.complaints.append(said.text) if said.type == "error" else None)
    return page


def _empty(page: Any) -> None:
    """Restore a page to the state of a new one."""
    page.goto("about:blank")
    page.unroute_all()
    page.mouse.move(-1, -1)
    page.set_viewport_size(VIEWPORT)
    page.emulate_media(media="null", color_scheme="light", forced_colors="none")
    page.context.clear_cookies()
    session = page.context.new_cdp_session(page)
    session.send("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})
    session.detach()


@pytest.fixture
def own_page(chromium: Any) -> Iterator[Any]:
    """Open a new page that no other test uses; any error on the page fails the test."""
    page = _open(chromium)
    yield page
    page.context.close()
    assert page.complaints == []


@pytest.fixture(scope="package")
def pages(chromium: Any) -> list[Any]:
    """Return the empty pages that a test may use."""
    return []


@pytest.fixture
def page(chromium: Any, pages: list[Any]) -> Iterator[Any]:
    """Return an empty page; any error on the page fails the test.

    Tests share a page, because the processes of a new one take a third of a second. A test that adds initial
    scripts or functions, which stay on a page, uses `own_page`.
    """
    page = pages.pop() if pages else _open(chromium)
    yield page
    _empty(page)
    complaints, page.complaints = page.complaints, []
    pages.append(page)
    assert complaints == []


@pytest.fixture
def exported(learned: regard.AnswerRun, tmp_path: Path) -> Path:
    """Open an exported page with playback from a file."""
    return learned.playback("BCCCBAABACCCA").to_html(tmp_path / "page.html")


def settle(page: Any) -> None:
    """Wait until the requested answer is drawn: a change is noticed in one frame, and drawn in the next frame."""
    frames = "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 20)))"
    page.evaluate(f"() => new Promise(done => {frames})")


def map_of(weights: np.ndarray, queries: list[str], keys: list[str]) -> AttentionMap:
    """Return a map of one layer whose keys are the input."""
    layer = LayerMap(name="cross", title="Cross", weights=weights, query_labels=queries, key_labels=keys)
    return AttentionMap(
        task="test", input="x", prediction=None, truth=None, layers={"cross": layer}, outputs=[], probabilities=[]
    )


INPUT = "BCCCBAABACCCA"
ANSWERED = "text => document.querySelector('.answer code')?.textContent === text"


def open_view(page: Any, address: str, chosen: str = "") -> None:
    """Open a page and wait for its picture; `chosen`: the part of the address after #."""
    page.goto("about:blank")
    page.goto(f"{address}#{chosen}" if chosen else address)
    page.wait_for_selector("figure canvas")
    settle(page)


def type_input(page: Any, text: str = INPUT, shown: str | None = None) -> None:
    """Type an input into the explorer and wait for the answer."""
    page.fill("#input", text)
    page.wait_for_function(ANSWERED, arg=text if shown is None else shown)
    settle(page)


def use_tool(page: Any, name: str, menu: str = "analyse") -> None:
    """Choose an entry of a menu."""
    page.click(f"[data-name={menu}]")
    page.click(f".drop [data-name='{name}']")


def choose(page: Any, **state: Any) -> None:
    """Change the selection by the address."""
    page.evaluate(
        """state => {
            const all = new URLSearchParams(location.hash.slice(1));
            for (const [name, value] of Object.entries(state)) all.set(name, value);
            location.hash = `#${all}`;
        }""",
        {name: str(value) for name, value in state.items()},
    )
    settle(page)


def selection(page: Any) -> dict[str, Any]:
    """Return what the page says is selected."""
    found: dict[str, Any] = json.loads(page.get_attribute(".regard-view", "data-selection"))
    return found


def canvas_pixels(page: Any, selector: str = "figure canvas") -> str:
    return str(page.evaluate("name => document.querySelector(name).toDataURL()", selector))
