"""
Is it good enough to merge?
===========================

The rule is "at most 0.01 worse than the base". It is met when the whole interval is on the right side, violated when
all of it is on the wrong side, and open in between. Few cases leave it open.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

rng = np.random.default_rng(7)
spec = segmeter.ClassSpec(task="binary", names=("ground", "cell"), colours=((0, 0, 0), (255, 255, 255)))


def run(missed):
    """One row per case: how many of a cell's 100 pixels are missed."""
    tables = [np.array([[400, 0], [lost, 100 - lost]]) for lost in missed]
    return [
        segmeter.CaseRow(case_id=f"{number:03}", height=20, width=25, counts=table, target_crc32=number)
        for number, table in enumerate(tables)
    ]


outcomes = {}
for name, cases, extra in (("as good", 100, 0), ("much worse", 100, 6), ("12 cases", 12, 1)):
    missed = rng.integers(5, 30, cases)
    new = np.clip(missed + extra + rng.integers(-3, 4, cases), 0, 100)
    config = segmeter.MetricsConfig(bootstrap=2000)
    found = segmeter.compare({"base": run(missed), "new": run(new)}, spec, config, require=["iou/cell >= base - 0.01"])
    outcomes[name] = found["gate"]["requirements"][0]
    print(f"{name:<11} {outcomes[name]['outcome']}")

colours = {"pass": "tab:green", "regression": "tab:red", "unknown": "0.5"}
figure, axes = plt.subplots(figsize=(6, 2.4))
for place, each in enumerate(outcomes.values()):
    axes.plot(each["margin_ci95"], [place, place], linewidth=5, color=colours[each["outcome"]])
    axes.plot(each["margin"], place, "o", color="black")
axes.axvline(0, color="black", linewidth=1)
labels = [f"{name}: {each['outcome']}" for name, each in outcomes.items()]
axes.set(yticks=range(3), yticklabels=labels, xlabel="distance to the bound (right of 0 is good enough)")
axes.invert_yaxis()
figure.tight_layout()
plt.show()
