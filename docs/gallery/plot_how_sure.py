"""
How sure is a mean Dice?
========================

A mean over few images moves a lot from one choice of images to the next. The interval shrinks with the square root of
their number, so four times the images halve it.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

rng = np.random.default_rng(1)
scores = rng.beta(12, 2, 400)  # Dice of 400 images, with a tail of bad ones

sizes = [10, 25, 50, 100, 200, 400]
found = [segmeter.mean_interval(scores[:size]) for size in sizes]
for size, each in zip(sizes, found, strict=True):
    print(f"{size:>3} images: {each.mean:.3f} [{each.low:.3f}, {each.high:.3f}]")

figure, axes = plt.subplots(figsize=(6, 3))
middle = np.array([each.mean for each in found])
spread = np.array([[each.mean - each.low, each.high - each.mean] for each in found]).T
axes.errorbar(range(len(sizes)), middle, yerr=spread, fmt="o", capsize=4)
axes.axhline(12 / 14, color="0.6", linewidth=1, label="true mean")
axes.set(xticks=range(len(sizes)), xticklabels=sizes, xlabel="images", ylabel="mean Dice")
axes.legend(frameon=False)
figure.tight_layout()
plt.show()
