"""`t.show()`, `t.save_html()`, `t.widget()`: the page of one recording, served, in a file, or in a notebook."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import webbrowser
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from wrt._microscope import assets
from wrt._microscope.answer import malformed
from wrt._microscope.model import Microscope
from wrt._microscope.saved import Saved, save
from wrt._microscope.server import Job, Live, Worker, as_error
from wrt._notation.trace import Trace
from wrt.errors import WrtError


def show(
    t: Trace, *, target: Any = None, source: Any = None, tokens: Sequence[str] = (), title: str = "",
    browser: bool = True, wait: bool | None = None, port: int = 0, token: str | None = None,
) -> Live:  # fmt: skip
    """Serve the page on this machine; a script waits until Ctrl-C, a session goes on."""
    microscope = Microscope(t, title=title, tokens=tokens, target=target, source=source)
    live = Live(microscope, port=port, token=token)
    waits = not _interactive() if wait is None else wait
    print(way_in(live.url, live.port, waits, os.environ), file=sys.stderr, flush=True)  # noqa: T201 - nobody else says it
    if browser and _graphical():
        _lead_there(live.url)
    if waits:
        live.wait()
    return live


def way_in(url: str, port: int, waits: bool, around: Mapping[str, str]) -> str:
    """The address, how the page ends, and how to come here from elsewhere.

    >>> print(way_in("http://127.0.0.1:4242/5f/#token=x", 4242, True, {"SSH_CONNECTION": "1"}))
    http://127.0.0.1:4242/5f/#token=x
      for this machine alone; Ctrl-C ends it, or 8 hours without a question
      from the one you sit at: ssh -L 4242:127.0.0.1:4242 to here, then open the same address
    """
    ends = "Ctrl-C" if waits else "close() of what show() returned"
    lines = [url, f"  for this machine alone; {ends} ends it, or 8 hours without a question"]
    if "SSH_CONNECTION" in around:
        lines.append(f"  from the one you sit at: ssh -L {port}:127.0.0.1:{port} to here, then open the same address")
    if "ipykernel" in sys.modules:
        lines.append("  in a notebook t.widget() shows the page in its cell")
    return "\n".join(lines)


def save_html(
    t: Trace, path: str | os.PathLike[str], *, rows: Sequence[Any] | None = None, by: Sequence[Any] = (),
    tokens: Sequence[str] = (), title: str = "", sources: bool = False, limit: str | int = "20 MB",
) -> Saved:  # fmt: skip
    """Write the page as one file that needs nothing and loads nothing."""
    opens: dict[str, Any] = {"target": rows[0] if rows else None, "source": by[0] if by else None}
    microscope = Microscope(t, title=title, tokens=tokens, sources=sources, computes=False, **opens)
    return save(microscope, path, rows=rows, by=by, limit=limit)


def widget(
    t: Trace, *, target: Any = None, source: Any = None, tokens: Sequence[str] = (), title: str = ""
) -> Any:
    """The page in a notebook."""
    return _anywidget(Microscope(t, title=title, tokens=tokens, target=target, source=source))


def in_notebook(t: Trace, options: dict[str, Any]) -> Any:
    """What a notebook shows of a recording: the page where there is one, otherwise its line of text."""
    if "ipykernel" not in sys.modules:
        return None
    try:
        return widget(t)._repr_mimebundle_(**options)
    except WrtError:
        return None


def in_marimo(t: Trace) -> Any:
    """The same for marimo, which shows whatever this returns."""
    try:
        return widget(t)
    except WrtError:
        return repr(t)


def _interactive() -> bool:
    """Whether somebody can type the next line: a prompt or a notebook."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or "ipykernel" in sys.modules or "marimo" in sys.modules


def _graphical() -> bool:
    """Whether a browser would have a window: in a bare terminal Python would start one that takes the terminal over."""
    return sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _lead_there(url: str) -> None:
    """Open the browser at a private file that leads to the page: command lines, where the token would stand, are public."""
    folder = Path(tempfile.mkdtemp(prefix="wrt-"))  # for this user alone
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    leads = folder / "microscope.html"
    address = escape(url, quote=True)
    leads.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}"><a href="{address}">open</a>')
    webbrowser.open(leads.as_uri())


class NoAnywidget(WrtError, ImportError):
    """A widget was asked for where anywidget is not installed."""


def _anywidget(microscope: Microscope) -> Any:
    """An anywidget that shows one recording."""
    try:
        import anywidget
    except ImportError:
        raise NoAnywidget(
            "the page in a notebook needs anywidget",
            "it is not installed here",
            "pip install 'wrt[notebook]', or write t.show() or t.save_html(\"run.html\")",
        ) from None
    found = assets.bundle()

    class Microscoped(anywidget.AnyWidget):
        _esm, _css = found.script, found.style

        def __repr__(self) -> str:
            return f"Microscope  {microscope.title}"

        def close(self) -> None:
            talk.worker.close()
            super().close()

    made = Microscoped()
    talk = Talk(microscope, made.send)
    made.on_msg(lambda _, content, buffers: talk.receive(content))
    return made


class Talk:
    """Messages in, messages out; what is computed runs beside the kernel, which stays free for the next cell."""

    def __init__(self, microscope: Microscope, send: Any) -> None:
        self.microscope = microscope
        self.send = send
        self.worker = Worker()
        self._jobs: dict[Any, Job] = {}

    def receive(self, content: Any) -> None:
        """One message of the page: a question, or that an earlier one is no longer wanted."""
        said = content if isinstance(content, dict) else {}
        number = said.get("id")
        if not isinstance(number, (int, str)):
            return
        if said.get("kind") == "cancel":
            job = self._jobs.get(number)
            if job is not None:
                self.worker.cancel(job)
        elif said.get("kind") == "ask":
            self._ask(number, said.get("verb"), said.get("args"))

    def _ask(self, number: int | str, verb: Any, args: Any) -> None:
        try:
            if not isinstance(verb, str) or not isinstance(args, dict):
                raise malformed("the question has no verb or no arguments", '{"verb": "hello", "args": {}}')
            job = self.worker.submit(
                lambda: self.microscope.ask(verb, args),
                on_progress=lambda job: self._progress(number, job),
                on_done=lambda job: self._done(number, job),
            )
            if not job.done.is_set():
                self._jobs[number] = job
        except WrtError as error:
            self.send({"kind": "reply", "id": number, "ok": False, "error": as_error(error)})

    def _progress(self, number: int | str, job: Job) -> None:
        told = job.progress()
        self.send({"kind": "progress", "id": number, "doing": told["doing"], "share": told["share"], "left_s": told["left_s"]})

    def _done(self, number: int | str, job: Job) -> None:
        self._jobs.pop(number, None)
        self.worker.take(job)
        if job.error is None:
            self.send({"kind": "reply", "id": number, "ok": True, "result": job.result})
        else:
            self.send({"kind": "reply", "id": number, "ok": False, "error": as_error(job.error)})
