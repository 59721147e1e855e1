"""
Was it the seed or the method?
==============================

One training of each method says B is better, and the interval over the test cases excludes zero. But that interval
knows nothing of the seed. Train five seeds of each, and the difference is no larger than the spread between seeds.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

rng = np.random.default_rng(12)
hard = rng.normal(0.80, 0.06, 60)  # how hard each test case is
runs = {name: [hard + rng.normal(0, 0.015) + rng.normal(0, 0.02, 60) for _ in range(5)] for name in "AB"}
means = {name: np.array([run.mean() for run in seeds]) for name, seeds in runs.items()}

first = int(np.argmin(means["A"])), int(np.argmax(means["B"]))  # the pair that got published
once = segmeter.mean_interval(runs["B"][first[1]] - runs["A"][first[0]])
print(f"one seed each: B - A {once.mean:+.3f} [{once.low:+.3f}, {once.high:+.3f}]")
print(f"five seeds: A {means['A'].mean():.3f}, B {means['B'].mean():.3f}, spread of seeds {means['A'].std(ddof=1):.3f}")

figure, axes = plt.subplots(figsize=(6, 2.2))
for place, values in enumerate(means.values()):
    axes.plot(values, np.full(5, place), "o", color="tab:blue", alpha=0.6)
    axes.plot(values.mean(), place, "|", color="black", markersize=20)
axes.set(yticks=[0, 1], yticklabels=["method A", "method B"], ylim=(-0.6, 1.6), xlabel="mean Dice, one dot per seed")
figure.tight_layout()
plt.show()
