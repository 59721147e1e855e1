"""
Do the readers agree?
=====================

Four readers outlined the same 24 cells. Nobody knows the truth, but if one reader agrees less with the others than
they do with each other, that shows. The contrast below is this difference, in each case; `segmeter agree` adds a test.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np

import segmeter

rng = np.random.default_rng(1)
rows, columns = np.ogrid[:64, :64]


def outline(radius):
    """Draw a reader's mask of a cell."""
    top, left = 32 + rng.normal(0, 0.7, 2)
    return (rows - top) ** 2 + (columns - left) ** 2 < (radius + rng.normal(0, 0.7)) ** 2


radii = rng.uniform(10, 24, 24)
masks = {name: [outline(radius + bias) for radius in radii] for name, bias in zip("ABCD", (0, 0, 0, -2), strict=True)}


def iou(one, other):
    """Return the IoU of two readers in each case."""
    return np.array([(a & b).sum() / (a | b).sum() for a, b in zip(masks[one], masks[other], strict=True)])


pairs = {frozenset(pair): iou(*pair) for pair in itertools.combinations("ABCD", 2)}
figure, axes = plt.subplots(figsize=(6, 2.8))
for place, reader in enumerate("ABCD"):
    own = np.mean([values for pair, values in pairs.items() if reader in pair], axis=0)
    others = np.mean([values for pair, values in pairs.items() if reader not in pair], axis=0)
    contrast = segmeter.mean_interval(own - others)
    print(f"{reader}: {contrast.mean:+.3f}, 95 % interval {contrast.low:+.3f} to {contrast.high:+.3f}")
    axes.plot([contrast.low, contrast.high], [place, place], linewidth=4, color="tab:blue")
    axes.plot(contrast.mean, place, "o", color="black")
axes.axvline(0, color="black", linewidth=1)
axes.set(
    yticks=range(4), yticklabels="ABCD", ylabel="reader", xlabel="IoU with the others, minus theirs among each other"
)
figure.tight_layout()
plt.show()
