"""Scripts in names and inputs are shown as text in the explorer, in an exported page and in a notebook."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.activations.components import find_components
from regard.errors import InputError
from regard.server.explorer import Explorer
from regard.viz.attention_map import AttentionMap, Playback
from regard.viz.maps import LayerMap
from regard.viz.page import view_json, write_page
from regard.viz.subject import Traits
from tests.browser.conftest import use_tool
from tests.server.running import serving

make_app = pytest.importorskip("regard.server.app").make_app

SCRIPT = "</script><script>hacked()</script><img src=x onerror=\"document.title='hacked'\"><svg onload=hacked()>"


def _map() -> AttentionMap:
    """Return a map with hostile text in every field."""
    labels = [f"{SCRIPT}{index}" for index in range(2)]
    layers = {
        name: LayerMap(
            name=name,
            title=SCRIPT,
            weights=np.full((2, 2, 2), 0.5, dtype=np.float32),
            query_labels=labels,
            key_labels=labels,
        )
        for name in ("cross", f"encoder.0.{SCRIPT}")
    }
    return AttentionMap(
        task=SCRIPT,
        input=SCRIPT,
        prediction=SCRIPT,
        truth=SCRIPT,
        layers=layers,
        outputs=labels,
        probabilities=[0.5, 0.5],
    )


def _playback() -> Playback:
    return Playback(steps=[0, 1], frames=[_map(), _map()], losses=[(0, 1.0), (1, 0.5)])


class Hostile:
    """A subject with hostile names."""

    name = where = SCRIPT
    traits = Traits(samples=1)
    layers = ()

    def __init__(self) -> None:
        self.model = torch.nn.Linear(1, 1)
        self.components = find_components(self.model)

    def about(self) -> dict[str, Any]:
        """Return a hostile description."""
        return {"task": SCRIPT, "summary": SCRIPT, "kind": SCRIPT, "step": 1, "draws": True, "snapshots": True}

    def draw(self, *, seed: int = 0) -> str:
        """Return a hostile input."""
        return SCRIPT

    def forward_pass(self, input: str) -> None:
        """Raise an error with a hostile message: the score of a weight has no parts."""
        raise InputError(f"{SCRIPT} has no parts")

    def attend(self, input: str, *, seed: int = 0) -> AttentionMap:
        """Return a hostile map, or raise an error with a hostile message for short inputs."""
        if len(input) < 5:
            raise InputError(f"{SCRIPT} is no input")
        return _map()

    def playback(self, input: str | None = None, *, seed: int = 0) -> Playback:
        """Return hostile maps."""
        return _playback()


def _explorer() -> Explorer:
    subject: Any = Hostile()  # the part that the explorer's page requests
    return Explorer(subject)


def _look_around(page: Any) -> None:
    """Open all displays of a view."""
    page.wait_for_selector("figure canvas")
    for mode in ("Lines", "Matrix"):
        page.click(f"[role=radio][data-name={mode}]")
        page.wait_for_timeout(50)
    for select in page.locator("select").all():
        for index in range(select.locator("option").count()):
            select.select_option(index=index)
            page.wait_for_timeout(20)
    canvas = page.locator("figure canvas").first
    page.locator("figure [role=grid]").first.focus()
    for key in ("ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    canvas.hover()


def _unharmed(page: Any, title: str) -> None:
    assert page.title().startswith(title) and page.title().endswith(" · Regard")
    assert page.locator("img").count() == 0 and page.locator("svg[onload]").count() == 0
    assert page.locator("script:not([src]):not([type])").count() == 0
    assert page.evaluate("typeof hacked") == "undefined"
    assert SCRIPT in page.inner_text("output")


def test_in_an_exported_page(page: Any, tmp_path: Path) -> None:
    path = write_page(tmp_path / "p.html", [_map()], original=_map(), playback=vars(_playback()))
    page.goto(path.as_uri())
    _look_around(page)
    _unharmed(page, SCRIPT)


def test_in_the_explorer(page: Any) -> None:
    with serving(make_app(_explorer())) as address:
        page.goto(address)
        _look_around(page)
        _unharmed(page, f"{SCRIPT}: {SCRIPT}")
        assert page.inner_text("#task") in SCRIPT and SCRIPT in page.inner_text("#about")
        use_tool(page, "Play training")
        page.wait_for_selector("input[data-name=time]")
        _look_around(page)
        _unharmed(page, f"{SCRIPT}: {SCRIPT}")
        page.fill("#input", "x")
        page.wait_for_function("() => document.getElementById('message').textContent !== ''")
        assert page.inner_text("#message") == f"{SCRIPT} is no input"
        _unharmed(page, f"{SCRIPT}: {SCRIPT}")
        page.complaints.clear()  # of the status 422
        page.goto("about:blank")  # whose connections close with it


def test_in_a_notebook(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("canvas")
    page.evaluate(
        """async (data) => {
            const { default: widget } = await import("/view.js");
            const model = { get: () => data, on: () => {}, send: () => {} };
            document.getElementById("view").replaceChildren();
            await widget.render({ model, el: document.getElementById("view") });
        }""",
        view_json(
            [_map()],
            packed=True,
            original=_map(),
            importance={"cross": [{"added": value, "low": None, "high": None} for value in (1.0, 2.0)]},
        ),
    )
    _look_around(page)
    _unharmed(page, "signal2: ")
    assert json.loads(view_json([_map()], packed=True))["maps"][0]["input"] == SCRIPT


def test_token_is_removed_from_the_address(page: Any) -> None:
    with serving(make_app(_explorer(), hosts=None, token="a-token-of-ours")) as address:
        page.goto(f"{address}?token=a-token-of-ours")
        page.wait_for_selector("figure canvas")
        assert page.url.partition("#")[0] == address and page.evaluate("document.cookie") == ""
        page.reload()  # with the cookie only
        page.wait_for_selector("figure canvas")
        page.goto("about:blank")
        page.context.clear_cookies()
        assert page.request.get(address).status == 401
