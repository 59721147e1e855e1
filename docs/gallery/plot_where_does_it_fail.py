"""
Where does it fail?
===================

The mean over all cases looks fine. Split by scanner, one of three scanners is much worse. Each slice is compared with
all other cases, and the p-value is adjusted for the number of slices.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

rng = np.random.default_rng(6)
target = np.zeros((64, 64), np.uint8)
target[16:48, 16:48] = 1


def predict(errors):
    """Return a prediction in which a share of the pixels is wrong."""
    wrong = rng.random(target.shape) < errors
    return np.where(wrong, 1 - target, target).astype(np.uint8)


errors = {"A": 0.02, "B": 0.06, "C": 0.02}
pairs = [(f"{scanner}-{number:02}", target, predict(errors[scanner])) for scanner in errors for number in range(15)]
config = segmeter.MetricsConfig(slice_by=("^(.)-",), bootstrap=2000)  # the letter before the dash is the scanner
found = segmeter.evaluate(pairs, classes=["background", "cell"], task="binary", metrics=config)
slices = found.summary["slices"]["by"]["^(.)-"]
print(found)

figure, axes = plt.subplots(figsize=(6, 2.4))
for place, (scanner, entry) in enumerate(slices.items()):
    score = entry["scores"]["iou/cell"]
    low, high = score["ci95"]
    print(f"scanner {scanner}: {score['value']:.3f}, to the rest {score['difference']:+.3f}, p {score['p_holm']:.3f}")
    axes.plot([low, high], [place, place], color="tab:blue", linewidth=4)
    axes.plot(score["value"], place, "o", color="black")
axes.axvline(found.summary["per_class"]["cell"]["iou"], color="0.6", linewidth=1)
axes.set(yticks=range(len(slices)), yticklabels=[f"scanner {name}" for name in slices], xlabel="IoU of the cells")
axes.invert_yaxis()
figure.tight_layout()
plt.show()
