"""
Which tolerance for surface Dice?
=================================

Surface Dice is the share of both surfaces that lies within a tolerance. Take the tolerance from how far two experts
differ. Below that it measures noise, and far above it every model is perfect.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

rng = np.random.default_rng(9)
angles = np.linspace(0, 2 * np.pi, 361)[:-1]


def drawn(wobble):
    """Draw a disc whose outline wobbles by about so many pixels, as one person draws it."""
    rows, columns = np.ogrid[-60:61, -60:61]
    noise = np.convolve(np.tile(rng.normal(0, 1, 360), 3), np.ones(25) / 5, mode="same")[360:720]
    radius = np.interp(np.arctan2(rows, columns) % (2 * np.pi), angles, 40 + wobble * noise, period=2 * np.pi)
    return np.hypot(rows, columns) < radius


expert, other_expert, model = drawn(0.8), drawn(0.8), drawn(2.5)
tolerances = np.arange(0.0, 8.5, 0.5)
figure, axes = plt.subplots(figsize=(6, 3))
for name, labels in (("another expert", other_expert), ("the model", model)):
    nsd = segmeter.surface_metrics(expert, labels, spacing=(1.0, 1.0), tolerances=tuple(tolerances)).nsd
    axes.plot(tolerances, nsd, "o-", markersize=3, label=name)
    print(f"{name:<15} at 1: {nsd[2]:.2f}, at 2: {nsd[4]:.2f}, at 5: {nsd[10]:.2f}")
axes.set(xlabel="tolerance in pixels", ylabel="surface Dice", ylim=(0, 1.02))
axes.legend(frameon=False)
figure.tight_layout()
plt.show()
