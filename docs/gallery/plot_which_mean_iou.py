"""
Which mean IoU is this?
=======================

One class is absent from the references, and the prediction contains a few pixels of it. Some tools count that class as
0, others leave it out, and others average images instead of pixels. One run shows the score under each convention.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

rng = np.random.default_rng(2)
pairs = []
for number in range(6):
    target = np.zeros((64, 64), np.uint8)
    target[10 : 30 + 4 * number, 10:50] = 1
    if number < 3:
        target[45:60, 20:40] = 2  # half of the images have this class
    labels = np.roll(target, 2, axis=1)
    labels[rng.random(labels.shape) < 0.002] = 3  # a class that no reference holds
    pairs.append((f"image{number}", target, labels))

classes = ["background", "organ", "lesion", "instrument"]
found = segmeter.evaluate(pairs, classes=classes, convention="all").summary
figures = {each["name"]: each["figures"].get("mean_iou") for each in found["conventions"]}
values = {name: value for name, value in figures.items() if value is not None}  # some tools have no mean IoU
for name, value in values.items():
    print(f"{name:<12} {value:.3f}")

figure, axes = plt.subplots(figsize=(6, 4))
axes.barh(list(values), list(values.values()), color=["tab:blue"] + ["0.7"] * (len(values) - 1))
axes.invert_yaxis()
axes.set(xlabel="mean IoU of the same masks", xlim=(0, 1))
figure.tight_layout()
plt.show()
