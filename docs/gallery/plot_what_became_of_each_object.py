"""
What became of each object?
===========================

Panoptic quality says that something is wrong, and not what. The measure ``events`` names it: matched, split, merged,
missed or spurious. Merged cells ask for a better split, missed ones for another threshold.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

target = np.zeros((60, 120), np.uint8)
labels = np.zeros_like(target)
target[5:25, 5:25] = labels[6:25, 5:26] = 1  # matched
target[35:45, 5:40] = labels[35:45, 5:20] = labels[35:45, 24:40] = 1  # split
target[5:20, 50:62] = target[5:20, 64:76] = labels[4:21, 49:77] = 1  # merged
target[40:50, 60:70] = 1  # missed
labels[40:50, 95:105] = 1  # spurious

pairs = [(f"case{number}", target, labels) for number in range(5)]
found = segmeter.evaluate(pairs, classes=["ground", "cell"], task="binary", measures=["events", "instances"]).summary
events = ("matched", "split", "merged", "missed", "spurious")
numbers = [found["measures"][f"objects_{event}"]["cell"]["dataset"] / 5 for event in events]
print(f"PQ {found['measures']['pq']['cell']['dataset']:.3f}")
for event, number in zip(events, numbers, strict=True):
    print(f"{event:<9} {number:.0f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.4), width_ratios=(2, 1))
left.imshow(target + 2 * labels, cmap="viridis", interpolation="nearest")
left.set(xticks=[], yticks=[], title="target, prediction, both")
right.barh(events, numbers, color="0.6")
right.invert_yaxis()
right.set(xlabel="objects", xticks=range(3))
figure.tight_layout()
plt.show()
