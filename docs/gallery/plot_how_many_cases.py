"""
How many cases do I need?
=========================

You hope that a new model gains 0.01 of Dice. A pilot of 30 cases tells how much the difference varies from case to
case. That decides how many cases find such a gain in 80 % of studies. The pilot itself is uncertain: the number has an
interval, and it is wide. ``segmeter plan runs=[A,B] detect=0.01`` does the same for two finished runs.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter
from segmeter.metrics.summary.needed_cases import Aims, plan_published

rng = np.random.default_rng(5)
pilot = rng.normal(0.01, 0.05, 30)  # Dice of the new model minus the old one, per case
aims = Aims(detect=0.01, power=0.8)
plan = plan_published(mean=pilot.mean(), sd=pilot.std(ddof=1), cases=30, config=segmeter.MetricsConfig(), aims=aims)
row = plan["rows"][0]
needed, (low, high) = row["power"]["units"], row["power"]["units_ci95"]
print(f"to tell a gain of 0.01 in 80 % of studies: {needed} cases, 95 % interval {low} to {high}")

curve = [point for point in row["curve"] if point["units"] >= 10]
figure, axes = plt.subplots(figsize=(6, 3))
axes.plot([point["units"] for point in curve], [point["power"] for point in curve])
axes.axhline(0.8, color="0.6", linewidth=1)
axes.axvspan(low, high, color="tab:red", alpha=0.15)
axes.axvline(needed, color="tab:red", linewidth=1)
axes.text(needed + 5, 0.1, f"{needed} cases", color="tab:red")
axes.set(xlabel="test cases", ylabel="power", xlim=(0, 500), ylim=(0, 1))
figure.tight_layout()
plt.show()
