"""
Is a vessel still connected?
============================

Two predictions of a thin vessel. One is a pixel too wide, the other has gaps. Dice prefers the one with gaps.
Centreline Dice follows the skeleton and sees that it is broken.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

columns = np.arange(160)
middle = (40 + 15 * np.sin(columns / 18)).astype(int)


def vessel(radius):
    """Draw a winding vessel of this radius."""
    return np.abs(np.arange(80)[:, None] - middle[None, :]) <= radius


target = vessel(1)
wide, broken = vessel(2), target.copy()
for gap in range(15, 160, 24):
    broken[:, gap : gap + 5] = False

figure, axes = plt.subplots(1, 2, figsize=(8, 2.4))
for axis, (name, labels) in zip(axes, {"too wide": wide, "with gaps": broken}.items(), strict=True):
    dice = 2 * (target & labels).sum() / (target.sum() + labels.sum())
    centreline = segmeter.centreline_dice(target, labels).cldice
    print(f"{name:<10} Dice {dice:.3f}, centreline Dice {centreline:.3f}")
    axis.imshow(target.astype(int) + 2 * labels, cmap="Greys", interpolation="nearest")
    axis.set(xticks=[], yticks=[])
    axis.set_title(f"{name}: Dice {dice:.3f}, clDice {centreline:.3f}", fontsize=9)
figure.tight_layout()
plt.show()
