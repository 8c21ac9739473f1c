"""`python -m corpus [part ...] [flags]`: each part in a process of its own. Flags go to the parts that are named."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent


def main(arguments: list[str]) -> int:
    """Run the named parts, or all of them; 0 when nothing unexpected was found."""
    parts = sorted(file.stem for file in FOLDER.glob("[!_]*.py") if "\ndef main(" in file.read_text())
    named = [word for word in arguments if word in parts]
    flags = [word for word in arguments if word not in parts] if named else []
    failed = []
    for part in named or parts:
        started = time.perf_counter()
        print(f"== {part}", flush=True)
        code = subprocess.run([sys.executable, "-m", f"corpus.{part}", *flags], check=False).returncode
        print(f"== {part}: {'as expected' if code == 0 else 'UNEXPECTED'}, {time.perf_counter() - started:.0f} s")
        failed += [part] if code else []
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
