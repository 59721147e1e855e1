"""
Which threshold?
================

0.5 is a habit, not a law. Choose the threshold on the validation images, never on the test images. The best of many
thresholds looks better than it is, so its gain comes with the optimism of choosing and an interval. ``segmeter tune``
does the same for a checkpoint.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

import segmeter
from segmeter.evaluation.decisions.settings import count_settings, parse_over
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.summary.scoreboard import build_scoreboard
from segmeter.metrics.summary.tune import tune_boards

rng = np.random.default_rng(8)
spec = segmeter.ClassSpec(task="binary", names=("ground", "crack"), colours=((0, 0, 0), (255, 255, 255)))
settings = parse_over(["threshold=0.1:0.7:0.05"], spec)
rows = [[] for _ in settings.every]
for case in range(20):
    field = gaussian_filter(rng.normal(size=(96, 96)), 2.5)
    target = (field > 0.16).astype(np.uint8)
    probs = 1 / (1 + np.exp(-40 * (field - 0.18) - 1.5 * rng.normal(size=field.shape)))
    for kept, counts in zip(rows, count_settings(target, settings, spec, probs=probs[None]), strict=True):
        kept.append(CaseRow(case_id=f"{case:02}", height=96, width=96, counts=counts))

config = segmeter.MetricsConfig(bootstrap=2000)
found = tune_boards(
    [build_scoreboard(each, spec, config) for each in rows],
    [one.values for one in settings.every],
    by="iou/crack",
    usual=settings.usual,
    simplicity=[one.simplicity for one in settings.every],
    split="val",
)
best = found["settings"][found["chosen"]]
low, high = found["gain_ci95"]
print(f"best IoU {best['score']:.3f} at {best['values']['threshold']}")
print(
    f"gain over 0.5: {found['gain']:.3f}, {found['optimism']:.4f} of it by choosing; true gain {low:.3f} to {high:.3f}"
)

thresholds = [float(one["values"]["threshold"]) for one in found["settings"]]
figure, axes = plt.subplots(figsize=(6, 3))
axes.fill_between(thresholds, *zip(*(one["ci95"] for one in found["settings"]), strict=True), alpha=0.2)
axes.plot(thresholds, [one["score"] for one in found["settings"]], "o-")
axes.axvline(float(best["values"]["threshold"]), color="tab:red", linewidth=1)
axes.axvline(0.5, color="0.6", linewidth=1)
axes.set(xlabel="threshold", ylabel="IoU of crack")
figure.tight_layout()
plt.show()
