"""
Are small objects found?
========================

A model finds every large object and half of the small ones. The IoU over pixels hardly drops, as small objects have
few pixels. Recall by size shows it.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

rng = np.random.default_rng(10)
pairs = []
for number in range(8):
    target = np.zeros((200, 200), np.uint8)
    labels = np.zeros_like(target)
    for row in range(4):
        for column, size in enumerate((6, 6, 20, 45)):
            place = np.s_[50 * row + 2 : 50 * row + 2 + size, 50 * column + 2 : 50 * column + 2 + size]
            target[place] = 1
            labels[place] = size > 10 or rng.random() < 0.5
    pairs.append((f"case{number}", target, labels))

measures = [{"name": "sizes", "limits": [100, 1000]}]
found = segmeter.evaluate(pairs, classes=["ground", "cell"], task="binary", measures=measures).summary
sizes = ("small", "medium", "large")
recall = [found["measures"][f"object_recall@{size}"]["cell"]["dataset"] for size in sizes]
print(f"IoU of all pixels {found['per_class']['cell']['iou']:.3f}")
for size, value in zip(sizes, recall, strict=True):
    print(f"recall of {size:<6} objects {value:.2f}")

figure, axes = plt.subplots(figsize=(5, 2.6))
axes.bar(sizes, recall, color=["tab:red", "0.7", "0.7"])
axes.axhline(found["per_class"]["cell"]["iou"], color="black", linewidth=1, label="IoU of all pixels")
axes.set(ylabel="recall of objects", ylim=(0, 1.05))
axes.legend(frameon=False, loc="lower right")
figure.tight_layout()
plt.show()
