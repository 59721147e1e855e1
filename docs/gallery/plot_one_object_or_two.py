"""
One object or two?
==================

Two touching cells that are found as one cost almost no IoU, as nearly all pixels are right. For counting cells the
result is wrong. Panoptic quality (PQ) sees it.

A model that learned only "cell or not" gives high probabilities all the way across the border. After
``data=instances`` it is sure (above 0.97) in the cores of cells alone, and the step ``cores`` makes an object of each.
The labels, and so the IoU, are the same.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import ndimage

import segmeter
from segmeter.classes import ClassSpec
from segmeter.postprocess import run_steps
from segmeter.postprocess.config import SEPARATING

spec = ClassSpec(task="binary", names=("background", "cell"), colours=((0, 0, 0), (255, 200, 0)))
rows, columns = np.ogrid[:60, :100]
left = (rows - 30) ** 2 + (columns - 32) ** 2 < 19**2
right = ((rows - 30) ** 2 + (columns - 68) ** 2 < 19**2) & ~left
target = left + 2 * right
found = (target > 0) | ((abs(rows - 30) < 6) & (abs(columns - 50) < 4))
apart = found & (abs(columns - 50) > 1)
depths = {"plain masks": ndimage.distance_transform_edt(found), "cores": ndimage.distance_transform_edt(apart)}

figure, axes = plt.subplots(2, 3, figsize=(7, 4))
axes[0, 0].imshow(target, cmap="tab10", vmax=9, interpolation="nearest")
axes[0, 0].set_title("reference", fontsize=9)
for column, (name, depth) in enumerate(depths.items(), 1):
    probs = np.where(depth > 3, 0.99, np.where(found, 0.8, 0.01))
    labels = (probs > 0.5).astype(np.uint8)
    objects = run_steps(labels, SEPARATING, spec, probs[None]).instances
    iou = ((target > 0) & (labels > 0)).sum() / ((target > 0) | (labels > 0)).sum()
    match = segmeter.match_instances(target, objects)
    print(f"{name:<12} IoU {iou:.3f}, PQ {match.pq:.3f}")
    axes[0, column].imshow(probs, cmap="gray", vmin=0, vmax=1)
    axes[0, column].set_title(f"probability, {name}", fontsize=9)
    axes[1, column].imshow(objects, cmap="tab10", vmax=9, interpolation="nearest")
    axes[1, column].set_title(f"IoU {iou:.3f}, PQ {match.pq:.3f}", fontsize=9)
for axis in axes.flat:
    axis.set(xticks=[], yticks=[])
axes[1, 0].axis("off")
figure.tight_layout()
plt.show()
