"""
Is B better than A?
===================

Two models on the same 40 images. Their means differ, but do they differ by more than the choice of images explains?
The paired interval answers that: if it contains zero, 40 images can't tell.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

rng = np.random.default_rng(0)


def disc(radius):
    """Draw a disc in a 96 x 96 image."""
    rows, columns = np.ogrid[:96, :96]
    return ((rows - 48) ** 2 + (columns - 48) ** 2 < radius**2).astype(np.uint8)


radii = rng.uniform(15, 40, 40)
targets = [disc(radius) for radius in radii]
found_a = [disc(radius + rng.normal(0, 2.0)) for radius in radii]
found_b = [disc(radius + rng.normal(0, 1.2)) for radius in radii]


def evaluate(found):
    """Score one model's masks."""
    pairs = [(f"image{i:02}", target, labels) for i, (target, labels) in enumerate(zip(targets, found, strict=True))]
    return segmeter.evaluate(pairs, classes=["background", "cell"], task="binary")


a, b = evaluate(found_a), evaluate(found_b)
iou_a, iou_b = (np.array(each.cases["iou_cell"]) for each in (a, b))
difference = segmeter.mean_interval(iou_b - iou_a)
print(f"B - A: {difference.mean:+.3f}, 95 % interval {difference.low:+.3f} to {difference.high:+.3f}")

figure, axes = plt.subplots(figsize=(6, 3))
axes.hist(iou_b - iou_a, bins=15, color="0.75")
axes.axvline(0, color="black", linewidth=1)
axes.axvspan(difference.low, difference.high, color="tab:blue", alpha=0.4, label="95 % interval of the mean")
axes.set(xlabel="IoU of B minus IoU of A, per image", ylabel="images")
axes.legend(frameon=False)
figure.tight_layout()
plt.show()
