"""With hostile clients, the server reports errors in one line, logs nothing and shuts down immediately."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import InputError, MachineError
from regard.server.explorer import Explorer
from tests.processes import Started
from tests.server.running import asked, connect, memory, receive, request, send, serving, showing

pytest.importorskip("uvicorn")
make_app = pytest.importorskip("regard.server.app").make_app
INPUT = "BCCCBAABACCCA"


@pytest.fixture(scope="module")
def shown(trained: regard.AnswerRun) -> Iterator[str]:
    """Yield the address of an explorer, and check at the end that nothing was written to stderr."""
    with showing(trained.folder) as (process, address):
        yield address
        os.kill(process.pid, signal.SIGTERM)
        assert (process.wait(), process.err) == (143, "")


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run whose importance takes minutes, and whose playback takes seconds."""
    run = regard.train(
        "signal2",
        hidden=64,
        heads=16,
        enc_layers=6,
        max_len=80,
        steps=60,
        batchsize=2,
        snapshots=50,
        savepath=tmp_path_factory.mktemp("heavy"),
        progress=False,
    )
    return run.folder


@pytest.mark.parametrize(
    ("given", "status", "message"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "not an HTTP/1.1 request"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "not an HTTP/1.1 request"),
        (b"GET / HTTP/1.0\r\n\r\n", 400, "host '' is not valid"),
        (b"G\xffT / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", 400, "not an HTTP/1.1 request"),
        (request("GET", "/" + "a" * 10_000), 404, "does not exist"),
        (request("GET", "/", cookie="a" * 200_000), 400, "not an HTTP/1.1 request"),
        (request("GET", "/", host="127.0.0.1\r\nhost: evil.example"), 400, "not an HTTP/1.1 request"),
        (request("GET", "/api/run", host="evil.example"), 400, "host 'evil.example' is not this machine"),
        (request("GET", "/api/run", host="127.0.0.1.evil.example:8137"), 400, "is not this machine"),
        (request("GET", "/api/run", host="[::1"), 400, "host '[::1' is not valid"),
        (request("GET", "/api/run", host="evil.example", connection="close"), 400, "is not this machine"),
        (asked({}, origin="http://evil.example"), 403, "origin 'http://evil.example' is not this page"),
        (asked({}, origin="http://127.0.0.1:1"), 403, "is not this page"),
        (asked({}, origin="null"), 403, "is not this page"),
        (asked({}, origin="http://[::1"), 403, "is not this page"),
        (request("GET", "/api/importance", sec_fetch_site="cross-site"), 403, "a page of another site"),
        (request("GET", "/../../etc/passwd"), 404, "does not exist"),
        (request("GET", "/js/..%2f..%2f..%2fetc/passwd"), 404, "does not exist"),
        (request("GET", "/js/%2e%2e/page.html"), 404, "does not exist"),
        (request("GET", "/view.js%00"), 404, "does not exist"),
        (request("GET", "/%ff%0d%0aset-cookie:%20a=b"), 404, "does not exist"),
        (request("GET", "/api/run/"), 404, "does not exist"),
        (request("GET", "//evil.example/"), 404, "does not exist"),
        (request("GET", "http://evil.example/"), 404, "does not exist"),
        (request("CONNECT", "evil.example:443"), 404, "does not exist"),
        (request("OPTIONS", "*"), 404, "does not exist"),
        *((request(method, "/api/attend"), 405, f"{method} is not accepted") for method in ("GET", "PUT", "DELETE")),
        *((request(method, "/"), 405, "send GET, HEAD") for method in ("POST", "OPTIONS", "TRACE", "NONSENSE")),
        (request("GET", "/api/run", upgrade="websocket", connection="upgrade"), 200, ""),
        (request("POST", "/api/attend", b"{}", content_type="text/plain"), 415, "send application/json"),
        (asked({}, content_length="999999999999"), 413, "larger than 262,144 bytes"),
        (asked({}, content_length="-1"), 400, "not an HTTP/1.1 request"),
        (asked({}, content_length="1" * 19), 413, "larger than 262,144 bytes"),
        (asked({}, transfer_encoding="gzip"), 400, "not an HTTP/1.1 request"),
        (
            request("POST", "/api/attend", content_type="application/json", transfer_encoding="chunked") + b"size\r\n",
            400,
            "not an HTTP/1.1 request",
        ),
    ],
)
def test_rejected_requests(shown: str, given: bytes, status: int, message: str) -> None:
    answer = send(shown, given)
    assert answer.status == status and answer.headers["content-type"] == "application/json"
    assert status == 200 or message in answer.error
    assert send(shown, asked({"input": INPUT})).status == 200


