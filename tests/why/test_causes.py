"""Every cause has its entry in the table, a page written from it, and labelled programs that show it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import wrt
from tests._pages import blocks, imported
from wrt._why.causes import FAMILIES, by_operation, causes

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "causes"
FRAMEWORKS = ("torch", "tensorflow", "jax")

WORDS = """
    accumulated_grad argmax broadcast checkpoint_reentrant clamp comparison copied_module custom_backward_none
    custom_backward_wrong dead_relu degenerate_eig detach detached_hidden_state div_zero domain_edge dot_data double_softmax
    exploding_product fresh_leaf_loss graph_freed hook host_callback inference_mode inplace_overwrite inplace_saved_tensor
    int_input integer_cast integer_output invariant_output item late_requires_grad leaf_moved_by_to_device_or_cast log_zero
    low_precision mask masked_softmax_row no_derivative no_grad no_reverse_rule nonleaf_grad nonscalar_backward norm_at_zero
    not_indexed not_requires_grad numpy_roundtrip objective_sign optimizer_wrong_params parameter_wrap recomputed_tensor
    retensor round sample_no_reparam saturated save_for_backward_nontensor serialized sign sort_indices sqrt_at_zero
    state_assign stop_gradient tape_closed tape_consumed tie_subgradient unused_input unwatched vanishing_chain
    variable_reassigned_to_tensor view_inplace where_nan_trap
""".split()
"""The vocabulary: words that people who label failures agree on."""


def test_there_is_a_cause_for_every_word_and_a_word_for_every_cause():
    assert sorted(causes()) == sorted(WORDS)


def test_a_slug_stands_once_in_the_table():
    assert sum(len(family.causes) for family in FAMILIES) == len(causes())


def test_there_is_one_page_for_each_cause():
    assert {path.stem for path in PAGES.glob("*.md")} - {"index"} == set(WORDS)


def makes_pages(root):
    """`docs/make_causes.py`, of another checkout; only its environment knows where the package is."""
    command = [sys.executable, str(root / "docs" / "make_causes.py")]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT / "src")})


def test_pages_index_and_navigation_are_written_from_the_table():
    result = makes_pages(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_page_an_entry_of_the_index_or_of_the_navigation_that_differs_is_named(tmp_path):
    shutil.copytree(ROOT / "docs" / "causes", tmp_path / "docs" / "causes")
    for name in ("docs/make_causes.py", "mkdocs.yml"):
        shutil.copy(ROOT / name, tmp_path / name)
    assert makes_pages(tmp_path).returncode == 0
    for name, old, new in [
        ("docs/causes/detach.md", ".detach()", ".detached()"),
        ("docs/causes/index.md", "sqrt at zero", "sqrt of zero"),
        ("mkdocs.yml", "- round: causes/round.md", "- rounding: causes/round.md"),
    ]:
        path = tmp_path / name
        path.write_text(path.read_text().replace(old, new))
    (tmp_path / "docs" / "causes" / "unheard_of.md").write_text("# unheard_of\n")
    result = makes_pages(tmp_path)
    assert result.returncode == 1
    named = {line.split()[0] for line in result.stdout.splitlines()}
    assert named == {"docs/causes/detach.md", "docs/causes/index.md", "mkdocs.yml", "docs/causes/unheard_of.md"}


@pytest.mark.parametrize("slug", WORDS)
def test_the_page_shows_the_case_the_message_and_the_fix(slug):
    cause, page = causes()[slug], (PAGES / f"{slug}.md").read_text()
    (block,) = blocks(page)
    assert block.code.title == f"{slug}.py"
    assert block.code.text == cause.case
    assert f"[{slug}]" in block.says or f"[{slug}, a hint]" in block.says
    remedy = cause.remedy.replace("{x}", "x").replace("{y}", "y")
    assert f"**Write:** {remedy}." in page
    assert page.startswith(f"# {slug}\n\n{cause.means[0].upper()}{cause.means[1:]}.\n")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_pages_print_what_they_say(framework, tmp_path):
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    chosen = [page for page in sorted(PAGES.glob("*.md")) if framework in imported(page.read_text())]
    assert chosen
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "COLUMNS": "100", "NO_COLOR": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests._pages", *map(str, chosen)]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("slug", WORDS)
def test_labelled_programs_show_the_cause(slug):
    folder = Path(__file__).parent
    tables = [*(folder / "cases").glob("*.py"), *(path for name in FRAMEWORKS for path in folder.glob(f"{name}_*.py"))]
    assert any(re.search(rf'show\("{slug}"', table.read_text()) for table in tables)


def test_the_index_lists_them_all():
    index = (PAGES / "index.md").read_text()
    for slug, cause in causes().items():
        assert f"| [`{slug}`]({slug}.md) | {cause.means} |" in index


def test_every_cause_can_be_explained():
    for slug, cause in causes().items():
        told = wrt.explain_cause(slug)
        assert told.startswith(f"{slug}: {cause.means}")
        assert all(line.strip() in told for line in cause.case.splitlines())


def test_an_operation_has_one_cause_of_each_kind():
    for kind in ("stops", "flattens", "breaks"):
        assert by_operation(kind)
