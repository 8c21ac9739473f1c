"""The live page against those who would lock it out, read along, or take its place."""

import contextlib
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import torch

import wrt
from tests.microscope.test_safety import answered, ask, request
from wrt._microscope import assets
from wrt._microscope.answer import Limits
from wrt._microscope.model import Microscope
from wrt._microscope.server import Live, PortTaken


@pytest.fixture
def live(run: wrt.Trace, page: assets.Bundle) -> Iterator[Live]:
    with Live(Microscope(run, title="a secret title", limits=Limits(request_s=3.0))) as served:
        ask(served, "hello")
        yield served


def entered(live: Live) -> str:
    status, headers, _ = request(live, "/api/enter")
    assert status == 200
    return headers["set-cookie"]


# ---- the token, once ----


def test_the_token_is_exchanged_for_a_cookie_that_no_script_reads(live: Live) -> None:
    told = entered(live)
    assert live.token not in told
    words = [one.strip() for one in told.split(";")]
    assert {"HttpOnly", "SameSite=Strict", f"Path={live.root}/"} <= set(words)
    status, _, body = request(live, drop=("X-Wrt-Token",), Cookie=words[0])
    assert (status, json.loads(body)["ok"]) == (200, True)


@pytest.mark.parametrize("cookie", ["", "wrt=", "wrt=x", "other=1; wrt=y", "wrt", "=", "wrt=\xe9"])
def test_another_cookie_opens_nothing(live: Live, cookie: str) -> None:
    entered(live)
    status, _, body = request(live, drop=("X-Wrt-Token",), Cookie=cookie)
    assert (status, json.loads(body)["ok"]) == (403, False)


def test_a_cookie_asks_from_this_page_alone(live: Live) -> None:
    cookie = entered(live).split(";")[0]
    for how in ({"Origin": "http://127.0.0.1:1"}, {"Sec_Fetch_Site": "same-site"}, {"Content_Type": "text/plain"}):
        assert request(live, drop=("X-Wrt-Token",), Cookie=cookie, **how)[0] in (403, 415)
    assert request(live, drop=("X-Wrt-Token", "Origin"), Cookie=cookie)[0] == 403


def test_only_the_token_itself_enters(live: Live) -> None:
    status, headers, _ = request(live, "/api/enter", X_Wrt_Token="wrong")
    assert (status, "set-cookie" in headers) == (403, False)
    cookie = entered(live).split(";")[0]
    assert "set-cookie" not in request(live, "/api/enter", drop=("X-Wrt-Token",), Cookie=cookie)[1]


@pytest.mark.parametrize("path", ["/", "", "/index.html", "/api/hello", "/microscope.js"])
def test_without_its_address_nothing_is_shown(live: Live, path: str) -> None:
    status, _, body = request(live, path or "/", method="GET", body=None, drop=("Origin", "X-Wrt-Token"), plain=True)
    assert status == 404
    assert b"secret" not in body


def test_the_page_itself_says_nothing_of_the_run(live: Live) -> None:
    status, _, body = request(live, "/", method="GET", body=None, drop=("Origin", "X-Wrt-Token"))
    assert status == 200
    assert b"secret" not in body


# ---- time ----


def test_slow_connections_lock_nobody_out(live: Live) -> None:
    slow = [socket.create_connection(("127.0.0.1", live.port), timeout=10) for _ in range(40)]
    going = threading.Event()

    def drip() -> None:
        while not going.wait(0.2):
            for one in slow:
                with contextlib.suppress(OSError):
                    one.send(b"G")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        time.sleep(0.5)
        begun = time.monotonic()
        for _ in range(5):
            assert ask(live, "hello")["ok"]
        assert time.monotonic() - begun < 3
    finally:
        going.set()
        dripping.join()
        for one in slow:
            one.close()


def test_whoever_is_being_answered_is_never_the_one_to_go(live: Live) -> None:
    gate = threading.Event()
    live.microscope._verbs["sizes"] = lambda args: gate.wait(10) and {}  # type: ignore[assignment]
    told: list[object] = []
    asking = [threading.Thread(target=lambda: told.append(answered(live, "sizes")["ok"])) for _ in range(3)]
    for one in asking:
        one.start()
    time.sleep(0.1)
    slow = [socket.create_connection(("127.0.0.1", live.port), timeout=10) for _ in range(40)]
    time.sleep(0.3)
    gate.set()
    for one in asking:
        one.join(timeout=20)
    for each in slow:
        each.close()
    assert told == [True, True, True]


