"""`import wrt` loads no framework and nothing heavy, and this test can tell when it does."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "tensorflow", "keras", "jax", "matplotlib", "rich", "typer", "scipy", "dask", "starlette")


def loaded_by(statement: str) -> set[str]:
    """Which heavy packages a fresh interpreter has loaded after the statement."""
    program = f"import sys\n{statement}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    return set(_fresh(program).split())


def seconds_of(statement: str) -> float:
    """The shortest of three runs of the statement, each in a fresh interpreter."""
    program = f"import time; start = time.perf_counter()\n{statement}\nprint(time.perf_counter() - start)"
    return min(float(_fresh(program)) for _ in range(3))


def _fresh(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def test_import_wrt_loads_nothing_heavy() -> None:
    assert loaded_by("import wrt") == set()


def test_the_public_doors_load_nothing_heavy() -> None:
    assert loaded_by("import wrt, wrt.errors") == set()


@pytest.mark.parametrize("package", ["scipy", "rich", "typer"])
def test_a_heavy_import_would_be_noticed(package: str) -> None:
    assert package in loaded_by(f"import wrt, {package}")


def test_a_heavy_import_behind_another_would_be_noticed() -> None:
    assert "typer" in loaded_by("import wrt._cli.app")


def test_how_long_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """A figure to look at, never an assertion: the machine is shared."""
    ours, numpys = seconds_of("import wrt"), seconds_of("import numpy")
    with capsys.disabled():
        print(f"\nimport wrt {ours * 1000:.0f} ms, import numpy {numpys * 1000:.0f} ms: {ours / numpys:.2f}x")
