"""The live page against those it is not for. `-s` prints what each attempt got; docs/microscope_hosts.md holds the table."""

import http.client
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import wrt
from tests.microscope.hostile import NAMES
from wrt._microscope import assets
from wrt._microscope.answer import Limits
from wrt._microscope.encode import text
from wrt._microscope.model import Microscope
from wrt._microscope.server import POLICY, Live
from wrt._microscope.thresholds import BODY_BYTES, QUEUE_QUESTIONS
from wrt.errors import WrtError

DOCS = Path(__file__).parents[2] / "docs" / "microscope_hosts.md"
TRAVERSALS = [
    "/../../etc/passwd", "/..%2f..%2fetc%2fpasswd", "/%2e%2e/%2e%2e/etc/passwd", "/%252e%252e%252fetc%252fpasswd",
    "/..\\..\\etc\\passwd", "/..%5c..%5cetc%5cpasswd", "//etc/passwd", "/./microscope.js", "/microscope.js/",
    "/microscope.js?x", "/assets/microscope.js", "/microscope.js%00.html", "/%c0%ae%c0%ae/etc/passwd", "/....//etc/passwd",
    "/api/../microscope.js", "file:///etc/passwd", "/__init__.py", "/server.py", "/.git/config", "/api/__class__",
]  # fmt: skip


@pytest.fixture(scope="module")
def live(run: wrt.Trace) -> Iterator[Live]:
    patch = pytest.MonkeyPatch()
    patch.setattr(assets, "bundle", lambda: assets.Bundle("export default {}", "body {}"))
    with Live(Microscope(run, limits=Limits(passes=20))) as served:
        served.answer("hello", {})  # the first question starts a thread: not within somebody's test
        yield served
    patch.undo()


def honest(live: Live) -> dict[str, str]:
    here = f"127.0.0.1:{live.port}"
    return {"Host": here, "Origin": f"http://{here}", "X-Wrt-Token": live.token, "Content-Type": "application/json"}


def request(
    live: Live, path: str = "/api/hello", *, method: str = "POST", body: bytes | None = b"{}", drop: tuple[str, ...] = (),
    plain: bool = False, **changed: str,
) -> tuple[int, dict[str, str], bytes]:  # fmt: skip
    """One request, byte by byte as told; http.client adds nothing of its own. `plain`: the path is not below the page's own."""
    path = path if plain else live.root + path
    headers = honest(live) | {name.replace("_", "-"): value for name, value in changed.items()}
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=10)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    if body is not None and "Content-Length" not in headers:
        headers["Content-Length"] = str(len(body))
    for name, value in headers.items():
        if name not in drop:
            connection.putheader(name, value)
    connection.endheaders()
    if body is not None:
        connection.send(body)
    reply = connection.getresponse()
    got = reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
    connection.close()
    return got


def ask(live: Live, verb: str, **args: Any) -> dict[str, Any]:
    status, _, body = request(live, f"/api/{verb}", body=json.dumps(args).encode())
    assert status == 200
    return dict(json.loads(body))


def answered(live: Live, verb: str, **args: Any) -> dict[str, Any]:
    """The reply itself, also where a busy machine makes it late."""
    told = ask(live, verb, **args)
    job = told.get("pending")
    while job is not None and (told.get("pending") or told.get("result", {}).get("done") is False):
        told = ask(live, "progress", job=job)
    return told


