"""Run the Python on a Markdown page and compare what it prints with what the page says.

The convention: a fenced `python` block is run; a fenced `text` block right after it is exactly what it prints. A block
that prints needs one, a block that does not print has none. The blocks of a page share one namespace, in order.
`title="train.py"` after `python` runs the block as that file, so that messages with lines in them read as there.

    python -m tests._pages README.md docs/*.md
"""

import ast
import contextlib
import difflib
import io
import linecache
import re
import sys
import textwrap
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,}) *(?P<info>[^`\n]*)$")


@dataclass(frozen=True)
class Fence:
    """One fenced block: its info string, its text, and where in the page the text starts (1 is the first line)."""

    info: str
    text: str
    start: int
    end: int

    @property
    def language(self) -> str:
        return self.info.split()[0] if self.info.split() else ""

    @property
    def title(self) -> str | None:
        found = re.search(r'title="([^"]+)"', self.info)
        return found and found[1]


@dataclass(frozen=True)
class Block:
    """Python to run, and what it prints according to the page."""

    code: Fence
    says: str


def fences(page: str) -> Iterator[Fence]:
    """Every fenced block of a page, those indented within a list, a note or a tab included.

    >>> [(f.info, f.text, f.start) for f in fences("Look:\\n```python\\n1 + 1\\n```\\n")]
    [('python', '1 + 1\\n', 3)]
    """
    lines = page.splitlines()
    number = 0
    while number < len(lines):
        opening = FENCE.match(lines[number])
        number += 1
        if opening is None:
            continue
        start = number
        while number < len(lines) and lines[number].strip() != opening["ticks"]:
            number += 1
        text = textwrap.dedent("".join(f"{line}\n" for line in lines[start:number]))
        number += 1
        yield Fence(opening["info"].strip(), text, start + 1, number)


def blocks(page: str) -> list[Block]:
    """The Python blocks of a page, each with the text block right after it.

    >>> [(b.code.text, b.says) for b in blocks("```python\\nprint(2)\\n```\\n\\n```text\\n2\\n```\\n")]
    [('print(2)\\n', '2\\n')]
    """
    lines = page.splitlines()
    found = list(fences(page))
    return [
        Block(fence, after.text if after and after.language == "text" and _adjacent(lines, fence, after) else "")
        for fence, after in zip(found, [*found[1:], None])
        if fence.language == "python"
    ]


def _adjacent(lines: list[str], fence: Fence, after: Fence) -> bool:
    return not "".join(lines[fence.end : after.start - 2]).strip()


def imported(page: str) -> set[str]:
    """The top-level packages that the Python of a page imports."""
    nodes = [node for block in blocks(page) for node in ast.walk(ast.parse(block.code.text))]
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name.split(".")[0] for name in plain | {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)}}


def complaints(page: str, name: str) -> list[str]:
    """Run the page; one complaint for each block that prints something else than the page says."""
    module = types.ModuleType("page")
    sys.modules["page"] = module
    found = []
    for block in blocks(page):
        printed = _run(block.code, page, name, module)
        if printed.rstrip() != block.says.rstrip():
            difference = difflib.ndiff(block.says.rstrip().splitlines(), printed.rstrip().splitlines())
            found.append("\n  ".join([f"{name}:{block.code.start} (- the page says, + it prints)", *difference]))
    return found


def _run(code: Fence, page: str, name: str, module: types.ModuleType) -> str:
    if code.title:
        filename, source = code.title, code.text
    else:
        filename, source = name, "\n" * (code.start - 1) + code.text
    shown = (code.text if code.title else page).splitlines(keepends=True)
    linecache.cache[filename] = (len(page), None, shown, filename)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(source, filename, "exec"), vars(module))
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines())


if __name__ == "__main__":
    paths = [Path(argument) for argument in sys.argv[1:]]
    problems = [complaint for path in paths for complaint in complaints(path.read_text(), path.name)]
    print("\n".join(problems))
    sys.exit(bool(problems))
