"""Every code block of the README and the docs runs and prints what the page says; so does every doctest."""

import doctest
import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests._layers import HOME
from tests._pages import blocks, complaints, fences, imported

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ALONE = [page for page in PAGES if page.parent.name != "causes"]  # those are many and small: tests/why runs them together
PROGRAMS = sorted((ROOT / "docs").rglob("*.py"))
APART = ("wrt._backends.tensorflow", "wrt._backends.jax")  # doctests that would load a second framework here


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def with_doctests() -> list[str]:
    paths = [*sorted((ROOT / "src" / "wrt").rglob("*.py")), *sorted((ROOT / "tests").rglob("_*.py"))]
    chosen = [path for path in paths if ">>> " in path.read_text()]
    names = [path.relative_to(ROOT).with_suffix("").parts for path in chosen]
    return [".".join(parts).removeprefix("src.").removesuffix(".__init__") for parts in names]


def succeeds(folder: Path, *arguments: str) -> None:
    """Run Python away from the repository, where a page may leave files behind."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1"}
    command = [sys.executable, *arguments]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("page", [page for page in ALONE if blocks(page.read_text())], ids=relative)
def test_the_page_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    for framework in sorted(imported(page.read_text()) & set(HOME)):
        if importlib.util.find_spec(framework) is None:
            pytest.skip(f"{framework} is not installed")
    succeeds(tmp_path, "-m", "tests._pages", str(page))


@pytest.mark.parametrize("program", PROGRAMS, ids=relative)
def test_the_program_runs(program: Path, tmp_path: Path) -> None:
    succeeds(tmp_path, str(program))


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_no_block_is_excused_from_running(page: Path) -> None:
    assert not [fence for fence in fences(page.read_text()) if "no-run" in fence.info]


@pytest.mark.parametrize("module", with_doctests())
def test_the_doctests_hold(module: str, tmp_path: Path) -> None:
    if module.startswith(APART):
        run = f"import doctest, importlib as i; raise SystemExit(doctest.testmod(i.import_module({module!r})).failed)"
        succeeds(tmp_path, "-c", run)
    else:
        results = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
        assert results.attempted > 0
        assert results.failed == 0


# ---- the checker itself ----


def page_of(code: str, says: str | None = None) -> str:
    answer = f"\n```text\n{says}\n```\n" if says is not None else ""
    return f"# A page\n\n```python\n{code}\n```\n{answer}\n"


def test_a_right_answer_passes() -> None:
    assert complaints(page_of("x = 1\nprint(x + 1)", "2"), "page.md") == []


def test_a_wrong_answer_is_found_with_its_line() -> None:
    (complaint,) = complaints(page_of("print(1 + 1)", "3"), "page.md")
    assert complaint.splitlines() == ["page.md:4 (- the page says, + it prints)", "  - 3", "  + 2"]


def test_printing_without_saying_so_is_found() -> None:
    assert len(complaints(page_of("print(1 + 1)"), "page.md")) == 1


def test_saying_without_printing_is_found() -> None:
    assert len(complaints(page_of("1 + 1", "2"), "page.md")) == 1


def test_text_after_a_sentence_is_not_an_answer() -> None:
    assert complaints(page_of("1 + 1") + "A figure:\n\n```text\nabc\n```\n", "page.md") == []


def test_blocks_share_one_namespace_in_order() -> None:
    assert complaints(page_of("x = 1") + page_of("print(x)", "1"), "page.md") == []


def test_a_block_within_a_tab_runs() -> None:
    page = '=== "PyTorch"\n\n    ```python\n    print("tab")\n    ```\n\n    ```text\n    tab\n    ```\n'
    assert complaints(page, "page.md") == []


def test_an_exception_names_the_line_of_the_page() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        complaints(page_of("x = 0\n1 / x"), "page.md")
    last = caught.traceback[-1]
    assert (str(last.path).endswith("page.md"), last.lineno + 1) == (True, 5)


def test_a_titled_block_runs_as_that_file() -> None:
    code = "import sys\nprint(sys._getframe().f_code.co_filename, sys._getframe().f_lineno)"
    page = page_of(code, "train.py 2").replace("```python", '```python title="train.py"')
    assert complaints(page, "page.md") == []


def test_a_block_marked_no_run_is_noticed() -> None:
    assert [fence.info for fence in fences(page_of("x").replace("python", "python no-run"))] == ["python no-run"]


def test_the_frameworks_of_a_page_are_known() -> None:
    assert imported(page_of("import torch.nn as nn\nfrom jax import numpy\nimport os")) == {"torch", "jax", "os"}