def test_body_without_length_is_limited(shown: str) -> None:
    with connect(shown) as connection:
        head = request("POST", "/api/attend", content_type="application/json", transfer_encoding="chunked")
        connection.sendall(head)
        for _ in range(5):
            connection.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        assert receive(connection).status == 413


def test_slow_clients_time_out(trained: regard.AnswerRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty simultaneous slow request heads and bodies do not delay other requests."""
    monkeypatch.setattr("regard.server.http_server.HEAD_SECONDS", 1.0)
    monkeypatch.setattr("regard.server.http_server.LINGER_SECONDS", 1.0)
    monkeypatch.setattr("regard.server.app.BODY_SECONDS", 1.0)
    begun = [b"", b"GET / HTTP/1.1\r\nhost: 127", asked({})[:-1], asked({}, content_length="9" * 9)]
    with serving(make_app(Explorer(trained))) as address:
        connections = [connect(address) for _ in range(52)]
        for index, connection in enumerate(connections):
            connection.sendall(begun[index % 4])
        for _ in range(10):
            began = time.monotonic()
            assert send(address, asked({"input": INPUT})).status == 200
            assert time.monotonic() - began < 1
        statuses = [receive(connection).status for connection in connections]
        assert statuses == [408, 408, 408, 413] * 13
        began = time.monotonic()
        for connection in connections:
            with pytest.raises(ConnectionError):
                while time.monotonic() - began < 10:  # the rest of a rejected body is accepted for a while
                    connection.sendall(b" ")
                    time.sleep(0.02)
            connection.close()


def test_every_request_of_a_connection_has_its_own_time_out(
    trained: regard.AnswerRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.server.http_server.HEAD_SECONDS", 0.5)
    with serving(make_app(Explorer(trained))) as address, connect(address) as connection:
        for _ in range(3):
            connection.sendall(asked({"input": INPUT}))
            assert receive(connection).status == 200
            time.sleep(0.6)
        connection.sendall(asked({"input": INPUT}) * 3)  # pipelined
        whole = b""
        while whole.count(b"HTTP/1.1 200") < 3:
            whole += connection.recv(2**20)
        connection.sendall(b"GET / HT")
        time.sleep(0.6)
        while b"HTTP/1.1 408" not in whole:
            more = connection.recv(2**20)
            assert more
            whole += more


def test_errors_are_one_line(
    trained: regard.AnswerRun, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Regard's errors have status 422; all other exceptions have status 500 without a traceback."""
    with serving(make_app(Explorer(trained))) as address:
        for error, status, message in [
            (InputError("run 'x' is damaged:\n train it again"), 422, "run 'x' is damaged: train it again"),
            (MachineError("snapshots cannot be read: \ud800"), 422, "snapshots cannot be read: \ud800"),
            (KeyError("z" * 5000), 500, "the explorer failed (KeyError: 'zzz"),
            (RecursionError("deep\ndown"), 500, "the explorer failed (RecursionError: deep down): please report it"),
        ]:
            for name in ("about", "attend"):
                monkeypatch.setattr(type(trained), name, _raising(error))
            for given in (request("GET", "/api/run"), asked({"input": INPUT})):
                answer = send(address, given)
                assert answer.status == status and message in answer.error and len(answer.error) <= 1000
        monkeypatch.undo()
        assert send(address, request("GET", "/api/run")).status == 200
        assert capfd.readouterr() == ("", "")
        monkeypatch.setenv("REGARD_DEBUG", "1")
        monkeypatch.setattr(type(trained), "about", _raising(KeyError("z")))
        assert send(address, request("GET", "/api/run")).status == 500
        assert "Traceback" in capfd.readouterr().err


def _raising(error: Exception) -> Callable[..., Any]:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    return fail


def test_limit_of_connections(shown: str) -> None:
    connections = [connect(shown) for _ in range(420)]
    answers = 0
    for connection in connections[400:]:
        answers += receive(connection).status == 429
    for connection in connections:
        connection.close()
    assert answers == 20
    time.sleep(0.2)
    assert send(shown, asked({"input": INPUT})).status == 200


def test_interventions_of_one_client_do_not_affect_others(shown: str) -> None:
    """Twenty threads with different interventions and twenty threads without interventions run simultaneously."""
    changes: list[list[Any]] = [[{"layer": "cross", "heads": [index % 2], "to": "off"}] for index in range(20)]
    bodies = [{"input": INPUT, "interventions": interventions} for interventions in [*changes, *([[]] * 20)]]
    expected = [json.loads(send(shown, asked(body)).body)["map"] for body in bodies]
    assert expected[0] != expected[1] != expected[-1] != expected[0]
    equal: list[bool] = []

    def ask(index: int) -> None:
        for _ in range(5):
            equal.append(json.loads(send(shown, asked(bodies[index])).body)["map"] == expected[index])

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert equal == [True] * 200


def test_long_requests_do_not_delay_others_and_stop_with_their_client(heavy: Path) -> None:
    with showing(heavy) as (process, address):
        send(address, asked({}))
        longs = [connect(address, 300) for _ in range(3)]
        for connection, name in zip(longs, ["importance", "importance", "playback"], strict=True):
            sent = asked({}, "/api/playback") if name == "playback" else request("GET", "/api/importance")
            connection.sendall(sent)
        for _ in range(5):
            began = time.monotonic()
            assert send(address, asked({})).status == 200
            assert send(address, request("GET", "/")).status == 200
            assert time.monotonic() - began < 2  # while three models run
        longs[0].setblocking(False)
        with pytest.raises(BlockingIOError):  # it is still running
            longs[0].recv(1)
        for connection in longs:
            connection.close()
        time.sleep(2)
        before = _processor_seconds(process)
        time.sleep(1)
        assert _processor_seconds(process) - before < 0.3


@pytest.mark.parametrize(
    ("number", "status", "stderr"),
    [(signal.SIGTERM, 143, ""), (signal.SIGINT, 130, "regard: interrupted\n"), (signal.SIGHUP, 129, "")],
)
def test_signals_end_the_server_at_once(heavy: Path, number: int, status: int, stderr: str) -> None:
    command = [sys.executable, "-m", "regard", "show", str(heavy), "--no-browser"]
    # The shell may have started the tests with signals ignored, as nohup does.
    heed = partial(signal.signal, number, signal.SIG_DFL)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-4]
        slow = [connect(address) for _ in range(4)]
        slow[0].sendall(request("GET", "/api/importance"))
        slow[1].sendall(asked({}, "/api/playback"))
        slow[2].sendall(asked({})[:-1])
        send(address, asked({}))
        began = time.monotonic()
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
        took = time.monotonic() - began
        for connection in slow:
            connection.close()
    assert (process.returncode, err) == (status, stderr)
    assert took < 2


