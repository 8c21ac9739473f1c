"""A hook of the documentation's build: run the recipes, and put the pictures they save beside them."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))


def pictures(page: Path) -> dict[str, bytes]:
    """Run the Python of one page in an empty folder: file name -> what it saved there."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    from tests._pages import complaints

    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                complaints(page.read_text(), page.name)
        finally:
            os.chdir(here)
        return {file.name: file.read_bytes() for file in sorted(Path(folder).glob("*.png"))}


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs once it knows its pages."""
    from mkdocs.structure.files import File

    for page in sorted((DOCS / "recipes").glob("*.md")):
        for name, content in pictures(page).items():
            files.append(File.generated(config, f"recipes/pictures/{name}", content=content))
    return files
