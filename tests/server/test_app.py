"""Responses and errors of the explorer's HTTP interface."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.interpret.importance import importance_by_layer
from regard.viz.attention_map import AttentionMap
from regard.viz.page import VIEW
from tests.packed import unpack

httpx = pytest.importorskip("httpx")
app_module = pytest.importorskip("regard.server.app")
make_app, Explorer = app_module.make_app, app_module.Explorer

INPUT = "BCCCBAABACCCA"


def _same(weights: Any, expected: AttentionMap) -> bool:
    """Return whether weights equal those of a map exactly."""
    return np.array_equal(np.array(weights, dtype=np.float32), expected.cross.weights)


class Client:
    """Sends requests to an application in this process."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def request(self, method: str, path: str, **options: Any) -> Any:
        async def ask() -> Any:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.request(method, path, **options)

        return asyncio.run(ask())

    def post(self, path: str, body: Any) -> Any:
        return self.request("POST", path, json=body)


@pytest.fixture
def client(trained: regard.AnswerRun) -> Iterator[Client]:
    yield Client(make_app(Explorer(trained)))


def test_attend(client: Client, trained: regard.AnswerRun) -> None:
    found = client.post("/api/attend", {"input": INPUT})
    assert found.status_code == 200 and found.headers["content-type"] == "application/json"
    stored, expected = found.json()["map"], trained.attend(INPUT)
    assert (stored["prediction"], stored["truth"]) == (expected.prediction, expected.truth)
    assert [each["name"] for each in stored["layers"]] == ["encoder.0.self_attention", "cross"]
    assert _same(stored["layers"][1]["weights"], expected)
    assert "original" not in found.json()


