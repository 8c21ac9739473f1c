"""The page in a notebook: the same questions as messages between the cell and the kernel (Jupyter, VS Code, marimo)."""

from __future__ import annotations

from typing import Any

from wrt._microscope import assets
from wrt._microscope.jobs import Job, Worker, as_error
from wrt._microscope.model import Microscope
from wrt._microscope.question import malformed
from wrt.errors import WrtError


class NoAnywidget(WrtError, ImportError):
    """A widget was asked for where anywidget is not installed."""


def widget(microscope: Microscope) -> Any:
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
    made.on_msg(lambda _, content, buffers: talk.heard(content))
    return made


class Talk:
    """Messages in, messages out; what is computed runs beside the kernel, which stays free for the next cell."""

    def __init__(self, microscope: Microscope, send: Any) -> None:
        self.microscope = microscope
        self.send = send
        self.worker = Worker()
        self._jobs: dict[Any, Job] = {}

    def heard(self, content: Any) -> None:
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
        told = job.told()
        self.send({"kind": "progress", "id": number, "doing": told["doing"], "share": told["share"], "left_s": told["left_s"]})

    def _done(self, number: int | str, job: Job) -> None:
        self._jobs.pop(number, None)
        self.worker.take(job)
        if job.error is None:
            self.send({"kind": "reply", "id": number, "ok": True, "result": job.result})
        else:
            self.send({"kind": "reply", "id": number, "ok": False, "error": as_error(job.error)})
