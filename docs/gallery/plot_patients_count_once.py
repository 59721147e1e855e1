"""
Do 200 slices count as 200?
===========================

Slices of one patient resemble each other. An interval that takes them as independent is far too narrow. Give each
slice its patient, and the interval says what 10 patients can say.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

rng = np.random.default_rng(3)
patients = np.repeat(np.arange(10), 20)
scores = np.clip(0.8 + rng.normal(0, 0.06, 10)[patients] + rng.normal(0, 0.02, 200), 0, 1)

naive = segmeter.mean_interval(scores)
honest = segmeter.mean_interval(scores, clusters=[f"patient {number}" for number in patients])
found = {"200 slices taken\nas independent": naive, "10 patients": honest}
for name, each in found.items():
    print(f"{name.replace(chr(10), ' '):<30} {each.mean:.3f} [{each.low:.3f}, {each.high:.3f}]")

figure, axes = plt.subplots(figsize=(6, 2.6))
axes.scatter(scores, rng.uniform(1.7, 2.3, 200), s=4, color="0.6")
for place, each in enumerate(found.values()):
    axes.plot([each.low, each.high], [place, place], color="tab:blue", linewidth=4)
    axes.plot(each.mean, place, "o", color="black")
axes.set(yticks=[0, 1, 2], yticklabels=[*found, "slices"], xlabel="Dice")
figure.tight_layout()
plt.show()
