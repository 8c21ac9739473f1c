"""`python -m benchmarks [part ...] [flags]`: each part in a process of its own. Flags go to the parts that are named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main(arguments: list[str]) -> int:
    """Run the named parts, or all of them; 0 when every one came to its end."""
    parts = sorted(file.stem for file in FOLDER.glob("[!_]*.py") if "\ndef main(" in file.read_text())
    named = [word for word in arguments if word in parts]
    flags = [word for word in arguments if word not in parts] if named else []
    failed = 0
    for part in named or parts:
        print(f"== {part}", flush=True)
        failed += subprocess.run([sys.executable, "-m", f"benchmarks.{part}", *flags], check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
