"""Every cause has its own file, its page with a program and what it prints, and labelled programs that show it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import wrt
from tests._pages import blocks, imported
from wrt._why.cause import by_operation, causes

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


def test_the_folders_hold_one_file_for_each_cause():
    code = {path.stem for path in (ROOT / "src" / "wrt" / "_why" / "causes").glob("*.py")} - {"__init__"}
    pages = {path.stem for path in PAGES.glob("*.md")} - {"index"}
    assert code == pages == set(WORDS)


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
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests._pages", *map(str, chosen)]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("slug", WORDS)
def test_labelled_programs_show_the_cause(slug):
    folder = Path(__file__).parent
    tables = [path.read_text() for framework in FRAMEWORKS for path in folder.glob(f"{framework}_*.py")]
    cases = [path.read_text() for path in (folder / "cases").rglob("*.py")]
    assert any(re.search(rf'show\("{slug}"', table) for table in tables) or any(f"'cause': '{slug}'" in case for case in cases)


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
