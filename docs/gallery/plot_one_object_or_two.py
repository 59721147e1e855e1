"""
One object or two?
==================

Two touching cells that are found as one cost almost no IoU, as nearly all pixels are right. For counting cells the
result is wrong. Panoptic quality (PQ) sees it.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

rows, columns = np.ogrid[:60, :100]
left = (rows - 30) ** 2 + (columns - 32) ** 2 < 19**2
right = ((rows - 30) ** 2 + (columns - 68) ** 2 < 19**2) & ~left
target = left + 2 * right
merged = ((target > 0) | ((abs(rows - 30) < 6) & (abs(columns - 50) < 4))).astype(int)
apart = np.where(np.roll(target, 1, axis=1) > 0, np.roll(target, 1, axis=1), 0)

figure, axes = plt.subplots(1, 3, figsize=(7, 2.2))
axes[0].imshow(target, cmap="tab10", vmax=9, interpolation="nearest")
axes[0].set_title("reference", fontsize=9)
for axis, (name, labels) in zip(axes[1:], {"merged": merged, "apart, one pixel off": apart}.items(), strict=True):
    iou = ((target > 0) & (labels > 0)).sum() / ((target > 0) | (labels > 0)).sum()
    match = segmeter.match_instances(target, labels)
    print(f"{name:<21} IoU {iou:.3f}, PQ {match.pq:.3f}")
    axis.imshow(labels, cmap="tab10", vmax=9, interpolation="nearest")
    axis.set_title(f"{name}\nIoU {iou:.3f}, PQ {match.pq:.3f}", fontsize=9)
for axis in axes:
    axis.set(xticks=[], yticks=[])
figure.tight_layout()
plt.show()
