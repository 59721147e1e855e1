"""
Overlap or distance?
====================

Two masks with nearly the same Dice: one is a little too large everywhere, the other has a thin spike far outside.
Surface distances tell them apart. For a surgeon or a planner that is often the question.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

rows, columns = np.ogrid[:120, :120]
target = (rows - 60) ** 2 + (columns - 50) ** 2 < 30**2
grown = (rows - 60) ** 2 + (columns - 50) ** 2 < 31.5**2
spike = target.copy()
spike[56:64, 79:117] = True

figure, axes = plt.subplots(1, 2, figsize=(6, 3.4))
for axis, (name, labels) in zip(axes, {"too large": grown, "with a spike": spike}.items(), strict=True):
    dice = 2 * (target & labels).sum() / (target.sum() + labels.sum())
    distances = segmeter.surface_metrics(target, labels, spacing=(1.0, 1.0))
    print(f"{name:<13} Dice {dice:.3f}, 95 % Hausdorff distance {distances.hd95:.1f}, largest {distances.hd:.1f}")
    axis.imshow(target.astype(int) + 2 * labels, cmap="Greys", interpolation="nearest")
    axis.set(title=f"{name}: Dice {dice:.3f}, HD95 {distances.hd95:.1f}", xticks=[], yticks=[])
    axis.title.set_fontsize(9)
figure.tight_layout()
plt.show()
