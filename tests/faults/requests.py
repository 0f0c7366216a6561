"""A campaign of invalid requests to every route of the explorer.

Routes are read from the application, and request bodies are drawn from the types of each route, so new routes
are included automatically. Each request is determined by its seed: `request_of(seed, routes)` creates it again,
and `python -m tests.faults requests --only SEED` sends it.

The outcome is the status. Faults are a status of at least 500, an error that is not one line of JSON, a missing
answer, output on standard error, and different answers to the same request.
"""

import json
import random
import re
import string
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
from starlette.applications import Starlette
from starlette.routing import Route

import regard
from regard.cli import main as show
from regard.server.app import ENDPOINTS, make_app
from regard.server.explorer import Explorer
from tests.faults.report import Report, Trial, counted
from tests.server.running import Answer, asked, connect, receive, request, send, showing

INPUT = "BCCCBAABACCCA"
USUAL_COUNT, BETWEEN = 10_000, 1_000_000
"""Number of requests in one campaign, and the distance between the first seeds of two campaigns."""
SECONDS = 60.0
"""Time limit of an answer; a missing body is refused after ten seconds."""
FINAL = re.compile(rb"^HTTP/1\.1 ([2-9]\d\d) ", re.MULTILINE)
"""The first line of a final response."""
BEYOND = 2**20
"""Size of a request that the explorer refuses without reading the whole request: four times its limit."""
SIDE_BY_SIDE, TOGETHER = 32, 500
"""Numbers of parallel connections, and of requests after which an answer is compared with the first."""
METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "get", "X" * 300)
TEXTS = ("", INPUT, "BCX", "A" * 20_001, "\x00", "\u2028", "é" * 50, "<script>alert(1)</script>", "../../etc/passwd")
NUMBERS = (0, 1, -1, 7, 2**31, 2**32, 2**63, 2**64, 10**30, 0.5, -0.0, 1e308, 5e-324, 1.0)
RAW = (b"NaN", b"Infinity", b"1e999", b"1" + b"0" * 5000, b'"\\ud800"', b'"\xff"', b"[" * 100_000, b'{"a":' * 100_000)
"""Values that JSON does not have, or that are invalid."""
NAMES = ("cross", "encoder.0.self_attention", "encoder.layers.0.self_attention", "", "x", "encoder", "__class__")
KNOWN: dict[str, tuple[Sequence[Any], Sequence[Any]]] = {
    "layer": (NAMES[:2], NAMES),
    "heads": (([0], [1], [0, 1]), ([], [1, 1], [9], [-1], [10**12], [0] * 300)),
    "to": (("off", "uniform"), (0, 1, 0.5, 2, -1, "on", 1e-300)),
    "query": ((None,), (0, 1, *NUMBERS)),
    "key": ((None,), (0, 1, *NUMBERS)),
}
"""Valid values of some fields, and further values to try."""
HOSTS = (*("evil.example", "127.0.0.1.evil.example", "localhost", "127.0.0.1:1", "[::1]:8137", "", "a b", "\xe9"), "*")
ORIGINS = (
    *("http://evil.example", "null", "http://127.0.0.1", "https://[::1", "", "file://"),
    "http://127.0.0.1:99999",
)
ELSEWHERE = (
    b"\r\nhost: evil.example\r\n",
    *(b"\r\norigin: %s\r\n" % each.encode() for each in ORIGINS if each not in ("", "http://127.0.0.1")),
)
"""Headers of requests that are always refused."""


def routes_of(app: Starlette) -> list[tuple[str, str]]:
    """Return every route of an application: its method and path."""
    return [
        (method, route.path)
        for route in app.routes
        if isinstance(route, Route)
        for method in sorted(route.methods or ())
    ]


def request_of(seed: int, routes: Sequence[tuple[str, str]]) -> bytes:
    """Return the bytes of one request."""
    draw = random.Random(seed)
    # There are many similar files, so most requests go to routes that read input or compute.
    read = {path for path, endpoint in ENDPOINTS.items() if endpoint.body is not None}
    weights = [20 if path in read else 4 if path.startswith("/api/") else 0.3 for _, path in routes]
    [(method, path)] = draw.choices(routes, weights)
    question = ENDPOINTS.get(path)
    body = b""
    headers: dict[str, str] = {}
    if question is not None and question.body is not None:
        body, headers = _body(draw, question.body), {"content_type": "application/json"}
    kind = draw.choice(["body", "body", "body", "body", "method", "path", "headers", "bytes"])
    if kind == "method":
        method = draw.choice(METHODS)
    elif kind == "path":
        path = _path(draw, path)
    elif kind == "headers":
        headers.update(_headers(draw))
    sent = request(method, path, body, **headers)
    return _damaged(draw, sent) if kind == "bytes" else sent


