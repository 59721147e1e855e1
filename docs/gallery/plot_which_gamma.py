"""
Which gamma for the focal loss?
===============================

Gamma takes the weight from pixels that are already easy. At gamma 2 a pixel with a probability of 0.9 for its class
counts a hundredth of what it counts in cross-entropy, and one at 0.1 still counts four fifths.
"""

import matplotlib.pyplot as plt
import torch

import segmeter

probability = torch.linspace(0.01, 0.99, 99)
logits = torch.logit(probability)[:, None, None, None]
target = torch.ones(99, 1, 1, dtype=torch.int64)

figure, axes = plt.subplots(figsize=(6, 3))
for gamma in (0.0, 0.5, 1.0, 2.0, 5.0):
    loss = segmeter.focal_loss(logits, target, task="binary", gamma=gamma, reduction="none").flatten()
    axes.plot(probability, loss, label=f"gamma {gamma:g}")
    print(f"gamma {gamma:g}: loss {loss[9]:.3f} at 0.1, {loss[89]:.4f} at 0.9")
axes.set(xlabel="probability of the right class", ylabel="loss of the pixel", ylim=(0, 4))
axes.legend(frameon=False)
figure.tight_layout()
plt.show()
