"""Draws docs/images/agree.png: four readers and a model, the matrix of their IoU, and each one's contrast.

python docs/draw_agree.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from segmeter.classes import ClassSpec
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.agreement import Readings, lay_out_readings, summarise_agreement

PLACE = Path(__file__).parent / "images" / "agree.png"
SPEC = ClassSpec(task="binary", names=("background", "cell"), colours=((0, 0, 0), (255, 0, 0)))
READERS = {"Anna": (0.0, 1.0), "Ben": (0.0, 1.0), "Carl": (0.0, 1.4), "Dora": (-2.5, 1.0), "model": (0.0, 0.4)}
CASES, EDGE = 30, 96


def draw_masks() -> dict[str, list[np.ndarray]]:
    rng, masks = np.random.default_rng(0), {name: [] for name in READERS}
    lines, columns = np.ogrid[:EDGE, :EDGE]
    for _ in range(CASES):
        radius = rng.uniform(10, 30)
        for name, (bias, noise) in READERS.items():
            own, centre = radius + bias + rng.normal(0, noise), EDGE / 2 + rng.normal(0, noise, 2)
            masks[name].append((lines - centre[0]) ** 2 + (columns - centre[1]) ** 2 < own**2)
    return masks


def main() -> None:
    masks = draw_masks()
    rows = {
        (a, b): [
            CaseRow(case_id=f"{i:02}", height=EDGE, width=EDGE,
                    counts=np.bincount(2 * one.ravel() + other.ravel(), minlength=4).reshape(2, 2))
            for i, (one, other) in enumerate(zip(masks[a], masks[b], strict=True))
        ]
        for a in READERS for b in READERS if a != b
    }  # fmt: skip
    given = Readings(readers=[*READERS][:4], models=["model"], rows=rows, tied={})
    found = summarise_agreement(given, lay_out_readings(given, SPEC, MetricsConfig(headline="iou/cell")))
    score, names = found["scores"]["iou/cell"], [*READERS]
    matrix = np.array([[np.nan if a == b else score["matrix"][a][b]["mean"] for b in names] for a in names])
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), width_ratios=(1.1, 1))
    left.imshow(matrix, cmap="Blues", vmin=0.6, vmax=1.05)
    for i, j in np.ndindex(matrix.shape):
        left.text(j, i, "" if i == j else f"{matrix[i, j]:.3f}", ha="center", va="center", fontsize=9)
    left.set(xticks=range(5), yticks=range(5), xticklabels=names, yticklabels=names, title="mean IoU of each pair")
    for place, name in enumerate(names):
        one = score["contrast"][name]
        colour = "tab:red" if one.get("apart") else "tab:blue"
        right.plot(one["ci95"], [place, place], color=colour, linewidth=3)
        right.plot(one["mean"], place, "o", color=colour)
    right.axvline(0, color="black", linewidth=0.8)
    right.set(yticks=range(5), yticklabels=names, title="contrast, with its 95 % interval", xlabel="IoU")
    right.invert_yaxis()
    figure.tight_layout()
    figure.savefig(PLACE, dpi=110)


if __name__ == "__main__":
    main()
