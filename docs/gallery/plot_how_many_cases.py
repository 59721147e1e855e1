"""
How many cases do I need?
=========================

You hope that a new model gains 0.01 of Dice. The interval of the paired difference shrinks with the square root of
the number of cases. A pilot of 30 cases therefore tells how many the real test needs at least. With that number the
interval reaches as far as the gain, and half of the tests see it. Take twice as many to see it nearly always.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

rng = np.random.default_rng(5)
pilot = rng.normal(0.01, 0.05, 30)  # Dice of the new model minus the old one, per case
found = segmeter.mean_interval(pilot)
reach = (found.high - found.low) / 2
needed = int(np.ceil(30 * (reach / 0.01) ** 2))
print(f"pilot: {found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]")
print(f"to tell a gain of 0.01 from none: about {needed} cases")

cases = np.arange(10, 400)
figure, axes = plt.subplots(figsize=(6, 3))
axes.plot(cases, reach * np.sqrt(30 / cases))
axes.axhline(0.01, color="0.6", linewidth=1)
axes.axvline(needed, color="tab:red", linewidth=1)
axes.text(needed + 5, 0.025, f"{needed} cases", color="tab:red")
axes.set(xlabel="test cases", ylabel="half of the interval's width", ylim=(0, None))
figure.tight_layout()
plt.show()
