"""Draw docs/images/gates.png: three requirements, each with its margin and interval, and what they decide."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("agg")
import matplotlib.pyplot as plt

from segmeter import CaseRow, ClassSpec, MetricsConfig, compare

SPEC = ClassSpec(task="binary", names=("ground", "cell"), colours=((0, 0, 0), (255, 255, 255)))
OUTCOMES = {"pass": ("#009e73", "exit 0"), "regression": ("#d55e00", "exit 4"), "unknown": ("#e69f00", "exit 5")}
REQUIRED = "iou/cell >= base - 0.02"
SHOWN = {"40 cases, as good": (0, 4, 40), "40 cases, much worse": (8, 4, 40), "12 cases, a little worse": (2, 6, 12)}


def decide(missed: int, spread: int, cases: int) -> dict[str, Any]:
    """Return the gate of a run that misses so many more of a cell's 100 pixels, give or take `spread`, in each case."""
    rng = np.random.default_rng(0)
    base = rng.integers(5, 30, cases)
    new = base + missed + rng.integers(-spread, spread + 1, cases)
    runs = {
        name: [
            CaseRow(case_id=f"{i:03d}", height=20, width=25, counts=np.array([[380, 20], [lost, 100 - lost]]))
            for i, lost in enumerate(lost_pixels)
        ]
        for name, lost_pixels in {"base": base, "new": np.clip(new, 0, 100)}.items()
    }
    found: dict[str, Any] = compare(runs, SPEC, MetricsConfig(bootstrap=2000), require=[REQUIRED])["gate"]
    return found["requirements"][0]


def draw(path: Path) -> list[dict[str, Any]]:
    """Write the figure; returns what it shows."""
    found = [decide(*numbers) for numbers in SHOWN.values()]
    figure, axes = plt.subplots(figsize=(8, 2.6), layout="constrained")
    for row, (label, entry) in enumerate(zip(SHOWN, found, strict=True)):
        colour, code = OUTCOMES[entry["outcome"]]
        low, high = entry["margin_ci95"]
        axes.plot([low, high], [row, row], color=colour, linewidth=3, solid_capstyle="butt")
        axes.plot(entry["margin"], row, "o", color=colour, markersize=8)
        needed = f", {entry['n_units_needed']} cases would tell" if entry["n_units_needed"] else ""
        axes.text(0.045, row, f"{entry['outcome']}: {code}{needed}", va="center")
        axes.text(-0.075, row, label, va="center", ha="right")
    axes.axvline(0, color="black", linewidth=1)
    axes.set(ylim=(len(found) - 0.5, -0.5), xlim=(-0.075, 0.04), yticks=[], title=REQUIRED)
    axes.set_xlabel("margin to the bound, with its paired 95 % interval")
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(path, dpi=90, metadata={"Software": None})
    plt.close(figure)
    return found


if __name__ == "__main__":
    draw(Path(__file__).parent / "images" / "gates.png")