def _body(draw: random.Random, shape: type[msgspec.Struct]) -> bytes:
    """Return a body that matches a type exactly or nearly."""
    if draw.random() < 0.1:
        return draw.choice([b"", b"null", b"[]", b'"x"', b"{", b"{}", *RAW])
    if draw.random() < 0.05:
        return b" " * draw.choice([2**18, 2**18 + 1, 10**6])
    return json.dumps(_object(draw, shape, wild=draw.random() < 0.6)).encode().replace(b'"?"', draw.choice(RAW))


def _object(draw: random.Random, shape: type[msgspec.Struct], *, wild: bool) -> dict[str, Any]:
    """Return an object of a type; if `wild`, the object may be invalid."""
    hints = get_type_hints(shape)
    required = [field.name for field in msgspec.structs.fields(shape) if field.required]
    optional = [name for name in shape.__struct_fields__ if name not in required]
    fields = [name for name in required if not wild or draw.random() < 0.95]
    fields += [name for name in optional if draw.random() < 0.5]
    found = {name: _value(draw, name, hints[name], wild=wild) for name in fields}
    if wild and draw.random() < 0.1:
        found[draw.choice(["__proto__", "Input", "", "x" * 1000, "\n", "\u202e"])] = 1
    return found


def _value(draw: random.Random, name: str, hint: Any, *, wild: bool) -> Any:
    """Return a value of a field."""
    if wild and draw.random() < 0.04:
        return "?"  # a mark, replaced by text that Python values cannot express
    if wild and draw.random() < 0.08:
        wrong: list[Any] = [None, True, {}, [[]], {"a": {"b": []}}, *TEXTS, *NUMBERS]
        return draw.choice(wrong)
    inner = _struct_of(hint)
    if inner is not None:
        lengths = [0, 1, 2, 201] if wild else [1, 2]
        return [_object(draw, inner, wild=wild) for _ in range(draw.choice(lengths))]
    plain, others = KNOWN.get(name, ((INPUT, None), TEXTS) if "str" in str(hint) else ((0, 1, 2), NUMBERS))
    return draw.choice([*plain, *others] if wild else plain)


def _struct_of(hint: Any) -> type[msgspec.Struct] | None:
    """Return the item type of a list field."""
    for each in get_args(hint):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return each
    return None


def _path(draw: random.Random, path: str) -> str:
    """Return an unknown path, which may resemble a known path."""
    other = (
        *("../etc/passwd", "%2e%2e%2fetc%2fpasswd", "..%5c..%5cwindows", "%00", "%ff", "%0d%0aa:b", "."),
        "?token=x",
    )
    whole = ("*", "//evil.example/", "http://evil.example/", "/" + "a" * 9000, "/.git/config", "/js/", "/api")
    return draw.choice([f"{path}/{draw.choice(other)}", f"{path}{draw.choice(other)}", path.upper(), *whole])


def _headers(draw: random.Random) -> dict[str, str]:
    """Return invalid or unusual headers."""
    noise = "".join(draw.choices(string.printable.replace("\r", "").replace("\n", ""), k=draw.choice([1, 50, 5000])))
    known: dict[str, Sequence[str]] = {
        "host": HOSTS,
        "origin": ORIGINS,
        "sec_fetch_site": ("cross-site", "same-site", "none", "x"),
        "content_type": ("text/plain", "application/json; charset=utf-16", "multipart/form-data", "", "a" * 9000),
        "content_length": ("-1", "0", "1", "999999999", "1" * 40, "x", "262145"),
        "transfer_encoding": ("chunked", "gzip", "chunked, chunked", "identity"),
        "cookie": (noise, "regard=1", ";" * 500),
        "connection": ("close", "upgrade", "keep-alive, x"),
        "upgrade": ("websocket", "h2c"),
        "expect": ("100-continue", "x"),
        "x_forwarded_for": ("127.0.0.1",),
        "range": ("bytes=0-", "bytes=9-1"),
        "accept_encoding": ("gzip", noise),
        "authorization": ("Bearer " + noise,),
    }
    return {name: draw.choice(known[name]) for name in draw.sample(sorted(known), draw.choice([1, 1, 2, 3]))}


def _damaged(draw: random.Random, sent: bytes) -> bytes:
    """Return a request with flipped, removed, repeated or mixed bytes."""
    found = bytearray(sent[:20_000])
    for _ in range(draw.choice([1, 3, 30])):
        place = draw.randrange(len(found))
        action = draw.randrange(4)
        if action == 0:
            found[place] ^= 1 << draw.randrange(8)
        elif action == 1:
            found[place:place] = bytes([draw.randrange(256)])
        elif action == 2:
            del found[place : place + draw.choice([1, 5])]
            found = found or bytearray(b"x")
        else:
            found += found[place:][:1000]
    return bytes(found)