def attempts(live: Live) -> Iterator[tuple[str, int, str]]:
    """Who tried what, the status, and what was said."""
    other = f"127.0.0.1:{live.port + 1}"
    here = f"127.0.0.1:{live.port}"

    def tried(what: str, **how: Any) -> tuple[str, int, str]:
        status, _, body = request(live, **how)
        told = json.loads(body) if body.startswith(b"{") else {}
        said = "answered" if told.get("ok") else told.get("error", {}).get("what", "")
        return what, status, said

    yield tried("an honest question")
    yield tried("an honest question, by the name localhost", Host=f"localhost:{live.port}", Origin=f"http://localhost:{live.port}")
    yield tried("Host: evil.example (DNS rebinding)", Host="evil.example", Origin="http://evil.example")
    asks_page: dict[str, Any] = {"method": "GET", "path": "/", "body": None, "drop": ("Origin",)}
    yield tried("Host: evil.example, for the page itself", Host="evil.example", **asks_page)
    yield tried("Host of another port", Host=other, Origin=f"http://{other}")
    yield tried("no Host", drop=("Host",))
    yield tried("Origin: null", Origin="null")
    yield tried("Origin: http://evil.example", Origin="http://evil.example")
    yield tried("Origin with https", Origin=f"https://{here}")
    yield tried("Origin of another port", Origin=f"http://{other}")
    yield tried("Origin that begins right", Origin=f"http://{here}.evil.example")
    yield tried("no Origin", drop=("Origin",))
    yield tried("Sec-Fetch-Site: cross-site", Sec_Fetch_Site="cross-site")
    yield tried("no token", drop=("X-Wrt-Token",))
    yield tried("a wrong token", X_Wrt_Token="x" * len(live.token))
    yield tried("the token but its last letter", X_Wrt_Token=live.token[:-1])
    yield tried("the token in the path", path=f"/api/hello?token={live.token}", drop=("X-Wrt-Token",))
    yield tried("Content-Type: text/plain", Content_Type="text/plain")
    yield tried("a form", Content_Type="application/x-www-form-urlencoded", body=b"a=1")
    yield tried(f"a body of {BODY_BYTES + 1} bytes", body=b" " * (BODY_BYTES + 1))
    yield tried("a body said to have 10^12 bytes", Content_Length="1000000000000")
    yield tried("a body of negative length", Content_Length="-1")
    yield tried("a body in chunks", Transfer_Encoding="chunked", drop=("Content-Length",))
    yield tried("a body that is no JSON", body=b"{")
    yield tried("a body that holds NaN", body=b'{"name": NaN}')
    yield tried("a body nested 20,000 deep", body=b"[" * 20_000)
    yield tried("a body that is a list", body=b"[]")
    yield tried("a question by GET", method="GET", body=None)
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
        yield tried(f"{method}", method=method)
    yield tried("an unknown verb", path="/api/eval")
    bare: dict[str, Any] = {"method": "GET", "body": None, "drop": ("Origin", "X-Wrt-Token"), "plain": True}
    yield tried("GET / without the address of the page", path="/", **bare)
    yield tried("a question without the address of the page", path="/api/hello", plain=True)
    yield tried("the token, for a cookie", path="/api/enter")
    yield tried("no token, for a cookie", path="/api/enter", drop=("X-Wrt-Token",))
    cookie = request(live, "/api/enter")[1]["set-cookie"].split(";")[0]
    by_cookie: dict[str, Any] = {"drop": ("X-Wrt-Token",), "Cookie": cookie}
    yield tried("an honest question, by the cookie", **by_cookie)
    yield tried("the cookie, for another cookie", path="/api/enter", **by_cookie)
    yield tried("the cookie, from a page of another port", Origin=f"http://{other}", **by_cookie)
    yield tried("the cookie, Sec-Fetch-Site: same-site", Sec_Fetch_Site="same-site", **by_cookie)
    yield tried("a cookie of another run", drop=("X-Wrt-Token",), Cookie="wrt=" + "x" * 43)


