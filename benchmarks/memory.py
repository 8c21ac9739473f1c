"""What `TooLarge` goes by, next to what a question really takes: each in a process of its own, at its true peak.

    python -m benchmarks memory [--device cuda] [name ...]

On a CPU the peak is the kernel's own (VmHWM, reset before the question); on a GPU that of torch's allocator. Printed are
the answer's bytes, the estimate, the true peak above what was there before, estimate / true (held to 1.5x both ways),
and true / (answer + one chunk) (held to 1.3x).
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.memory_questions import QUESTIONS, Question

OUT = Path(__file__).parent / "out"


def main() -> int:
    """One process for each question, one line for each."""
    words = sys.argv[1:]
    device = words[words.index("--device") + 1] if "--device" in words else "cpu"
    if "--one" in words:
        one = QUESTIONS[int(words[words.index("--one") + 1])]
        print(json.dumps(measured(one, device, one.size)))
        return 0
    named = [word for word in words if not word.startswith("--") and word != device]
    print(f"{'question':26} {'answer':>9} {'estimate':>9} {'true':>9} {'est/true':>9} {'true/(answer+chunk)':>20}")
    rows, worst = [], 0.0
    for k, question, size in asked(device, named):
        row = in_its_own_process(k, device) if device == "cpu" else here(question, device, size)
        rows.append({"question": question.name, "size": size, **row})
        if "error" in row:
            print(f"{question.name:26} {row['error']}")
            worst = float("inf")
            continue
        ratio, over = row["estimate"] / row["true"], row["true"] / (row["answer"] + row["chunk"])
        worst = max(worst, ratio, 1 / ratio)
        sizes = " ".join(f"{row[key] / 2**20:8.0f}M" for key in ("answer", "estimate", "true"))
        print(f"{question.name:26} {sizes} {ratio:9.2f} {over:20.2f}  {row['strategy']}", flush=True)
    print(f"furthest from the truth: {worst:.2f}x (limit 1.50x)")
    OUT.mkdir(exist_ok=True)
    (OUT / f"memory_{device}.json").write_text(json.dumps(rows, indent=1))
    return 0


def asked(device: str, named: list[str]) -> Iterator[tuple[int, Question, int]]:
    """Each question with its place in the list, and the sizes at which it is measured there."""
    for k, question in enumerate(QUESTIONS):
        if not named or question.name in named:
            for size in (question.size,) if device == "cpu" else question.on_gpu:
                yield k, question, size


def in_its_own_process(k: int, device: str) -> dict[str, Any]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command = [sys.executable, "-m", "benchmarks.memory", "--device", device, "--one", str(k)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if result.returncode:
        return {"error": (result.stderr.strip().splitlines() or ["?"])[-1]}
    found: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
    return found


def here(question: Question, device: str, size: int) -> dict[str, Any]:
    """In this process: torch's allocator counts by itself."""
    try:
        return measured(question, device, size)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}


def measured(question: Question, device: str, size: int) -> dict[str, Any]:
    """A small one first, so that nothing is loaded for the first time; then the real one."""
    from wrt import d
    from wrt._run.memory import call_bytes

    def derivative(y: Any, x: Any) -> Any:
        return d(y) / d(x) if question.order == 1 else d(y) / d(x) / d(x)

    y, x = question.make(device, question.small)
    warm_up = derivative(y, x).value
    del y, x, warm_up
    y, x = question.make(device, size)
    J = derivative(y, x)
    estimate = J.explain().memory
    peak = on_cpu if device == "cpu" else on_gpu
    true = peak(lambda: J.value)
    return {"answer": J.explain().bytes, "chunk": call_bytes(J.ask), "estimate": estimate, "true": true,
            "strategy": J.explain().strategy}  # fmt: skip


def on_cpu(work: Any) -> int:
    """The highest resident memory while the work runs, above what was resident before."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed before counts neither way
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    held = work()
    high = status("VmHWM")
    del held
    return high - before


def on_gpu(work: Any) -> int:
    import torch

    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    held = work()
    torch.cuda.synchronize()
    del held
    return int(torch.cuda.max_memory_allocated() - before)


def status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    sys.exit(main())
