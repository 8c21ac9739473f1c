"""The live page: a server for this machine alone that computes what is clicked.

Python's own http.server is enough: two static files, one kind of question, one reader. It adds no dependency and no event
loop beside the user's code. Only what stands in the table of `_Handler` exists; no part of a path is ever looked up on disk.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

from wrt._microscope import assets, encode
from wrt._microscope.guard import HEADERS, LONGEST_PATH, Guard, Refusal
from wrt._microscope.jobs import Job, Worker, as_error
from wrt._microscope.model import Microscope
from wrt._microscope.question import malformed
from wrt.errors import WrtError

AT_ONCE = 0.2  # seconds a question may take before the page is told to come back for the answer
CONNECTIONS = 32
DISCARDED = 2**20  # bytes of a refused request that are thrown away before the connection is closed
IDLE = 30.0  # seconds a connection may say nothing
HTML, SCRIPT, STYLE, JSON = "text/html", "text/javascript", "text/css", "application/json"


class PortTaken(WrtError, OSError):
    """Somebody else listens there, or it is no port."""


class Live:
    """A page that is being served; `close()` ends it."""

    def __init__(self, microscope: Microscope, *, port: int = 0, token: str | None = None) -> None:
        self.microscope = microscope
        self.token = token or secrets.token_urlsafe(32)
        self._page = assets.live_page(microscope.title)
        self._bundle = assets.bundle()
        self.port = port
        self.start()

    def start(self) -> None:
        """Serve, on the port it had before if it was closed: a page that is still open finds it again."""
        self.worker = Worker()
        try:
            self._server = _Server(("127.0.0.1", self.port), partial(_Handler, self))
        except (OSError, OverflowError) as error:
            raise PortTaken(
                f"port {self.port} cannot be used", str(error), "leave port out, and a free one is found"
            ) from None
        self.port = int(self._server.server_address[1])
        self.guard = Guard(self.port, self.token)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="wrt-live-page", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address with its token, which stands behind the #: browsers never send that part."""
        return f"http://127.0.0.1:{self.port}/#token={quote(self.token, safe='')}"

    def static(self) -> dict[str, tuple[str, str]]:
        """Everything that can be fetched: path -> (type, text)."""
        return {
            "/": (HTML, self._page),
            f"/{assets.SCRIPT}": (SCRIPT, self._bundle.script),
            f"/{assets.STYLE}": (STYLE, self._bundle.style),
        }

    def answer(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        """The reply to one question, or the number of the job that will have it."""
        if verb in ("progress", "cancel"):
            return self._about_job(verb, args)
        job = self.worker.submit(lambda: self.microscope.ask(verb, args))
        return self._outcome(job) if job.done.wait(AT_ONCE) else {"ok": True, "pending": job.id}

    def _about_job(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        job = self.worker.find(args.get("job"))
        if job is None:
            raise malformed("there is no such job", 'a question again; {"job": ...} takes what "pending" said')
        if verb == "cancel":
            self.worker.cancel(job)
            return {"ok": True, "result": {"cancelled": True}}
        return self._outcome(job) if job.done.wait(AT_ONCE) else {"ok": True, "result": job.told()}

    def _outcome(self, job: Job) -> dict[str, Any]:
        self.worker.take(job)
        return {"ok": True, "result": job.result} if job.error is None else {"ok": False, "error": as_error(job.error)}

    def close(self) -> None:
        """Stop serving; the recording stays what it was."""
        self.worker.close()
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()
        self._thread.join(timeout=5)

    def wait(self) -> None:
        """Serve until Ctrl-C."""
        try:
            while self._thread.is_alive():
                self._thread.join(timeout=0.5)
        except KeyboardInterrupt:
            self.close()

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *reason: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "open" if self._thread.is_alive() else "closed"
        return f"Live page on 127.0.0.1:{self.port}, {state}"


class _Server(ThreadingHTTPServer):
    """One thread for each connection, and not too many of them."""

    daemon_threads = True
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        self._open: dict[socket.socket, threading.Thread] = {}
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """As HTTPServer does it, without asking the network for this machine's name."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        self._open[request] = threading.current_thread()
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.pop(request, None)
            self._free.release()

    def hang_up(self) -> None:
        """Close what pages keep open: they see at once that nobody answers any more."""
        for connection, thread in list(self._open.items()):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(timeout=2)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke off is nobody's concern."""


class _Handler(BaseHTTPRequestHandler):
    """One connection: refuse, or answer from the table."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE

    def __init__(self, live: Live, *args: Any) -> None:
        self.live = live
        super().__init__(*args)

    def do_GET(self) -> None:
        refusal = self._refused() or self.live.guard.refuses_any_body(self.headers)
        found = self.live.static().get(self.path) if len(self.path) <= LONGEST_PATH else None
        if refusal is not None:
            self._refuse(refusal)
        elif found is None:
            self._refuse(Refusal(404, "there is no such page"))
        else:
            self._send(200, found[1].encode(), found[0])

    def do_POST(self) -> None:
        guard = self.live.guard
        refusal = self._refused() or guard.refuses_question(self.headers) or guard.refuses_body(self.headers)
        verb = self._verb()
        if refusal is None and verb is None:
            refusal = Refusal(404, "there is no such question")
        if refusal is not None:
            self._refuse(refusal)
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._send(200, encode.text(self._reply(str(verb), body)).encode(errors="replace"), JSON)

    def __getattr__(self, name: str) -> Any:
        """Any other method is answered in words, with the same headers."""
        if name.startswith("do_"):
            return lambda: self._refuse(self._refused() or Refusal(405, "only GET and POST are understood"))
        raise AttributeError(name)

    def _verb(self) -> str | None:
        verbs = {f"/api/{verb}": verb for verb in (*self.live.microscope.verbs, "progress", "cancel")}
        return verbs.get(self.path)

    def _reply(self, verb: str, body: bytes) -> dict[str, Any]:
        try:
            return self.live.answer(verb, _read(body))
        except WrtError as error:
            return {"ok": False, "error": as_error(error)}

    def _refused(self) -> Refusal | None:
        return self.live.guard.refuses_host(self.headers)

    def _refuse(self, refusal: Refusal) -> None:
        error = {"what": refusal.words, "stands": "the request was refused before it was read",
                 "write": "open the address that wrt printed", "code": "refused"}  # fmt: skip
        self.close_connection = True  # what was sent and not read must not be taken for the next request
        self._send(refusal.status, encode.text({"ok": False, "error": error}).encode(), JSON)
        self._let_go()

    def _let_go(self) -> None:
        """Throw away what was sent and not read: closing on top of it would tear the refusal off the wire, too."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(0.5)
            for _ in range(DISCARDED // 65536):
                if not self.connection.recv(65536):
                    break

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response_only(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server itself refuses (a line it cannot read): without its page, which repeats what was sent."""
        self.command = getattr(self, "command", None) or ""
        self._refuse(Refusal(int(code), "the request cannot be read"))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged: a terminal is no place for what is looked at."""


def _read(body: bytes) -> dict[str, Any]:
    """The arguments of a question."""
    try:
        args = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise malformed("the question is not JSON", "{}") from None
    if not isinstance(args, dict):
        raise malformed("the question is not an object", "{}")
    return args


def _no_constant(word: str) -> Any:
    raise ValueError(word)
