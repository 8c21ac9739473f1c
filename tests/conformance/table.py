"""The support table of the README: `python -m tests.conformance.table`. A gap is the sentence of the backend itself."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.conformance.ways import WAYS
from wrt._backends import FRAMEWORKS

ASK = "import json; from {module} import BACKEND; print(json.dumps(BACKEND.capabilities()))"
MODULES = {name: f"wrt._backends.{name}.backend" for name in FRAMEWORKS} | {"finite": "tests.finite.reference.backend"}


def gaps(name: str) -> dict[str, str] | None:
    """What a backend says it cannot do; None where its framework is not installed. Each in a process of its own."""
    done = subprocess.run([sys.executable, "-c", ASK.format(module=MODULES[name])], capture_output=True, text=True, check=False)
    return dict(json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 else None


def table() -> str:
    """Markdown: a line for each way of asking, a column for each framework, the sentences below."""
    told = {name: gaps(name) for name in MODULES}
    names = [name for name, known in told.items() if known is not None]
    notes: list[str] = []
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for way in WAYS:
        cells = []
        for name in names:
            sentence = (told[name] or {}).get(way)
            if sentence is not None and sentence not in notes:
                notes.append(sentence)
            cells.append("yes" if sentence is None else f"no ({notes.index(sentence) + 1})")
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"{k}. {sentence}" for k, sentence in enumerate(notes, 1))])


if __name__ == "__main__":
    print(table())
