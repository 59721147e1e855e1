"""
Which labels are wrong?
=======================

Twenty cells, and a model that never saw their labels. Two labels are wrong: one cell is missing, one has a border that
is too wide. A label that a confident model contradicts is a suspect; `segmeter suspects` ranks them for a data set.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

from segmeter import ClassSpec
from segmeter.metrics.objects.suspects import find_suspects

rng = np.random.default_rng(2)
rows, columns = np.ogrid[:120, :150]
truth, labels = np.zeros((2, 120, 150), np.uint8)
for number, (top, left) in enumerate((15 + 30 * (i // 5), 15 + 30 * (i % 5)) for i in range(20)):
    radius = rng.uniform(7, 11)
    distance = np.hypot(rows - top, columns - left)
    truth[distance < radius] = 1
    if number != 7:  # the annotator overlooked this one
        labels[distance < radius + (4 if number == 13 else 0)] = 1

noise = gaussian_filter(rng.normal(size=truth.shape), 3)
probability = 1 / (1 + np.exp(-6 * (gaussian_filter(truth.astype(float), 1.5) - 0.5 + noise)))
spec = ClassSpec(task="binary", names=("background", "cell"), colours=((0, 0, 0), (255, 0, 0)))
found = sorted(find_suspects(labels, probability[None], spec), key=lambda one: -one.score)
for one in found[:3]:
    print(f"{one.kind} at line {one.top}, column {one.left}: score {one.score:.2f}")

figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), sharey=True)
axes[0].imshow(labels, cmap="gray")
axes[0].set(title="labels, and the first suspects")
axes[1].imshow(probability, cmap="gray")
axes[1].set(title="probabilities of the model")
for one, colour in zip(found[:3], ("tab:red", "tab:orange", "tab:blue"), strict=True):
    height, width = one.mask.shape
    for panel in axes:
        panel.add_patch(plt.Rectangle((one.left, one.top), width, height, fill=False, color=colour, linewidth=2))
for panel in axes:
    panel.set(xticks=[], yticks=[])
figure.tight_layout()
plt.show()
