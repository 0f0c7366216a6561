"""Tokens, and access from other machines."""

import re

import pytest

import regard
from regard.errors import InputError
from regard.server.access import make_token
from regard.server.explorer import Explorer
from regard.server.serve import is_this_machine
from tests.server.running import asked, request, send, serving, showing

pytest.importorskip("uvicorn")
make_app = pytest.importorskip("regard.server.app").make_app
TOKEN = "a-token-of-ours"


def test_token_is_required(trained: regard.AnswerRun) -> None:
    with serving(make_app(Explorer(trained), hosts=None, token=TOKEN)) as address:
        for path in ("/", "/explorer.js", "/view.js", "/none", "/api/run", "/api/importance"):
            for shown in ("", "?token=", f"?token={TOKEN[:-1]}", f"?token={TOKEN}x", "?token=%ff", "?token=%ed%a0%80"):
                answer = send(address, request("GET", path + shown, host="example.org"))
                assert answer.status == 401 and "open the address, with ?token=" in answer.error
                assert TOKEN not in answer.error and "set-cookie" not in answer.headers
        for cookie in ("a=b", f"regard={TOKEN}", "\xe9=\xe8", ";;;="):
            assert send(address, asked({}, cookie=cookie)).status == 401


def test_token_is_stored_in_a_cookie(trained: regard.AnswerRun) -> None:
    with serving(make_app(Explorer(trained), hosts=None, token=TOKEN)) as address:
        first = send(address, request("GET", f"/?token={TOKEN}", host="example.org:8137"))
        cookie = re.fullmatch(
            r"(regard-[0-9a-f]{8}=[\w-]+); Path=/; HttpOnly; SameSite=Strict", first.headers["set-cookie"]
        )
        assert first.status == 200 and b"explorer.js" in first.body and cookie is not None
        answer = send(address, asked({}, host="example.org:8137", cookie=cookie[1], origin="http://example.org:8137"))
        assert answer.status == 200 and "set-cookie" not in answer.headers
        for wrong in (cookie[1][:-1], f"{cookie[1]}x", cookie[1].partition("=")[0] + "="):
            assert send(address, asked({}, host="example.org:8137", cookie=wrong)).status == 401
        for other in ("http://evil.example", "http://example.org", "null"):
            answer = send(address, asked({}, host="example.org:8137", cookie=cookie[1], origin=other))
            assert answer.status == 403 and "is not this page" in answer.error


def test_cookies_differ_between_tokens(trained: regard.AnswerRun) -> None:
    names = set()
    for token in ("one-token", "another-token"):
        with serving(make_app(Explorer(trained), hosts=None, token=token)) as address:
            cookie = send(address, request("GET", f"/?token={token}")).headers["set-cookie"]
            names.add(cookie.partition("=")[0])
    assert len(names) == 2


def test_token_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_TOKEN", TOKEN)
    assert make_token() == TOKEN
    for unset in ("", None):
        monkeypatch.delenv("REGARD_TOKEN") if unset is None else monkeypatch.setenv("REGARD_TOKEN", unset)
        assert make_token() != make_token() and len(make_token()) >= 32
    for token, message in [
        ("short", "REGARD_TOKEN has 5 characters: choose 8 to 200"),
        ("x" * 201, "REGARD_TOKEN has 201 characters"),
        ("with a blank", "choose letters, digits, - and _"),
        ("zwölf-zeichen", "choose letters"),
        ("line\nend--", "choose letters"),
    ]:
        monkeypatch.setenv("REGARD_TOKEN", token)
        with pytest.raises(InputError, match=re.escape(message)) as caught:
            make_token()
        assert token not in str(caught.value)  # it may be a secret


@pytest.mark.parametrize(
    ("host", "here"),
    [
        *((host, True) for host in ("127.0.0.1", "127.0.0.2", "localhost", "::1")),
        *((host, False) for host in ("0.0.0.0", "::", "192.168.1.2", "example.org", "", "127.0.0.1.evil")),
    ],
)
def test_loopback_addresses(host: str, here: bool) -> None:
    assert is_this_machine(host) is here


def test_printed_address(trained: regard.AnswerRun) -> None:
    with showing(trained.folder, "--host", "0.0.0.0", env={"REGARD_TOKEN": TOKEN}) as (_, address):
        assert re.fullmatch(rf"http://127\.0\.0\.1:\d+/\?token={TOKEN}", address)
        assert send(address, request("GET", "/api/run")).status == 401
        assert send(address, request("GET", f"/api/run?token={TOKEN}", host="other.example")).status == 200
    with showing(trained.folder) as (_, address):
        assert "token" not in address
