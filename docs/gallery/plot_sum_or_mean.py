"""
Sum of pixels, or mean of cases?
================================

Model A is better on one huge lesion, B on nineteen small ones. Over the pixels of the data set A wins, and as a mean
of patients B does. Both numbers are right. Choose by what counts: volume, or patients.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

sizes = [100, *([12] * 19)]  # edges of square lesions, one per patient


def evaluate(huge, small):
    """Score a model that finds these shares of the huge lesion and of each small one."""
    pairs = []
    for number, size in enumerate(sizes):
        target = np.zeros((120, 120), np.uint8)
        target[10 : 10 + size, 10 : 10 + size] = 1
        labels = target.copy()
        labels[:, 10 + round(size * (huge if number == 0 else small)) :] = 0
        pairs.append((f"patient{number:02}", target, labels))
    return segmeter.evaluate(pairs, classes=["background", "lesion"], task="binary")


models = {"A": evaluate(0.95, 0.5), "B": evaluate(0.6, 0.85)}
scores = {}
for name, found in models.items():
    per_case = np.array(found.cases["iou_lesion"]).mean()
    scores[name] = found.summary["per_class"]["lesion"]["iou"], per_case
    print(f"model {name}: {scores[name][0]:.2f} over the data set, {per_case:.2f} as a mean of patients")

figure, axes = plt.subplots(figsize=(5, 2.8))
for place, (name, both) in enumerate(scores.items()):
    axes.bar(np.arange(2) + 0.35 * (place - 0.5), both, width=0.33, label=f"model {name}")
axes.set(xticks=[0, 1], xticklabels=["all pixels", "mean of patients"], ylabel="IoU of lesions", ylim=(0, 1.2))
axes.legend(frameon=False, ncols=2)
figure.tight_layout()
plt.show()
