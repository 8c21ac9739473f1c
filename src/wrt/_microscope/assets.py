"""The few files a page is made of, read from the package by name: no path of a request ever reaches the disk."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files

from wrt._core.files import PAGE
from wrt.errors import WrtError

SCRIPT, STYLE = "microscope.js", "microscope.css"
NO_SCRIPT = "This page needs JavaScript, which it carries itself: nothing is loaded from elsewhere."


class NoPage(WrtError, FileNotFoundError):
    """The page was not built."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The front end: one module, one style sheet."""

    script: str
    style: str


@cache
def bundle() -> Bundle:
    """What `make page` builds and the wheel carries."""
    folder = files("wrt._microscope") / "assets"
    try:
        script, style = ((folder / name).read_text(encoding="utf-8") for name in (SCRIPT, STYLE))
    except (FileNotFoundError, NotADirectoryError):
        raise NoPage(
            "the page of the microscope is not there",
            "a wheel of wrt carries it; a checkout has to build it once",
            "run `make page` in the checkout, then ask again",
        ) from None
    return Bundle(script.replace("\r", ""), style.replace("\r", ""))


def live_page() -> str:
    """The skeleton of the live page, of any run; its script and style are fetched from the same server."""
    head = f'<title>wrt</title><link rel="stylesheet" href="{STYLE}"><script type="module" src="{SCRIPT}"></script>'
    return _page(head, "live", "")


def file_page(title: str, data: str, found: Bundle | None = None) -> str:
    """Everything in one file; `data` is JSON that cannot end a script element. Only this very script may run."""
    found = found or bundle()
    script, style = _inline(found.script, "script"), _inline(found.style, "style")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="referrer" content="no-referrer"><title>{escape(title)}</title><style>{style}</style>'
    )
    tail = f'<script type="application/json" id="wrt-run">{data}</script><script type="module">{script}</script>'
    return _page(head, "file", tail)


def _page(head: str, host: str, tail: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{PAGE.decode()}'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f'{head}</head>'
        f'<body><main id="wrt" data-wrt-host="{host}"></main><noscript>{NO_SCRIPT}</noscript>{tail}</body></html>\n'
    )


def _inline(source: str, element: str) -> str:
    """Source that cannot end its element: in texts and patterns, where these signs stand, a backslash changes nothing.

    >>> _inline('let a = "</script>"', "script")
    'let a = "<\\\\/script>"'
    """
    for word in (element, element.upper(), element.title()):
        source = source.replace(f"</{word}", f"<\\/{word}")
    source = source.replace("<!--", "<\\!--")
    if f"</{element}" in source.lower():
        raise NoPage("the page of the microscope cannot be put into a file", f"it holds </{element}", "build it again: make page")
    return source


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
