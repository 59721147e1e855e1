"""
Can I compare somebody else's model?
====================================

Yes: any function from images to labels or logits can be registered, and files of other tools are read as they are. Here
two functions find dark cells in the same 30 noisy images. The second one smooths the image first.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

import segmeter
from segmeter.models import register_model

CARD = {"classes": ["background", "cell"], "output": {"kind": "labels"}, "input": {"channels": 1}}


@register_model("threshold", **CARD)
def threshold(images):
    """Call every dark pixel a cell."""
    return (images[:, 0] < 110).int()


@register_model("smoothed", **CARD)
def smoothed(images):
    """Average 5 x 5 pixels first."""
    mean = torch.nn.functional.avg_pool2d(images.float(), 5, stride=1, padding=2, count_include_pad=False)
    return (mean[:, 0] < 110).int()


rng = np.random.default_rng(0)
rows, columns = np.ogrid[:96, :96]
targets = [(np.hypot(rows - 48, columns - 48) < radius).astype(np.uint8) for radius in rng.uniform(10, 40, 30)]
images = [(150 - 80 * target + rng.normal(0, 40, target.shape)).clip(0, 255).astype(np.uint8) for target in targets]

results = {}
for name in ("threshold", "smoothed"):
    model = segmeter.load(name)
    pairs = [
        (f"image{i:02}", target, model(image)) for i, (target, image) in enumerate(zip(targets, images, strict=True))
    ]
    results[name] = segmeter.evaluate(pairs, classes=["background", "cell"], task="multiclass")

iou = {name: np.array(each.cases["iou_cell"]) for name, each in results.items()}
change = segmeter.mean_interval(iou["smoothed"] - iou["threshold"])
print(f"smoothed - threshold: {change.mean:+.3f}, 95 % interval {change.low:+.3f} to {change.high:+.3f}")

figure, axes = plt.subplots(1, 3, figsize=(9, 3))
axes[0].imshow(images[0], cmap="gray")
axes[0].set_title("image")
for panel, name in zip(axes[1:], results, strict=True):
    panel.imshow(segmeter.load(name)(images[0]), cmap="gray")
    panel.set_title(f"{name}: IoU {iou[name][0]:.2f}")
for panel in axes:
    panel.axis("off")
figure.tight_layout()
plt.show()
