"""A sample of the campaign of requests; the campaign detects faults."""

from starlette.applications import Starlette
from starlette.routing import Route

import regard
from regard.cli import main as show
from regard.server import app
from regard.server.app import ENDPOINTS, make_app
from regard.server.explorer import Explorer
from tests.faults.requests import judge, main, request_of, routes_of
from tests.server.running import Answer

SAMPLE = 500


def impatient() -> int:
    """Run Regard with a short time limit for the body of a request, which some requests reach."""
    app.BODY_SECONDS = 2.0
    return show()


def test_a_sample_of_requests(trained: regard.AnswerRun) -> None:
    report = main(SAMPLE, 0, run=trained.folder, program=impatient)
    assert not report.faults, report.told()
    assert sum(report.counts.values()) == SAMPLE
    assert {f"status {each}" for each in (200, 400, 403, 404, 405, 413, 415, 422)} <= set(report.counts)


def test_a_request_can_be_repeated_and_every_route_is_tried(trained: regard.AnswerRun) -> None:
    routes = routes_of(make_app(Explorer(trained)))
    assert {path for _, path in routes} > set(ENDPOINTS) | {"/", "/js/entry.js"}
    sent = [request_of(seed, routes) for seed in range(SAMPLE)]
    assert sent == [request_of(seed, routes) for seed in range(SAMPLE)] and len(set(sent)) > SAMPLE / 2
    for path in ENDPOINTS:
        assert any(path.encode() in each for each in sent)
    new = Starlette(routes=[Route("/new", lambda request: None)])
    assert any(b" /new HTTP" in request_of(seed, routes_of(new)) for seed in range(20))


def test_faults_are_recognized() -> None:
    def found(status: int, body: bytes, given: bytes = b"GET / HTTP/1.1") -> str | None:
        return judge(given, Answer(status, {}, body))

    assert found(200, b"anything") is None and found(404, b"", b"HEAD / HTTP/1.1") is None
    assert found(422, b'{"error": "seed -1 does not fit: give another"}') is None
    assert judge(b"", None) == "no answer"
    asked = b'POST /api/attend HTTP/1.1\r\n\r\n{"interventions": [{"layer": "cross"}]}'
    named = b'{"map": {"interventions": ["cross: all heads off"]}, "original": {}}'
    assert judge(asked, Answer(200, {}, named)) is None
    hidden = judge(asked, Answer(200, {}, b'{"map": {"interventions": []}, "original": {}}'))
    assert hidden == "1 interventions, of which the map names []"
    assert found(200, b"{}", b"GET / HTTP/1.1\r\norigin: http://evil.example\r\n\r\n") is not None
    for status, body in [
        (500, b'{"error": "a line that says what is wrong"}'),
        (404, b"Not Found"),
        (422, b'{"error": "a line that says\\nand says on"}'),
        (422, b'{"error": ""}'),
        (422, b'{"detail": "a line that says what is wrong"}'),
    ]:
        assert found(status, body) is not None
