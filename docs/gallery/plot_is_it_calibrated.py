"""
Can its probabilities be trusted?
=================================

A network that says 0.9 should be right in nine of ten pixels. The reliability curve shows whether it is, and the
expected calibration error (ECE) sums it up.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

rng = np.random.default_rng(4)
logits = rng.normal(0, 2, (1, 200, 200))
target = (rng.random((200, 200)) < 1 / (1 + np.exp(-logits[0]))).astype(np.uint8)

figure, axes = plt.subplots(figsize=(4, 3.6))
axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
for name, sharper in (("calibrated", 1.0), ("overconfident", 2.5)):
    probs = (1 / (1 + np.exp(-sharper * logits))).astype(np.float32)
    found = segmeter.calibration(target, probs, num_classes=2, task="binary").classwise[0]
    print(f"{name:<13} ECE {found.ece:.3f}")
    axes.plot(found.confidence, found.accuracy, "o-", markersize=4, label=f"{name}, ECE {found.ece:.3f}")
axes.set(xlabel="what the network says", ylabel="how often it is right")
axes.legend(frameon=False)
figure.tight_layout()
plt.show()
