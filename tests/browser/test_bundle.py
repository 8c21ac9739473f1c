"""What is shipped: two files that load nothing and evaluate nothing, and the licenses of what is in them."""

import re
from importlib.resources import files

from wrt._microscope import assets


def test_the_bundle_evaluates_nothing_and_reaches_nowhere(built: None) -> None:
    script = assets.bundle().script
    assert not re.search(r"\beval\(|new Function|document\.write|insertAdjacentHTML", script)
    assert not re.search(r"importScripts|WebSocket|XMLHttpRequest|sendBeacon", script)
    assert set(re.findall(r"https?://[\w.]+", script)) <= {"http://www.w3.org"}  # names of XML, not places
    assert not re.search(r"url\(|@import", assets.bundle().style)


def test_markup_is_never_parsed(built: None) -> None:
    """Preact knows innerHTML for a property that this page does not use; nothing else in the bundle does."""
    script = assets.bundle().script
    assert script.count("innerHTML") == len(re.findall(r"\.innerHTML", script)) <= 2
    assert script.count("dangerouslySetInnerHTML") <= 2


def test_the_licenses_travel_with_the_bundle(built: None) -> None:
    text = (files("wrt._microscope") / "assets" / "licenses.txt").read_text(encoding="utf-8")
    for name in ("preact", "@preact/signals", "@preact/signals-core", "htm", "@dagrejs/dagre", "@dagrejs/graphlib"):
        assert f"{name} " in text
    assert "Apache License" in text
    assert "Permission is hereby granted" in text
