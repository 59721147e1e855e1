"""
Does background count?
======================

Nine tenths of each image are background, and any model gets it right. With background in the mean, a model that
misses half of the object still looks good. Say which of the two you report.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

target = np.zeros((100, 100), np.uint8)
target[35:65, 35:65] = 1
values = {"with background": [], "object only": []}
missed = np.arange(0, 31, 5)
for lines in missed:
    labels = target.copy()
    labels[35 : 35 + lines] = 0
    scores = segmeter.overlap_scores(segmeter.confusion_matrix(target, labels, num_classes=2))
    values["with background"].append(float(scores.mean_iou))
    values["object only"].append(float(scores.iou[1]))
    print(f"{lines / 30:4.0%} missed: mean IoU {scores.mean_iou:.2f}, IoU of the object {scores.iou[1]:.2f}")

figure, axes = plt.subplots(figsize=(6, 3))
for name, scores in values.items():
    axes.plot(100 * missed / 30, scores, "o-", label=name)
axes.set(xlabel="missed part of the object in percent", ylabel="IoU", ylim=(0, 1))
axes.legend(frameon=False)
figure.tight_layout()
plt.show()
