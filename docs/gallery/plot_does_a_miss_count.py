"""
Does a missed object count?
===========================

A model misses up to three of ten objects. Tools that leave these cases out of the mean show no difference. Here a
miss counts as infinitely far away, or as a penalty that you set.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

target = np.zeros((40, 40), np.uint8)
target[15:25, 15:25] = 1
near, nothing = np.roll(target, 1, axis=1), np.zeros_like(target)
means = {}
for misses in range(4):
    pairs = [(f"case{number}", target, nothing if number < misses else near) for number in range(10)]
    for name, penalty in (("left out", "nan"), ("penalty: the diagonal", "diagonal"), ("infinite", "inf")):
        measures = [{"name": "surface", "penalty": penalty}]
        found = segmeter.evaluate(pairs, classes=["ground", "lesion"], task="binary", measures=measures).summary
        means.setdefault(name, []).append(float(found["measures"]["hd95"]["lesion"]["mean"]))
for name, values in means.items():
    print(f"{name:<22}", *(f"{value:5.1f}" for value in values))

figure, axes = plt.subplots(figsize=(6, 3))
for name in ("left out", "penalty: the diagonal"):
    axes.plot(range(4), means[name], "o-", label=name)
axes.annotate("infinite from the first miss on", (1.05, 3.5), ha="left", color="0.4")
axes.set(xlabel="missed objects of ten", ylabel="mean HD95 in pixels", xticks=range(4))
axes.legend(frameon=False)
figure.tight_layout()
plt.show()
