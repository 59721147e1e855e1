"""
Which threshold?
================

0.5 is a habit, not a law. On unbalanced data a network's best F1 is often at another threshold. Choose it on the
validation images, never on the test images.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

rng = np.random.default_rng(8)
target = (rng.random((300, 300)) < 0.03).astype(np.uint8)
logits = rng.normal(-3.0 + 2.2 * target, 1.0)
probs = (1 / (1 + np.exp(-logits))).astype(np.float32)[None]

curve = segmeter.calibration(target, probs, num_classes=2, task="binary").sweeps[0]
f1 = 2 * curve.precision * curve.recall / np.maximum(curve.precision + curve.recall, 1e-12)
at_half = f1[np.argmin(np.abs(curve.thresholds - 0.5))]
print(f"F1 at 0.5: {at_half:.3f}")
print(f"best F1: {curve.best_f1:.3f} at {curve.best_threshold:.2f}")

figure, axes = plt.subplots(figsize=(6, 3))
axes.plot(curve.thresholds, curve.precision, label="precision")
axes.plot(curve.thresholds, curve.recall, label="recall")
axes.plot(curve.thresholds, f1, label="F1", linewidth=2)
axes.axvline(curve.best_threshold, color="0.6", linewidth=1)
axes.set(xlabel="threshold", xlim=(0, 1), ylim=(0, 1))
axes.legend(frameon=False)
figure.tight_layout()
plt.show()