def test_packed_weights_are_binary_for_the_page(
    client: Client, trained: regard.AnswerRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.server.app.SMALL", 0)
    asked, expected = {"input": INPUT, "layers": ["cross"]}, trained.attend(INPUT).cross.weights
    found = client.request("POST", "/api/layers", json=asked, headers={"accept": (kind := "application/octet-stream")})
    size = int.from_bytes(found.content[:4], "little")
    [layer] = json.loads(found.content[4 : 4 + size])["map"]
    layer["weights"]["packed"] = found.content[4 + size :][slice(*layer["weights"]["packed"])]
    binary = unpack(layer["weights"], *expected.shape[1:])
    assert (found.headers["content-type"], found.headers["content-encoding"]) == (kind, "gzip")
    [layer] = client.post("/api/layers", asked).json()["map"]
    assert np.array_equal(binary, unpack(layer["weights"], *expected.shape[1:]))
    np.testing.assert_allclose(binary, expected, atol=1e-5)


def test_non_contiguous_arrays(trained: regard.AnswerRun, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.random.default_rng(0).random((2, 3, 5), dtype=np.float32)[..., :4]
    monkeypatch.setattr(Explorer, "about", lambda self: {"weights": weights})
    monkeypatch.setitem(app_module.ENDPOINTS, "/api/run", app_module.Endpoint(Explorer.about))
    found = Client(make_app(Explorer(trained))).request("GET", "/api/run")
    assert np.array_equal(np.array(found.json()["weights"], dtype=np.float32), weights)


def test_intervention_returns_both_maps(client: Client, trained: regard.AnswerRun) -> None:
    change = {"layer": "cross", "heads": [0], "to": 0.9, "query": 1, "key": 2}
    found = client.post("/api/attend", {"input": INPUT, "interventions": [change]}).json()
    with regard.intervene(trained.model, "cross", heads=[0], to=0.9, query=1, key=2):
        expected = trained.attend(INPUT)
    assert _same(found["map"]["layers"][1]["weights"], expected)
    assert found["map"]["probabilities"] == pytest.approx(expected.probabilities, abs=1e-6)
    assert _same(found["original"]["layers"][1]["weights"], trained.attend(INPUT))
    # The intervention has ended.
    assert client.post("/api/attend", {"input": INPUT}).json()["map"] == found["original"]


def test_random_inputs(client: Client) -> None:
    first, again, other = (client.post("/api/attend", {"seed": seed}).json()["map"]["input"] for seed in (1, 1, 2))
    assert first == again != other


def test_importance(client: Client, trained: regard.AnswerRun) -> None:
    assert client.request("GET", "/api/importance").json() == importance_by_layer(trained.importance())


def test_explain(client: Client, trained: regard.AnswerRun) -> None:
    change = {"layer": "cross", "heads": [1], "to": "uniform"}
    body = {"input": INPUT, "layer": "cross", "head": 0, "output": 1, "key": 2, "temperature": 2.0}
    found = client.post("/api/explain", {**body, "interventions": [change]})
    with regard.intervene(trained.model, "cross", heads=[1], to="uniform"):
        expected = trained.explain(INPUT, layer="cross", head=0, output=1, key=2, temperature=2.0)
    assert found.status_code == 200 and found.json() == expected.json()
    documented = (VIEW / "sum.js").read_text(encoding="utf-8").partition("@typedef {object} Explained")[2]
    names = re.findall(r"@property \{[^}]*(?:\{[^}]*\}[^}]*)?\} (\w+)", documented.partition("*/")[0])
    assert len(names) == 18 and set(names) <= set(found.json())
    refused = client.post("/api/explain", {**body, "temperature": 0})
    assert refused.status_code == 422 and "temperature 0 does not fit: give a number from" in refused.json()["error"]
    refused = client.post("/api/explain", {**body, "output": 9})
    assert refused.status_code == 422 and "output 9 is out of range" in refused.json()["error"]


def test_why(client: Client, trained: regard.AnswerRun) -> None:
    body = {"input": INPUT, "layer": "cross", "head": 0, "output": 1, "key": 2}
    found = client.post("/api/why", body)
    expected = regard.why(trained, INPUT, layer="cross", head=0, output=1, key=2).json()
    assert found.status_code == 200
    assert found.json() == {name: value for name, value in expected.items() if name != "pairs"}
    documented = (VIEW / "sum.js").read_text(encoding="utf-8").partition("@typedef {object} Reasons")[2]
    names = re.findall(r"@property \{[^}]*\} (\w+)", documented.partition("*/")[0])
    assert len(names) == 10 and set(names) <= set(found.json())
    refused = client.post("/api/why", {**body, "output": 9})
    assert refused.status_code == 422 and "output 9 is out of range" in refused.json()["error"]


def test_tree(client: Client, translator: regard.PairRun) -> None:
    body = {"input": "3. Mai 1979", "beam": 3}
    found = Client(make_app(Explorer(translator))).post("/api/tree", body).json()
    tree = translator.tree("3. Mai 1979", beam=3)
    assert found["tree"] == tree.json()
    for number, shown in enumerate(found["shown"]):
        outputs = found["maps"][shown]["outputs"]
        path = translator.task.target_vocabulary.labels(tree.path(number))
        assert outputs[: len(path)] == path
    assert len({found["shown"][number] for number in tree.best}) == 1
    refused = client.post("/api/tree", {"input": INPUT})
    assert refused.status_code == 422 and "so no search can be shown" in refused.json()["error"]
    assert client.request("GET", "/api/run").json()["writes"] is False


def test_playback(tmp_path: Path) -> None:
    run = regard.train("signal2", hidden=8, heads=2, steps=8, snapshots=3, savepath=tmp_path, progress=False)
    assert isinstance(run, regard.AnswerRun)
    client = Client(make_app(Explorer(run)))
    found = client.post("/api/playback", {"input": INPUT}).json()
    assert found["steps"] == [0, 1, 8] and len(found["frames"]) == 3
    layer = found["frames"][0]["layers"][-1]
    expected = run.playback(INPUT).frames[0].cross.weights
    np.testing.assert_allclose(unpack(layer["weights"], 3, 13), expected, atol=1e-5)
    assert client.request("GET", "/api/run").json()["snapshots"] is True


def test_playback_without_snapshots(client: Client) -> None:
    found = client.post("/api/playback", {"input": INPUT})
    assert found.status_code == 422 and "has no snapshots" in found.json()["error"]


def test_about(client: Client) -> None:
    found = client.request("GET", "/api/run").json()
    assert (found["task"], found["draws"], found["snapshots"]) == ("signal2", True, False)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "body is not JSON"),
        (b"{", 400, "body is not JSON"),
        (b"\xff\xfe", 400, "body is not JSON"),
        (b"[" * 100_000, 400, "body is not a JSON object"),
        (b'{"input":' * 20_000, 422, "input does not fit"),
        (b'{"seed": ' + b"[" * 100_000, 422, "seed does not fit"),
        (b"[]", 400, "body is not a JSON object"),
        (b"null", 400, "body is not a JSON object"),
        (b"{} {}", 400, "body is not JSON"),
        (b'{"seed": NaN}', 400, "body is not JSON"),
        (b'{"input": "\\ud800"}', 400, "body is not JSON"),
        (b'{"input": "\xed\xa0\x80"}', 400, "body is not JSON"),
        (b" " * (app_module.MAX_BODY + 1), 413, "body is larger than 262,144 bytes"),
        (b'{"input": 3}', 422, "input 3 does not fit: give a text of at most 100,000 characters"),
        (b'{"inptu": "ABC"}', 422, "'inptu' is unknown in the request: choose input, seed, interventions"),
        (b'{"a\\n\\u001bb": 1}', 422, "'a\\n\\x1bb' is unknown in the request"),
        (b'{"seed": "1"}', 422, "seed '1' does not fit: give a whole number from 0 to 4294967295"),
        (b'{"seed": -1}', 422, "seed -1 does not fit"),
        (b'{"seed": true}', 422, "seed True does not fit"),
        (b'{"seed": 1e999}', 422, "seed does not fit"),
        (b'{"seed": 1%s}' % (b"0" * 5000), 422, "seed does not fit"),
        (b'{"input": "XYZ1"}', 422, "letter 'X' at step 0 is not in the vocabulary"),
        (b'{"input": "%s"}' % (b"A" * 100_001), 422, "does not fit: give a text of at most 100,000 characters"),
        (b'{"interventions": 1}', 422, "interventions 1 does not fit: give a list of at most 200"),
        (b'{"interventions": [1]}', 422, "interventions[0] 1 is not an intervention: give an object with a layer"),
        (b'{"interventions": [{}]}', 422, "layer is missing in interventions[0]: give the name of a layer"),
        (b'{"interventions": [{"layer": "cross", "tO": 1}]}', 422, "'tO' is unknown in interventions[0]: choose"),
        (b'{"interventions": [%s]}' % b",".join([b'{"layer": "cross"}'] * 201), 422, "a list of at most 200"),
        (b'{"interventions": [{"layer": "x"}]}', 422, "layer 'x' is unknown: choose encoder.0"),
        (b'{"interventions": [{"layer": "cross", "heads": [9]}]}', 422, "head 9 is out of range"),
        (b'{"interventions": [{"layer": "cross", "heads": ["0"]}]}', 422, "heads[0] '0' does not fit"),
        (b'{"interventions": [{"layer": "cross", "heads": [1%s]}]}' % (b"0" * 30), 422, "give a list of at most 200"),
        (b'{"interventions": [{"layer": "cross", "to": "on"}]}', 422, "to 'on' does not fit: give off, uniform, or"),
        (b'{"interventions": [{"layer": "cross", "to": null}]}', 422, "to None does not fit"),
        (b'{"interventions": [{"layer": "cross", "to": 2, "query": 0, "key": 0}]}', 422, "to 2 does not fit"),
        (b'{"interventions": [{"layer": "cross", "to": 1, "query": 7, "key": 0}]}', 422, "query 7 is out of range"),
    ],
)
def test_rejected_bodies(client: Client, body: bytes, status: int, message: str) -> None:
    found = client.request("POST", "/api/attend", content=body, headers={"content-type": "application/json"})
    assert found.status_code == status and message in found.json()["error"]
    assert "\n" not in found.json()["error"]
    assert client.post("/api/attend", {"input": INPUT}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/explorer.js", "/explorer.css", "/view.js", "/api/run", "/none"])
def test_every_response_has_security_headers(client: Client, path: str) -> None:
    headers = client.request("GET", path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"


def test_page_has_no_inline_code_and_no_external_resources(client: Client) -> None:
    html = client.request("GET", "/").text
    assert "<style" not in html and "style=" not in html and "onclick" not in html
    assert '<script type="module" src="explorer.js"></script>' in html
    for path in ("/", "/explorer.js", "/explorer.css", "/view.js"):
        response = client.request("GET", path)
        assert response.status_code == 200
        text = response.text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text and "https://" not in text


def test_limit_of_waiting_requests(trained: regard.AnswerRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "MAX_WAITING", 3)
    app = make_app(Explorer(trained))

    async def ask_all() -> list[Any]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            asked = [client.post("/api/attend", json={"seed": seed}) for seed in range(20)]
            return await asyncio.gather(*asked)

    statuses = [each.status_code for each in asyncio.run(ask_all())]
    assert set(statuses) == {200, 429} and statuses.count(200) >= 3
    assert Client(app).post("/api/attend", {"input": INPUT}).status_code == 200


def test_translation_run(german: regard.TranslationRun) -> None:
    client = Client(make_app(Explorer(german)))
    source = "Heute läuft der alte Hund."
    found = client.post("/api/attend", {"input": source}).json()["map"]
    assert found["prediction"] == german.translate([source])[0] and found["truth"] is None
    drawn = client.post("/api/attend", {"seed": 3}).json()["map"]["input"]
    assert drawn == german.unseen(100, 0)[3][0] and client.request("GET", "/api/run").json()["draws"] is True
    long = client.post("/api/attend", {"input": "Hund " * 500})
    assert long.status_code == 422 and "at most" in long.json()["error"]
    off = {"layer": "decoder.0.cross", "to": "uniform"}
    touched = client.post("/api/attend", {"input": source, "interventions": [off]}).json()
    assert touched["original"]["prediction"] == found["prediction"]
    assert json.dumps(touched["map"]["probabilities"]) != json.dumps(found["probabilities"])


@pytest.mark.parametrize("name", ["step-x.safetensors", "step-.safetensors", f"step-{'9' * 40}.safetensors", "step-3"])
@pytest.mark.parametrize("folder", [True, False])
def test_stray_files_among_snapshots(tmp_path: Path, name: str, folder: bool) -> None:
    """Stray files and folders among the snapshots are ignored or reported in one line."""
    run = regard.train("signal2", hidden=8, steps=4, snapshots=2, savepath=tmp_path, progress=False)
    stray = run.folder / "snapshots" / name
    stray.mkdir() if folder else stray.write_bytes(b"\x00" * 9)
    client = Client(make_app(Explorer(run)))
    for found in (client.request("GET", "/api/run"), client.post("/api/playback", {}), client.post("/api/attend", {})):
        assert found.status_code == 200 or (found.status_code == 422 and "\n" not in found.json()["error"])