def judge(given: bytes, answer: Answer | None) -> str | None:
    """Return the fault of an answer; None for a correct answer."""
    if answer is None:
        # If the connection is closed during an oversized body, the answer (413) may be lost.
        return None if len(given) > BEYOND else "no answer"
    head = given.partition(b"\r\n\r\n")[0] + b"\r\n"
    if answer.status < 400 and any(sign in head for sign in ELSEWHERE):
        return f"status {answer.status} for a page elsewhere"
    if answer.status >= 500:
        return f"status {answer.status}: {answer.body[:200]!r}"
    if answer.status < 400 or given.startswith(b"HEAD "):
        return _unnamed(given, answer)
    try:
        line = answer.error
    except (ValueError, AssertionError):
        return f"status {answer.status} without a line of JSON: {answer.body[:200]!r}"
    return None if 10 < len(line) <= 1000 and line.isprintable() else f"a line that is none: {line[:200]!r}"


def _unnamed(given: bytes, answer: Answer) -> str | None:
    """Return the fault of a map without its interventions or the original answer; None for a correct map."""
    if answer.status != 200 or not given.startswith(b"POST /api/attend"):
        return None
    try:
        asked = json.loads(given.partition(b"\r\n\r\n")[2]).get("interventions") or []
    except ValueError:  # a chunked body
        return None
    found = json.loads(answer.body)
    named = found.get("map", {}).get("interventions")
    if named is None or len(named) != len(asked) or bool(asked) != ("original" in found):
        return f"{len(asked)} interventions, of which the map names {named}"
    return None


def try_requests(address: str, seeds: Sequence[int], routes: Sequence[tuple[str, str]]) -> list[Trial]:
    """Send the requests of some seeds to an explorer, each on its own connection."""
    trials: list[Trial] = []
    before = send(address, asked({"input": INPUT})).body

    def attempt(seed: int) -> Trial:
        given = request_of(seed, routes)
        answer = _answer(address, given)
        wrong = judge(given, answer)
        outcome = "no answer" if answer is None else f"status {answer.status}"
        first = given.partition(b"\r\n")[0][:80].decode(errors="backslashreplace")
        return Trial(seed, first.partition(" ")[0], outcome, () if wrong is None else (wrong,), (first,))

    # Send requests in parallel, because some requests last until the timeout of the explorer.
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        parts = range(0, len(seeds), TOGETHER)
        for begin in counted(f"requests, {TOGETHER} at a time", len(parts), parts):
            trials += pool.map(attempt, seeds[begin : begin + TOGETHER])
            if send(address, asked({"input": INPUT})).body != before:
                other = "from here on, another answer than before to the same input"
                trials.append(Trial(seeds[begin], "POST", "another answer", (other,), ()))
    return trials


def _answer(address: str, given: bytes) -> Answer | None:
    """Send a request and close the sending side; return None if a complete request gets no answer."""
    try:
        with connect(address, SECONDS) as connection:
            # The server waits for the rest of a truncated request, so bytes that end any request are sent, too.
            connection.sendall(given + b"\r\n\r\n" + b"0\r\n\r\n" if b"\r\n\r\n" not in given else given)
            return _receive(connection, given)
    except OSError:  # even after the time limit
        return None


def _receive(connection: Any, given: bytes) -> Answer:
    if not given.startswith(b"HEAD "):
        return receive(connection)
    read = b""  # the declared length is that of a missing body
    while not (found := FINAL.search(read)):
        more = connection.recv(2**20)
        if not more:
            raise ConnectionError("the connection ended before its answer")
        read += more
    return Answer(int(found[1]), {}, b"")


def main(
    count: int | None, seed: int, only: int | None = None, *, run: Path | None = None, program: Callable[[], Any] = show
) -> Report:
    """Send `count` requests to a new explorer; the seeds start at a million times `seed`. `program`: the command
    line of the explorer."""
    first = seed * BETWEEN
    seeds = range(first, first + (count or USUAL_COUNT)) if only is None else [only]
    with tempfile.TemporaryDirectory() as scratch:
        if run is None:
            run = regard.train(
                "signal2", hidden=8, heads=2, steps=8, snapshots=3, savepath=scratch, progress=False
            ).folder
        routes = routes_of(make_app(Explorer(regard.load(run))))
        with showing(run, program=program) as (process, address):
            trials = try_requests(address, seeds, routes)
            process.process.terminate()
            process.wait()
            said = process.err
    if said:
        trials.append(Trial(-1, "", "a word on standard error", (said,), ()))
    if only is not None:
        sys.stderr.write(f"{request_of(only, routes)!r}\n{trials}\n")
    return Report("requests to the explorer", seed, trials, "python -m tests.faults requests --only {index}")
