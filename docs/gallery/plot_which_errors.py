"""
Which errors should I fix first?
================================

Three models with the same IoU. One draws its borders too wide, one breaks off the ends, one invents objects. The gain
says how much the IoU would rise if one type of error were mended.
"""

import matplotlib.pyplot as plt
import numpy as np

import segmeter

target = np.zeros((120, 120), np.uint8)
target[30:90, 30:90] = 1
wide = np.zeros_like(target)
wide[28:92, 28:92] = 1
cut = target.copy()
cut[30:90, 83:90] = 0
invented = target.copy()
invented[2:24, 2:24] = 1

types = ("boundary", "extent", "segment")
models = {"borders too wide": wide, "end cut off": cut, "object invented": invented}
figure, axes = plt.subplots(figsize=(6, 2.6))
for place, (name, labels) in enumerate(models.items()):
    pairs = [(f"case{number}", target, np.roll(labels, 0)) for number in range(5)]
    found = segmeter.evaluate(pairs, classes=["ground", "cell"], task="binary", measures=["error_types"]).summary
    shares = [found["measures"][f"{kind}_errors"]["cell"]["dataset"] for kind in types]
    gains = [found["measures"][f"{kind}_gain"]["cell"]["dataset"] for kind in types]
    best = types[int(np.argmax(gains))]
    print(f"{name:<17} IoU {found['per_class']['cell']['iou']:.3f}, mend the {best} errors: +{max(gains):.3f}")
    left = found["per_class"]["cell"]["iou"]
    axes.barh(place, left, color="0.85")
    for share, colour in zip(shares, ("tab:blue", "tab:orange", "tab:red"), strict=True):
        axes.barh(place, share, left=left, color=colour)
        left += share
axes.set(yticks=range(len(models)), yticklabels=models, xlabel="share of the union (grey is right)", xlim=(0.6, 1))
axes.legend(
    [plt.Rectangle((0, 0), 1, 1, color=c) for c in ("tab:blue", "tab:orange", "tab:red")],
    types,
    loc="upper left",
    fontsize=8,
)
axes.invert_yaxis()
figure.tight_layout()
plt.show()
