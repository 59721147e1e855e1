"""
Can ignored pixels hide errors?
===============================

Borders between objects are often marked as void, since even experts disagree there. The wider that band, the better
every model looks, as most errors lie along borders. Report the share of void, and compare at one width only.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

rows, columns = np.ogrid[:200, :200]
distance = np.hypot(rows - 100, columns - 100)
target = (distance < 60).astype(np.uint8)
labels = (distance < 60 + 4 * np.sin(6 * np.arctan2(rows - 100, columns - 100))).astype(np.uint8)
widths = np.arange(0, 6)
ious, shares = [], []
for width in widths:
    reference = target.copy()
    reference[abs(distance - 60) < width] = 255
    counts = segmeter.confusion_matrix(reference, labels, num_classes=2, ignore_index=255)
    ious.append(float(segmeter.overlap_scores(counts).iou[1]))
    shares.append(float((reference == 255).mean()))
    print(f"void within {width} pixels ({shares[-1]:5.1%} of the image): IoU {ious[-1]:.3f}")

figure, axes = plt.subplots(figsize=(6, 3))
axes.plot(widths, ious, "o-")
axes.set(xlabel="pixels on either side of the border that are void", ylabel="IoU of the same prediction")
figure.tight_layout()
plt.show()