@pytest.fixture(scope="module")
def table(live: Live) -> list[tuple[str, int, str]]:
    rows = list(attempts(live))
    served = [request(live, path, method="GET", body=None, plain=plain)[0] for path in TRAVERSALS for plain in (False, True)]
    rows.append((f"{len(TRAVERSALS)} paths that climb or guess", max(served), "there is no such page"))
    passes = answered(live, "derivative", target=whole("conv2"), source=whole("conv1"), reduce="norm")
    rows.append(("a question of too many passes", 200, passes["error"]["what"] if not passes["ok"] else "answered"))
    large = Microscope(wrt.trace(lambda x: x * 2, torch.ones(4000), values=True))
    with pytest.raises(WrtError) as bound:
        large.ask("map", {"target": whole("output"), "source": whole("x"), "keep": [0, 0]})
    rows.append(("a map of 4000 x 4000", 200, bound.value.what))
    slow = [socket.create_connection(("127.0.0.1", live.port), timeout=10) for _ in range(40)]
    late = answered(live, "hello")["ok"]
    rows.append(("a question beside 40 slow connections", 200, "answered" if late else "locked out"))
    for one in slow:
        one.close()
    hostile = [answered(live, "tensor", name=name)["error"]["what"] for name in NAMES]
    assert all(what.startswith("no tensor named") for what in hostile)
    rows.append((f"{len(NAMES)} hostile names", 200, "no tensor of that name, as text"))
    broken = wrt.trace(lambda x: torch.log(x), torch.tensor([0.0, 1.0]), values=True)
    told = Microscope(broken).ask("derivative", {"target": {"name": "output", "index": [0]}, "source": whole("x")})
    assert (told["nonfinite"], "Infinity" in text(told), "NaN" in text(told)) == (1, False, False)
    rows.append(("a derivative that is infinite", 200, "as bytes; JSON never holds NaN or Infinity"))
    return rows


def whole(name: str) -> dict[str, Any]:
    return {"name": name, "index": None}


def printed(rows: list[tuple[str, int, str]]) -> str:
    width = max(len(what) for what, *_ in rows)
    return "\n".join(f"{what:{width}}  {status}  {said}" for what, status, said in rows)


def test_every_attempt_gets_what_the_page_says(table: list[tuple[str, int, str]]) -> None:
    print("\n" + printed(table))
    inside = re.search(r"<!-- safety -->\n+```text\n(.*?)```", DOCS.read_text(), re.DOTALL) if DOCS.exists() else None
    assert inside is not None
    assert inside[1].rstrip() == printed(table)


def test_only_honest_questions_are_answered(table: list[tuple[str, int, str]]) -> None:
    answered = [what for what, _, said in table if said == "answered"]
    assert answered == [
        "an honest question", "an honest question, by the name localhost", "the token, for a cookie",
        "an honest question, by the cookie", "a question beside 40 slow connections",
    ]  # fmt: skip


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_reaches_the_disk(live: Live, path: str, plain: bool) -> None:
    status, _, body = request(live, path, method="GET", body=None, plain=plain)
    assert status in (400, 404)
    assert b"root:" not in body
    assert b"import" not in body


def test_the_static_files_are_three(live: Live) -> None:
    assert sorted(live.static()) == [f"{live.root}/", f"{live.root}/microscope.css", f"{live.root}/microscope.js"]
    for path in live.static():
        status, headers, body = request(live, path, method="GET", body=None, drop=("Origin", "X-Wrt-Token"), plain=True)
        assert status == 200
        assert live.token.encode() not in body


@pytest.mark.parametrize("path", ["/", "/microscope.js", "/nowhere", "/api/hello"])
def test_every_reply_carries_the_strict_headers(live: Live, path: str) -> None:
    method = "POST" if path.startswith("/api") else "GET"
    _, headers, _ = request(live, path, method=method, body=b"{}" if method == "POST" else None)
    assert headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers
    assert "access-control-allow-origin" not in headers


def test_the_token_stands_behind_the_hash_alone(live: Live, capfd: pytest.CaptureFixture[str]) -> None:
    before, _, after = live.url.partition("#")
    assert live.token in after
    assert live.token not in before
    request(live)
    request(live, X_Wrt_Token="wrong")
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
    assert live.token not in repr(live) + repr(live.guard)


def test_it_listens_on_loopback_alone(live: Live) -> None:
    assert live._server.server_address[0] == "127.0.0.1"
    with socket.socket() as other:
        other.settimeout(0.5)
        assert other.connect_ex(("127.0.0.2", live.port)) != 0


