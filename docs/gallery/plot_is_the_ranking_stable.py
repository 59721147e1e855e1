"""
Is the ranking stable?
======================

Four models on the same 30 cases. Resample the cases and rank again: A leads in three of four draws, B and C change
places in every fourth, and only D's place is safe. A table that prints ranks should say so.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

rng = np.random.default_rng(11)
spec = segmeter.ClassSpec(task="binary", names=("ground", "cell"), colours=((0, 0, 0), (255, 255, 255)))
hard = rng.integers(5, 30, 30)  # how hard each case is, for every model


def run(extra):
    """One row per case: how many of a cell's 100 pixels this model misses."""
    missed = np.clip(hard + extra + rng.integers(-6, 7, 30), 0, 100)
    return [
        segmeter.CaseRow(
            case_id=f"{number:02}",
            height=20,
            width=25,
            counts=np.array([[400, 0], [lost, 100 - lost]]),
            target_crc32=number,
        )
        for number, lost in enumerate(missed)
    ]


runs = {"A": run(0), "B": run(3), "C": run(4), "D": run(9)}
found = segmeter.compare(runs, spec, segmeter.MetricsConfig(bootstrap=2000))
ranking = found["metrics"]["mean_iou"]["ranking"]
shares = np.array([ranking["rank_shares"][name] for name in runs])
print("order:", *ranking["order"])
print(f"stability {ranking['stability']:.2f}")

figure, axes = plt.subplots(figsize=(4.5, 3))
axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
for row, column in np.ndindex(shares.shape):
    axes.text(column, row, f"{shares[row, column]:.0%}", ha="center", va="center")
axes.set(xticks=range(4), xticklabels=range(1, 5), yticks=range(4), yticklabels=runs, xlabel="rank", ylabel="model")
figure.tight_layout()
plt.show()
