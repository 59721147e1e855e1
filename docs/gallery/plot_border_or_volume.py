"""
Does IoU see a bad border?
==========================

The same error of two pixels all around, on objects of growing size. IoU forgives it more and more, as most pixels lie
inside. Boundary IoU looks at a band along the border only, so it stays about the same.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

rows, columns = np.ogrid[:400, :400]
distance = np.hypot(rows - 200, columns - 200)
radii = np.array([10, 20, 40, 80, 120, 160])
ious, boundary = [], []
for radius in radii:
    target, labels = (distance < radius).astype(np.uint8), (distance < radius + 2).astype(np.uint8)
    ious.append(segmeter.overlap_scores(segmeter.confusion_matrix(target, labels, num_classes=2)).iou[1])
    boundary.append(segmeter.boundary_iou(target, labels, num_classes=2, width=8).iou[1])
    print(f"radius {radius:>3}: IoU {ious[-1]:.3f}, boundary IoU {boundary[-1]:.3f}")

figure, axes = plt.subplots(figsize=(6, 3))
axes.plot(radii, ious, "o-", label="IoU")
axes.plot(radii, boundary, "o-", label="boundary IoU, band of 8 pixels")
axes.set(xlabel="radius of the object in pixels", ylabel="score", ylim=(0, 1))
axes.legend(frameon=False)
figure.tight_layout()
plt.show()
