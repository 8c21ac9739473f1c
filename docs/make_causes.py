"""The pages of causes, their index and their part of the navigation, written from the table in `wrt._why.causes`.

    python docs/make_causes.py          says what is not as the table has it
    python docs/make_causes.py write    runs the program of every cause, and writes them
"""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import os
import re
import subprocess
import sys
from pathlib import Path

from wrt._why.causes import FAMILIES, Cause, Family, causes

DOCS = Path(__file__).parent
PAGES = DOCS / "causes"
SITE = DOCS.parent / "mkdocs.yml"
FRAMEWORKS = ("torch", "tensorflow", "jax")
HEAD = """\
# Causes

Every word that `wrt.why` puts in brackets, with a page that shows a small program, what `why` says about it, and what to write.
`wrt explain-cause detach` prints one of them in the terminal.
"""
NAVIGATION = re.compile(r"(?<=      - All of them: causes/index\.md\n)(?:      .*\n)+")


def page(cause: Cause, family: Family, says: str) -> str:
    """The page of one cause; `says` is what its program prints."""
    remedy = cause.remedy.replace("{x}", "x").replace("{y}", "y")
    anchor = family.title.lower().replace(" ", "-")
    return (
        f"# {cause.slug}\n\n{cause.means[0].upper()}{cause.means[1:]}.\n\n"
        f'```python title="{cause.slug}.py"\n{cause.case}```\n\n```text\n{says}```\n\n**Write:** {remedy}.\n\n'
        f"One of the causes of the family [{family.title[0].lower()}{family.title[1:]}](index.md#{anchor}).\n"
    )


def index() -> str:
    """The page that lists them all."""
    return "\n".join([HEAD, *map(_section, FAMILIES)])


def _section(family: Family) -> str:
    rows = "".join(f"| [`{cause.slug}`]({cause.slug}.md) | {cause.means} |\n" for cause in family.causes)
    return f"## {family.title}\n\n{family.means}\n\n| cause | meaning |\n|---|---|\n{rows}"


def site() -> str:
    """`mkdocs.yml` with the navigation of the table."""
    lines = []
    for family in FAMILIES:
        lines += [f"      - {family.title}:", *(f"          - {c.slug}: causes/{c.slug}.md" for c in family.causes)]
    return NAVIGATION.sub("".join(f"{line}\n" for line in lines), SITE.read_text())


def written(said: dict[str, str]) -> dict[Path, str]:
    """Every file as the table has it, given what the programs print."""
    pages = {PAGES / f"{c.slug}.md": page(c, family, said.get(c.slug, "")) for family in FAMILIES for c in family.causes}
    return {**pages, PAGES / "index.md": index(), SITE: site()}


def said_so_far() -> dict[str, str]:
    """What the programs print according to the pages as they are."""
    found = {}
    for path in PAGES.glob("*.md"):
        block = re.search(r"```text\n(.*?)```", path.read_text(), re.DOTALL)
        found[path.stem] = block[1] if block else ""
    return found


def printed(framework: str) -> dict[str, str]:
    """Run the programs of one framework, each as a file of its own name."""
    found = {}
    for slug, cause in causes().items():
        if re.search(rf"^import {framework}\b", cause.case, re.MULTILINE):
            name = f"{slug}.py"
            linecache.cache[name] = (len(cause.case), None, cause.case.splitlines(keepends=True), name)
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(cause.case, name, "exec"), {"__name__": "__main__"})
            found[slug] = "".join(f"{line.rstrip()}\n" for line in output.getvalue().rstrip().splitlines())
    return found


def _printed_apart(framework: str) -> dict[str, str]:
    """The same in a process of its own: frameworks do not like to share one."""
    command = [sys.executable, "-W", "ignore", __file__, framework]
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, str] = json.loads(ran.stdout)
    return found


def main(word: str = "") -> int:
    """Compare, write, or run the programs of one framework."""
    if word in FRAMEWORKS:
        print(json.dumps(printed(word)))
        return 0
    if word not in ("", "write"):
        print(__doc__)
        return 2
    said = {slug: text for name in FRAMEWORKS for slug, text in _printed_apart(name).items()} if word else said_so_far()
    stale = {path: text for path, text in written(said).items() if not path.exists() or path.read_text() != text}
    extra = [path for path in PAGES.glob("*.md") if path.stem not in {*causes(), "index"}]
    for path in (*stale, *extra):
        print(f"{path.relative_to(DOCS.parent)} {'is written' if word else 'is not as the table has it'}")
    if word:
        for path, text in stale.items():
            path.write_text(text)
        for path in extra:
            path.unlink()
    return 0 if word else bool(stale or extra)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
