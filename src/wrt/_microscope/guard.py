"""Who may ask the live page: this machine, this page, whoever holds the token. Everything else is refused before it is read."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from email.message import Message

LARGEST_BODY = 64 * 1024  # bytes of a question; the longest honest one has a few hundred
LONGEST_PATH = 64

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

    def refuses_question(self, headers: Message) -> Refusal | None:
        """Questions come from this very page, as JSON, with the token."""
        if headers.get("Origin") != f"http://{headers.get('Host')}":
            return Refusal(403, "a question has to say from which origin it comes")
        if headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return Refusal(403, "a question has to come from this page")
        if not hmac.compare_digest(headers.get("X-Wrt-Token", "").encode(), self.token.encode()):
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
        if len(length) > 9 or int(length) > LARGEST_BODY:
            return Refusal(413, f"a question has at most {LARGEST_BODY} bytes")
        return None
