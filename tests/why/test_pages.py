"""Every cause has its place in the docs, and can be explained in the terminal."""

from __future__ import annotations

import re
from pathlib import Path

import wrt
from wrt._why.cause import by_operation, causes

PAGES = Path(__file__).parents[2] / "docs" / "causes"


def test_every_cause_has_its_section():
    told = {slug for page in PAGES.glob("*.md") for slug in re.findall(r"^## (\w+)$", page.read_text(), re.MULTILINE)}
    assert told == set(causes())


def test_every_cause_can_be_explained():
    for slug, cause in causes().items():
        assert wrt.explain_cause(slug).startswith(f"{slug}: {cause.means}")


def test_an_operation_has_one_cause_of_each_kind():
    for kind in ("stops", "flattens", "breaks"):
        assert by_operation(kind)
