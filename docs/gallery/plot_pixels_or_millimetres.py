"""
Pixels or millimetres?
======================

A scan has slices 5 mm apart and pixels of 0.5 mm. Two predictions are off by two voxels, one within the slice and one
across slices. In voxels they are equally wrong, in millimetres one is ten times worse.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

depth, rows, columns = np.ogrid[:20, :80, :80]
target = ((depth - 10) / 5) ** 2 + ((rows - 40) / 25) ** 2 + ((columns - 40) / 25) ** 2 < 1
moved = {"within the slice": np.roll(target, 2, axis=2), "across slices": np.roll(target, 2, axis=0)}

found = {}
for name, labels in moved.items():
    voxels = segmeter.surface_metrics(target, labels, spacing=(1.0, 1.0, 1.0)).hd
    millimetres = segmeter.surface_metrics(target, labels, spacing=(5.0, 0.5, 0.5)).hd
    found[name] = voxels, millimetres
    print(f"{name:<17} HD {voxels:.1f} voxels, {millimetres:.1f} mm")

figure, axes = plt.subplots(1, 2, figsize=(7, 2.6))
for axis, unit, values in zip(axes, ("voxels", "mm"), zip(*found.values(), strict=True), strict=True):
    axis.bar(list(found), values, color=["0.7", "tab:red"])
    axis.set(ylabel=f"Hausdorff distance in {unit}")
figure.tight_layout()
plt.show()
