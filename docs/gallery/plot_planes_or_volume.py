"""
Planes or volumes?
==================

A network that predicts plane by plane may leave specks that no plane shows to be wrong: each looks like a small object.
In the volume they have no neighbours. Keeping the largest component in each plane keeps a speck wherever the organ is
absent; in 3-D it removes them all.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter
from segmeter.classes import ClassSpec
from segmeter.postprocess.config import LargestComponentConfig
from segmeter.postprocess.pipeline import run_steps

spec = ClassSpec(task="binary", names=("background", "organ"), colours=((0, 0, 0), (230, 80, 60)))
depth, rows, columns = np.ogrid[:16, :64, :64]
target = (((depth - 8) / 5) ** 2 + ((rows - 32) / 18) ** 2 + ((columns - 32) / 18) ** 2 < 1).astype(np.uint8)
labels = target.copy()
for plane, row, column in np.random.default_rng(0).integers(2, (14, 60, 60), (14, 3)):
    labels[plane, row : row + 3, column : column + 3] = 1

steps = [LargestComponentConfig()]
cleaned = {
    "as predicted": labels,
    "largest per plane": np.stack([run_steps(plane, steps, spec).labels for plane in labels]),
    "largest in 3-D": run_steps(labels, steps, spec, plane_axis=0).labels,
}
found = {
    name: segmeter.surface_metrics(target == 1, each == 1, spacing=(4.0, 1.0, 1.0)).hd for name, each in cleaned.items()
}
for name, distance in found.items():
    print(f"{name:<18} HD {distance:4.1f} mm")

figure, axes = plt.subplots(1, 3, figsize=(8, 2.8))
for axis, (name, each) in zip(axes, cleaned.items(), strict=True):
    axis.imshow(each.max(axis=1) + target.max(axis=1), aspect=4, cmap="magma")
    axis.set(title=f"{name}\nHD {found[name]:.1f} mm", xlabel="column", ylabel="plane")
figure.tight_layout()
plt.show()
