"""One table and one picture of the benchmarks that were run: `python -m benchmarks.table`.

It reads what `planner`, `rivals_jax` and `rivals_tensorflow` left in `out/` and draws docs/pictures/benchmark.svg: a bar
for each problem, as many times faster than the best rival as it says. Bars to the left of one are losses.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.timing import OUT

PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "benchmark.svg"
INK, PALE, LOSS = "#1d4e89", "#9cc3e6", "#c44536"


@dataclass
class Line:
    """One problem in one framework: how many times faster than the best rival, cold and warm."""

    framework: str
    name: str
    cold: float
    warm: float
    rival: str
    passes: str
    megabytes: str
    disagreement: float

    def __str__(self) -> str:
        times = f"cold {self.cold:7.2f}x   warm {self.warm:7.2f}x"
        kept = f"{self.passes:28s} {self.megabytes:14s} {self.disagreement:7.0e}"
        return f"{self.framework:10s} {self.name:40s} {times}   {kept}   {self.rival}"


def of_torch(path: Path) -> list[Line]:
    """The planner's own table."""
    lines = []
    for row in _rows(path):
        passes = f"{row['strategy']}, {row['passes']['cold']}/{row['passes']['warm']} passes"
        memory = row.get("megabytes", {})
        kept = f"{memory['warm']:.1f}/{memory[row['rival']]:.1f} MiB" if memory else ""
        faster = row["times_faster"]
        lines.append(Line("torch", row["name"], faster["cold"], faster["warm"], row["rival"], passes, kept, row["disagreement"]))
    return lines


def of_others(framework: str, path: Path) -> list[Line]:
    """JAX and TensorFlow: whole dense answers against whole dense answers."""
    lines = []
    for row in _rows(path):
        rivals = [name for name in row["warm"] if not name.startswith("wrt") and "sparse" not in name and "alone" not in name]
        best = min(rivals, key=lambda name: row["warm"][name])
        first = min(rivals, key=lambda name: row["cold"][name])
        cold, warm = row["cold"][first] / row["cold"]["wrt"], row["warm"][best] / row["warm"]["wrt"]
        rival = best if best == first else f"{first} cold, {best} warm"
        lines.append(Line(framework, row["name"], cold, warm, rival, row["notes"][0], "", row["disagreement"]))
    return lines


def _rows(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text())["rows"]) if path.exists() else []


def draw(lines: list[Line], path: Path) -> None:
    """Two bars for each problem, on a logarithmic scale around one."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "wrt"
    names = list(dict.fromkeys(line.framework for line in lines))
    heights = [sum(line.framework == name for line in lines) for name in names]
    figure, axes = pyplot.subplots(
        len(names), 1, figsize=(8, 0.36 * sum(heights) + 0.75 * len(names)), sharex=True, squeeze=False,
        gridspec_kw={"height_ratios": heights}, layout="constrained",
    )
    for ax, name in zip(axes[:, 0], names, strict=True):
        some = [line for line in lines if line.framework == name][::-1]
        for place, line in enumerate(some):
            for value, shift, color in ((line.warm, -0.2, INK), (line.cold, 0.2, PALE)):
                _bar(ax, place + shift, max(value, 1e-3), color)
        ax.set_yticks(range(len(some)), [line.name for line in some], fontsize=8)
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:g}")
        ax.axvline(1, color="black", linewidth=0.8)
        ax.set_title(f"{name}: times faster than the best rival (dark: warm, light: cold, red: slower)", fontsize=9, loc="left")
        ax.spines[["top", "right"]].set_visible(False)
        ax.margins(x=0.12)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _bar(ax: Any, place: float, value: float, color: str) -> None:
    won = value >= 1
    ax.barh(place, value - 1, left=1, height=0.36, color=color if won else LOSS, alpha=1 if color == INK else 0.75)
    side: dict[str, Any] = {"xytext": (3 if won else -3, 0), "ha": "left" if won else "right", "va": "center"}
    ax.annotate(f"{value:.1f}" if won else f"{value:.2f}", (value, place), textcoords="offset points", fontsize=7, **side)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    chosen = parser.parse_args(arguments)
    lines = of_torch(OUT / "planner.json")
    lines += of_others("JAX", OUT / "rivals_jax.json") + of_others("TensorFlow", OUT / "rivals_tensorflow.json")
    if not lines:
        print("nothing to show yet: run python -m benchmarks planner rivals_jax rivals_tensorflow first")
        return 0
    for line in lines:
        print(line)
    warm, cold = (sum(value < 1 for value in each) for each in zip(*((line.warm, line.cold) for line in lines), strict=True))
    print(f"{len(lines)} lines; slower than the best rival: {warm} warm, {cold} cold")
    (OUT / "table.json").write_text(json.dumps([vars(line) for line in lines], indent=1) + "\n")
    draw(lines, chosen.picture)
    print(f"drew {chosen.picture.name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