@pytest.mark.parametrize("part", ["line", "headers", "body"])
def test_a_request_has_a_deadline_as_a_whole(live: Live, part: str) -> None:
    begins = {"line": b"", "headers": b"POST / HTTP/1.1\r\n", "body": _head(live)}[part]
    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as connection:
        connection.sendall(begins)
        begun, ended = time.monotonic(), None
        while ended is None and time.monotonic() - begun < 8:
            time.sleep(0.2)
            try:
                connection.send(b"a")
                connection.setblocking(False)
                try:
                    if connection.recv(4096) == b"":
                        ended = time.monotonic() - begun
                except BlockingIOError:
                    pass
                connection.setblocking(True)
            except OSError:
                ended = time.monotonic() - begun
    assert ended is not None
    assert 1.5 < ended < 6


def _head(live: Live) -> bytes:
    here = f"127.0.0.1:{live.port}"
    lines = [f"POST {live.root}/api/hello HTTP/1.1", f"Host: {here}", f"Origin: http://{here}", f"X-Wrt-Token: {live.token}",
             "Content-Type: application/json", "Content-Length: 60000"]  # fmt: skip
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def test_who_enters_never_waits_behind_a_pass(live: Live) -> None:
    gate = threading.Event()
    ask(live, "graph")
    busy = live.worker.submit(gate.wait)
    try:
        begun = time.monotonic()
        for verb in ("hello", "graph", "enter"):
            told = ask(live, verb)
            assert told["ok"]
            assert "pending" not in told
        assert time.monotonic() - begun < 3
    finally:
        gate.set()
        assert busy.done.wait(5)


def test_a_page_nobody_asks_ends_by_itself(run: wrt.Trace, page: assets.Bundle, capfd: pytest.CaptureFixture[str]) -> None:
    live = Live(Microscope(run, limits=Limits(idle_s=2.5)))
    for _ in range(4):
        time.sleep(0.8)
        assert ask(live, "hello")["ok"]  # as long as somebody asks, it stays
    live._thread.join(timeout=8)
    assert not live._thread.is_alive()
    with pytest.raises(ConnectionError):
        request(live)
    live.wait()  # and returns at once


def test_strangers_do_not_keep_it_awake(run: wrt.Trace, page: assets.Bundle) -> None:
    live = Live(Microscope(run, limits=Limits(idle_s=0.8)))
    for _ in range(12):
        time.sleep(0.1)
        try:
            request(live, X_Wrt_Token="wrong")
        except (ConnectionError, http.client.HTTPException):
            break
    live._thread.join(timeout=3)
    assert not live._thread.is_alive()
    live.close()


# ---- size ----


def test_a_map_has_a_bound(page: assets.Bundle) -> None:
    t = wrt.trace(lambda x: x * 2, torch.ones(2000), values=True)
    with Live(Microscope(t, limits=Limits(bytes=2**20))) as live:
        whole = {"name": "output", "index": None}
        told = answered(live, "map", target=whole, source={"name": "x", "index": None}, keep=[0, 0])
        assert not told["ok"]
        assert told["error"]["code"] == "limit"
        assert "4000000 numbers" in told["error"]["what"]


def test_a_map_takes_one_pass_a_position_at_least(page: assets.Bundle) -> None:
    t = wrt.trace(lambda x: x * 2, torch.ones(60), values=True)
    with Live(Microscope(t, limits=Limits(passes=20))) as live:
        whole = {"name": "output", "index": None}
        told = answered(live, "map", target=whole, source={"name": "x", "index": None}, keep=[0, 0])
        assert told["error"]["what"] == "this answer takes 60 passes"


# ---- ::1 ----


def _six() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
        return True
    except OSError:
        return False


def test_nobody_takes_the_same_port_of_the_other_loopback(live: Live) -> None:
    if not _six():
        pytest.skip("this machine has no ::1 to squat on")
    with socket.socket(socket.AF_INET6) as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            squatter.bind(("::1", live.port))
    with socket.socket(socket.AF_INET6) as other:
        other.settimeout(2)
        assert other.connect_ex(("::1", live.port)) != 0  # nobody answers there: a browser goes on to 127.0.0.1


def test_a_machine_without_it_serves_all_the_same(
    run: wrt.Trace, page: assets.Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = socket.socket.__init__

    def only_four(self: socket.socket, family: int = -1, *rest: int, **more: object) -> None:
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        plain(self, family, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "__init__", only_four)
    with Live(Microscope(run)) as live:
        assert ask(live, "hello")["ok"]


def test_a_port_that_is_squatted_already_is_not_used(run: wrt.Trace, page: assets.Bundle) -> None:
    if not _six():
        pytest.skip("this machine has no ::1 to squat on")
    with socket.socket(socket.AF_INET6) as squatter:
        squatter.bind(("::1", 0))
        squatter.listen()
        with pytest.raises(PortTaken) as caught:
            Live(Microscope(run), port=squatter.getsockname()[1])
    assert re.match(r"port \d+ cannot be used", str(caught.value))