@pytest.mark.parametrize("raw", [b"GARBAGE\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x00\x01\x02\r\n\r\n", b"GET " + b"a" * 70_000])
def test_what_is_no_request_is_refused_without_an_echo(live: Live, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        reply = b""
        while piece := connection.recv(4096):
            reply += piece
    assert b"GARBAGE" not in reply
    assert b"200" not in reply.split(b"\r\n")[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_comes_back_as_text_alone(name: str) -> None:
    told = text({"name": name})
    assert not re.search(r"[<>&\u2028\u2029]", told)
    assert json.loads(told) == {"name": name}


def test_hostile_names_in_a_recording_are_text_everywhere(page: assets.Bundle) -> None:
    with wrt.record(values=True) as t:
        x = torch.ones(2, requires_grad=True)
        for name in NAMES:
            wrt.tap(name, x * 2)
    glass = Microscope(t, title=NAMES[0], tokens=NAMES)
    for verb in ("hello", "graph"):
        assert not re.search("[<>]", text(glass.ask(verb, {})))
    assert "<title>wrt</title>" in assets.live_page()
    known = {name for node in glass.ask("graph", {})["nodes"] for name in node["names"]}
    assert sum(name in known for name in NAMES) == len(NAMES)


def test_no_more_questions_wait_than_one_run_can_answer(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    gate = threading.Event()
    waiting = [live.worker.submit(gate.wait) for _ in range(QUEUE_QUESTIONS)]
    refused = ask(live, "tensor", name="x")
    gate.set()
    assert refused["error"]["code"] == "limit"
    assert all(one.done.wait(5) for one in waiting)
    for one in waiting:
        live.worker.take(one)
    assert ask(live, "hello")["ok"]


def test_long_work_is_pending_tells_how_far_it_is_and_can_be_stopped(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from wrt._run.progress import Progress

    step = threading.Event()

    def slow(args: dict[str, Any]) -> dict[str, Any]:
        with Progress("1000 rows", 1000) as progress:
            for _ in range(1000):
                step.wait(0.05)
                progress.advance(1)
        return {}

    monkeypatch.setitem(live.microscope._verbs, "sizes", slow)
    pending = ask(live, "sizes")["pending"]
    told = ask(live, "progress", job=pending)["result"]
    assert (told["done"], told["doing"]) == (False, "1000 rows")
    assert 0 < told["share"] < 0.5
    assert told["left_s"] > 0
    ask(live, "cancel", job=pending)
    ended = ask(live, "progress", job=pending)
    while ended.get("result", {}).get("done") is False:
        ended = ask(live, "progress", job=pending)
    assert ended["error"]["code"] == "cancelled"
    assert not ask(live, "progress", job=pending)["ok"]


def test_a_server_that_was_closed_answers_again_at_the_same_address(run: wrt.Trace, page: assets.Bundle) -> None:
    with Live(Microscope(run)) as live:
        address = live.url
        assert ask(live, "hello")["ok"]
        live.close()
        with pytest.raises(ConnectionError):
            request(live)
        live.start()
        assert live.url == address
        assert ask(live, "hello")["ok"]


def test_the_port_and_the_token_can_be_given(run: wrt.Trace, page: assets.Bundle) -> None:
    with Live(Microscope(run)) as first:
        port, token = first.port, first.token
    with Live(Microscope(run), port=port, token=token) as second:
        assert (second.port, second.token) == (port, token)
        assert ask(second, "hello")["ok"]


def test_a_port_that_is_taken_is_refused_in_words(live: Live, run: wrt.Trace, page: assets.Bundle) -> None:
    with pytest.raises(WrtError) as caught:
        Live(Microscope(run), port=live.port)
    assert str(caught.value).splitlines()[0] == f"port {live.port} cannot be used"


def test_a_request_hidden_in_the_body_of_another_is_not_read(live: Live) -> None:
    here = f"127.0.0.1:{live.port}"
    hidden = f"GET {live.root}/microscope.css HTTP/1.1\r\nHost: {here}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as connection:
        connection.sendall(f"GET {live.root}/ HTTP/1.1\r\nHost: {here}\r\nContent-Length: {len(hidden)}\r\n\r\n{hidden}".encode())
        reply = b""
        while piece := connection.recv(4096):
            reply += piece
    assert reply.startswith(b"HTTP/1.1 400")
    assert reply.count(b"HTTP/1.1") == 1
