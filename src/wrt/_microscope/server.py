"""The live page: a server for this machine alone that computes what is clicked, one question at a time.

Python's own http.server is enough: two static files, one kind of question, one reader. It adds no dependency and no event
loop beside the user's code. Only what stands in the table of `_Handler` exists; no part of a path is ever looked up on disk.
"""

from __future__ import annotations

import contextlib
import contextvars
import errno
import hashlib
import hmac
import json
import math
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

from wrt._core.finding import first_line
from wrt._microscope import assets, encode
from wrt._microscope.answer import malformed
from wrt._microscope.model import Microscope
from wrt._microscope.thresholds import BODY_BYTES, IDLE_SECONDS, QUEUE_QUESTIONS
from wrt._run.progress import LISTENER, WITHIN
from wrt.errors import TooLarge, WrtError

# ---- who may ask: this machine, this page, whoever holds the token; the rest is refused before it is read ----

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A status and a sentence; nothing that was sent comes back in it."""

    status: int
    words: str


@dataclass(frozen=True, slots=True)
class Guard:
    """What an honest request to one port looks like."""

    port: int
    token: str = field(repr=False)
    session: str = field(repr=False)

    @property
    def hosts(self) -> tuple[str, str]:
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"

    def refuses_host(self, headers: Message) -> Refusal | None:
        """A page of another name that was made to lead here (DNS rebinding) still says its own name."""
        host = headers.get("Host")
        if len(headers.get_all("Host", [])) != 1 or host not in self.hosts:
            return Refusal(421, "this address is not served here")
        origin = headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            return Refusal(403, "this origin may not ask")
        return None

    def refuses_question(self, headers: Message, verb: str | None) -> Refusal | None:
        """Questions come from this very page, as JSON, with the cookie that the token was exchanged for, or the token itself."""
        if headers.get("Origin") != f"http://{headers.get('Host')}":
            return Refusal(403, "a question has to say from which origin it comes")
        if headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return Refusal(403, "a question has to come from this page")
        cookies = dict(one.strip().partition("=")[::2] for one in headers.get("Cookie", "").split(";"))
        entered = verb != "enter" and hmac.compare_digest(cookies.get("wrt", "").encode(), self.session.encode())
        if not entered and not hmac.compare_digest(headers.get("X-Wrt-Token", "").encode(), self.token.encode()):
            return Refusal(403, "the token is missing or wrong")
        if headers.get("Content-Type", "").split(";")[0].strip().lower() != "application/json":
            return Refusal(415, "a question is JSON")
        return None

    def refuses_any_body(self, headers: Message) -> Refusal | None:
        """What is fetched is asked for in one line; anything behind it could be taken for another request."""
        if "Content-Length" in headers or "Transfer-Encoding" in headers:
            return Refusal(400, "a page is fetched without a body")
        return None

    def refuses_body(self, headers: Message) -> Refusal | None:
        if headers.get("Transfer-Encoding") is not None or len(headers.get_all("Content-Length", [])) != 1:
            return Refusal(411, "a question says how long it is")
        length = headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            return Refusal(411, "a question says how long it is")
        if len(length) > 9 or int(length) > BODY_BYTES:
            return Refusal(413, f"a question has at most {BODY_BYTES} bytes")
        return None


# ---- jobs ----


class Cancelled(WrtError, RuntimeError):
    """The page asked for something else."""


CANCELLED = "cancelled", "the page asked for something else", "ask again"


class TooMany(WrtError, RuntimeError):
    """More questions than one recording can be asked at once."""


@dataclass(eq=False, slots=True)
class Job:
    """One question: how far it is, and what came out."""

    work: Callable[[], Any]
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    doing: str = "waiting"
    share: float | None = None
    started: float | None = None
    ended: float | None = None
    stop: bool = False
    result: Any = None
    error: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)
    on_progress: Callable[[Job], None] | None = None
    on_done: Callable[[Job], None] | None = None

    def progress(self) -> dict[str, Any]:
        """How far it is, for a page that waits."""
        left = None
        if self.started is not None and self.share:
            left = (time.monotonic() - self.started) * (1 - self.share) / self.share
        return {"done": False, "doing": self.doing, "share": self.share, "left_s": left}

    def listen(self, what: str, done: int, total: int) -> None:
        """The engine came this far; a job that is no longer wanted ends here."""
        if self.stop:
            raise Cancelled(*CANCELLED)
        self.doing, self.share = what, min(1.0, done / max(1, total))
        if self.on_progress is not None:
            self.on_progress(self)


class Worker:
    """Runs jobs one after the other, in the context (`wrt.options`) in which it was made.

    Its thread starts with the first job and ends when nothing was asked for a while: a page nobody looks at costs none.
    """

    def __init__(self) -> None:
        self._queue: queue.Queue[Job | None] = queue.Queue()
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._context = contextvars.copy_context()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], Any], **hooks: Any) -> Job:
        job = Job(work, **hooks)
        with self._lock:
            self._forget()
            if sum(not one.done.is_set() for one in self._jobs.values()) >= QUEUE_QUESTIONS:
                what = f"{QUEUE_QUESTIONS} questions are waiting already"
                raise TooMany(what, "one is answered at a time", "wait, or cancel some of them")
            self._jobs[job.id] = job
            self._queue.put(job)
            if self._thread is None:
                run = self._context.copy().run
                self._thread = threading.Thread(target=run, args=(self._loop,), name="wrt-microscope", daemon=True)
                self._thread.start()
        return job

    def find(self, number: Any) -> Job | None:
        with self._lock:
            return self._jobs.get(number) if isinstance(number, str) else None

    def take(self, job: Job) -> None:
        """The answer was fetched: nobody will ask for it again."""
        with self._lock:
            self._jobs.pop(job.id, None)

    def cancel(self, job: Job) -> None:
        """Stop it before it starts, or at its next pass: a pass of the engine itself cannot be interrupted."""
        job.stop = True

    def close(self) -> None:
        """End the thread after the job that runs; what still waits is cancelled."""
        with self._lock:
            for job in self._jobs.values():
                job.stop = True
            thread = self._thread
            if thread is not None:
                self._queue.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)

    def _forget(self) -> None:
        """Let answers go that nobody fetched within two minutes, and all but the latest 64."""
        now = time.monotonic()
        finished = [one for one in self._jobs.values() if one.ended is not None]
        for k, one in enumerate(finished):
            if now - (one.ended or now) > 120 or k < len(finished) - 64:
                self._jobs.pop(one.id, None)

    def _loop(self) -> None:
        WITHIN.set(True)  # the page shows how far it is; the terminal it was started from stays quiet
        while True:
            try:
                job = self._queue.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                job = None
            if job is None:
                with self._lock:
                    if self._queue.empty():
                        self._thread = None
                        return
                continue
            self._run(job)

    def _run(self, job: Job) -> None:
        job.started, job.doing = time.monotonic(), "computing"
        told = LISTENER.set(job.listen)
        try:
            if job.stop:
                raise Cancelled(*CANCELLED)
            job.result = job.work()
            if job.stop:
                raise Cancelled(*CANCELLED)
        except BaseException as error:
            job.error = error
        finally:
            LISTENER.reset(told)
            job.ended = time.monotonic()
            job.done.set()
            if job.on_done is not None:
                job.on_done(job)


def as_error(error: BaseException) -> dict[str, Any]:
    """An error as the page shows it: three lines and a word. Nothing of the machine is in it."""
    if isinstance(error, WrtError):
        code = "cancelled" if isinstance(error, Cancelled) else "limit" if isinstance(error, (TooMany, TooLarge)) else "question"
        return {"what": error.what, "stands": error.where, "write": error.write, "code": code}
    return {
        "what": f"{type(error).__name__} while answering",
        "stands": first_line(error),
        "write": "ask the same in Python to see where it comes from",
        "code": "question",
    }


# ---- the server ----


class PortTaken(WrtError, OSError):
    """Somebody else listens there, or it is no port."""


class Live:
    """A page that is being served; `close()` ends it."""

    def __init__(self, microscope: Microscope, *, port: int = 0, token: str | None = None) -> None:
        self.microscope = microscope
        self.token = token or secrets.token_urlsafe(32)
        self.session = secrets.token_urlsafe(32)
        # A browser sends a cookie of 127.0.0.1 to every port of it, but only below its path: nobody else can guess this one.
        self.root = f"/{hashlib.sha256(self.token.encode()).hexdigest()[:16]}"
        self._page, self._bundle = assets.live_page(), assets.bundle()
        self._known: dict[str, Any] = {}
        self.port = port
        self.start()

    def start(self) -> None:
        """Serve, on the port it had before if it was closed: a page that is still open finds it again."""
        self.worker, self.asked = Worker(), time.monotonic()
        for more in reversed(range(1 if self.port else 10)):
            try:
                self._server = _Server(("127.0.0.1", self.port), self)
                break
            except (OSError, OverflowError) as error:
                if not more:
                    what = f"port {self.port} cannot be used"
                    raise PortTaken(what, str(error), "leave port out, and a free one is found") from None
        self.port = int(self._server.server_address[1])
        self.guard = Guard(self.port, self.token, self.session)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="wrt-live-page", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address with its token, which stands behind the #: browsers never send that part."""
        return f"http://127.0.0.1:{self.port}{self.root}/#token={quote(self.token, safe='')}"

    def static(self) -> dict[str, tuple[str, str]]:
        """Everything that can be fetched: path -> (type, text). Nothing of it tells anything about the run."""
        return {
            f"{self.root}/": ("text/html", self._page),
            f"{self.root}/{assets.SCRIPT}": ("text/javascript", self._bundle.script),
            f"{self.root}/{assets.STYLE}": ("text/css", self._bundle.style),
        }

    def answer(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        """The reply to one question, or the number of the job that will have it."""
        if verb in ("progress", "cancel"):
            return self._about_job(verb, args)
        if verb == "enter" or verb in self._known:  # never behind a pass, which nothing can interrupt
            return {"ok": True, "result": self._known.get(verb, {})}
        job = self.worker.submit(lambda: self._ask(verb, args))
        return self._outcome(job) if self._soon(job) else {"ok": True, "pending": job.id}

    def _ask(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        found = self.microscope.ask(verb, args)
        if verb in ("hello", "graph"):  # these are always the same
            self._known[verb] = found
        return found

    def end_if_idle(self) -> None:
        """A page that nobody asks anything for hours is left open by mistake."""
        if time.monotonic() - self.asked > self.microscope.limits.idle_s:
            self.asked = math.inf  # once
            threading.Thread(target=self.close, daemon=True).start()

    def _about_job(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        job = self.worker.find(args.get("job"))
        if job is None:
            raise malformed("there is no such job", 'a question again; {"job": ...} takes what "pending" said')
        if verb == "cancel":
            self.worker.cancel(job)
            return {"ok": True, "result": {"cancelled": True}}
        return self._outcome(job) if self._soon(job) else {"ok": True, "result": job.progress()}

    @staticmethod
    def _soon(job: Job) -> bool:
        """Whether it is done within a moment; otherwise the page is told to come back for the answer."""
        return job.done.wait(0.2)

    def _outcome(self, job: Job) -> dict[str, Any]:
        self.worker.take(job)
        return {"ok": True, "result": job.result} if job.error is None else {"ok": False, "error": as_error(job.error)}

    def close(self) -> None:
        """Stop serving; the recording stays what it was."""
        self.worker.close()
        self._server.shutdown()
        threads = list(self._server._open.values())
        self._server.hang_up(*list(self._server._open))
        for thread in threads:
            thread.join(timeout=2)
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

    def __init__(self, address: tuple[str, int], live: Live) -> None:
        self._free = threading.BoundedSemaphore(32)
        self._open: dict[socket.socket, threading.Thread] = {}
        self.due: dict[socket.socket, float] = {}  # when each has to have sent a request; never while one is answered
        self._beside: socket.socket | None = None
        self._live = live
        super().__init__(address, partial(_Handler, live))

    def server_bind(self) -> None:
        """As HTTPServer does it, without asking the network for this machine's name.

        The same port of ::1 is kept free of others: what browsers take `localhost` for must not be another user's page.
        """
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])
        try:
            self._beside = socket.socket(socket.AF_INET6)
            self._beside.bind(("::1", self.server_port))  # and never listens
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise  # any other means that there is no ::1 here

    def server_close(self) -> None:
        if self._beside is not None:
            self._beside.close()
        super().server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Where all places are taken, whoever sat longest on one without an honest question has to go."""
        if not self._free.acquire(blocking=False):
            waiting = {due: one for one, due in list(self.due.items()) if due < math.inf}
            self.hang_up(*(waiting[due] for due in sorted(waiting)[:1]))
            if not self._free.acquire(timeout=0.5):
                self.shutdown_request(request)
                return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        self._open[request] = threading.current_thread()
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.pop(request, None)
            self.due.pop(request, None)
            self._free.release()

    def service_actions(self) -> None:
        """Several times a second."""
        now = time.monotonic()
        self.hang_up(*(one for one, due in list(self.due.items()) if due < now))
        self._live.end_if_idle()

    def hang_up(self, *connections: socket.socket) -> None:
        """Close these: who is at the other end sees at once that nobody answers any more."""
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke off is nobody's concern."""


class _Handler(BaseHTTPRequestHandler):
    """One connection: refuse, or answer from the table."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS

    def __init__(self, live: Live, *args: Any) -> None:
        self.live = live
        super().__init__(*args)

    def handle_one_request(self) -> None:
        """From the last reply to the end of the next request there is one deadline, however slowly it drips."""
        self.live._server.due[self.connection] = time.monotonic() + self.live.microscope.limits.request_s
        super().handle_one_request()

    def do_GET(self) -> None:
        refusal = self._refusal() or self.live.guard.refuses_any_body(self.headers)
        found = self.live.static().get(self.path) if len(self.path) <= 64 else None
        if refusal is not None:
            self._refuse(refusal)
        elif found is None:
            self._refuse(Refusal(404, "there is no such page"))
        else:
            self._send(200, found[1].encode(), found[0])

    def do_POST(self) -> None:
        guard, verb = self.live.guard, self._verb()
        refusal = self._refusal() or guard.refuses_question(self.headers, verb) or guard.refuses_body(self.headers)
        if refusal is None and verb is None:
            refusal = Refusal(404, "there is no such question")
        if refusal is not None:
            self._refuse(refusal)
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.live.asked, self.live._server.due[self.connection] = time.monotonic(), math.inf
        reply = encode.text(self._reply(str(verb), body)).encode(errors="replace")
        self._send(200, reply, "application/json", enters=verb == "enter")

    def __getattr__(self, name: str) -> Any:
        """Any other method is answered in words, with the same headers."""
        if name.startswith("do_"):
            return lambda: self._refuse(self._refusal() or Refusal(405, "only GET and POST are understood"))
        raise AttributeError(name)

    def _verb(self) -> str | None:
        verbs = {f"{self.live.root}/api/{verb}": verb for verb in (*self.live.microscope.verbs, "progress", "cancel", "enter")}
        return verbs.get(self.path)

    def _reply(self, verb: str, body: bytes) -> dict[str, Any]:
        try:
            return self.live.answer(verb, _read(body))
        except WrtError as error:
            return {"ok": False, "error": as_error(error)}

    def _refusal(self) -> Refusal | None:
        return self.live.guard.refuses_host(self.headers)

    def _refuse(self, refusal: Refusal) -> None:
        error = {"what": refusal.words, "stands": "the request was refused before it was read",
                 "write": "open the address that wrt printed", "code": "refused"}  # fmt: skip
        self.close_connection = True  # what was sent and not read must not be taken for the next request
        self._send(refusal.status, encode.text({"ok": False, "error": error}).encode(), "application/json")
        self._let_go()

    def _let_go(self) -> None:
        """Throw away what was sent and not read: closing on top of it would tear the refusal off the wire, too."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(0.5)
            for _ in range(16):  # a MiB at most
                if not self.connection.recv(65536):
                    break

    def _send(self, status: int, body: bytes, kind: str, enters: bool = False) -> None:
        self.send_response_only(status)
        if enters:
            self.send_header("Set-Cookie", f"wrt={self.live.session}; Path={self.live.root}/; HttpOnly; SameSite=Strict")
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