def test_running_model_does_not_delay_the_end(trained: regard.AnswerRun) -> None:
    program = (
        "import sys, time, regard; run = regard.load(sys.argv[1]); "
        "type(run).attend = lambda *args, **kwargs: time.sleep(60); regard.show(run, browser=False)"
    )
    command = [sys.executable, "-c", program, str(trained.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-4]
        with connect(address) as connection:
            connection.sendall(asked({}))
            time.sleep(0.5)
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (143, "") and time.monotonic() - began < 2


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_memory_is_bounded(trained: regard.AnswerRun, count: int) -> None:
    """Send `count` valid and invalid requests, and compare the memory after a tenth of the requests with the
    memory at the end.
    """
    change = {"layer": "cross", "heads": [0], "to": "off"}
    sent = [
        asked({"input": INPUT}),
        asked({"seed": 3, "interventions": [change] * 3}),
        asked({"input": "XYZ"}),
        asked([[1] * 1000]),
        request("GET", "/api/importance"),
        request("GET", "/none"),
        request("GET", "/", host="evil.example"),
    ]
    with showing(trained.folder) as (process, address):
        for index in range(count):
            if index == max(count // 10, 200):
                before = memory(process)
            send(address, sent[index % len(sent)])
        assert memory(process) - before < 10


def _processor_seconds(process: Started) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
