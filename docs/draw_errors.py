"""Draw docs/images/errors.png: what became of each object, and of which errors the union consists."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from skimage.draw import disk

mpl.use("agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from scipy import ndimage

from segmeter.metrics.objects.matching import INSTANCE_EVENTS, TARGET_EVENTS, choose_pairs, find_events, find_overlaps
from segmeter.metrics.pixels.error_types import TYPES, error_types

SHAPE = (120, 180)
TARGET = [(25, 25, 16), (25, 75, 16), (25, 130, 12), (25, 157, 10), (85, 30, 20), (88, 90, 11), (60, 165, 9)]
COLOURS = {
    "matched": "#009e73",
    "split": "#e69f00",
    "part": "#e69f00",
    "merged": "#cc79a7",
    "merging": "#cc79a7",
    "missed": "#d55e00",
    "spurious": "#0072b2",
}


def draw_scene() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Draw a target of seven cells, and a prediction with one error of each kind."""
    target, labels = np.zeros(SHAPE, np.uint8), np.zeros(SHAPE, np.uint8)
    for row, column, radius in TARGET:
        target[disk((row, column), radius, shape=SHAPE)] = 1
    for row, column, radius in [(27, 27, 16), (25, 75, 19), (85, 30, 20), (88, 92, 12), (100, 150, 8)]:
        labels[disk((row, column), radius, shape=SHAPE)] = 1
    labels[10:40, 118:168] = 1  # the third and the fourth cell in one
    labels[:, 28:33] *= (np.arange(SHAPE[0]) < 60)[:, None].astype(np.uint8)  # the fifth one cut in two
    return target, labels


def draw(path: Path) -> None:
    """Write the figure."""
    target, labels = draw_scene()
    ours, theirs = (ndimage.label(mask, np.ones((3, 3)))[0] for mask in (target, labels))
    overlaps = find_overlaps(ours, theirs)
    events = find_events(overlaps, choose_pairs(overlaps, 0.5))
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.9), layout="constrained", width_ratios=[3, 3, 1])
    _objects(axes[0], ours, [TARGET_EVENTS[k] for k in events.targets], "objects of the target")
    _objects(axes[1], theirs, [INSTANCE_EVENTS[k] for k in events.instances], "predicted objects")
    _shares(axes[2], target, labels)
    figure.savefig(path, dpi=90, metadata={"Software": None})


def _objects(axes: Axes, numbered: NDArray[Any], names: list[str], title: str) -> None:
    picture = np.ones((*numbered.shape, 3))
    for number, name in enumerate(names, 1):
        picture[numbered == number] = mpl.colors.to_rgb(COLOURS[name])
    axes.imshow(picture, interpolation="nearest")
    axes.set(title=title, xticks=[], yticks=[])
    handles = [Patch(color=COLOURS[name], label=name) for name in dict.fromkeys(names)]
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.02)}
    axes.legend(handles=handles, ncols=4, frameon=False, columnspacing=1, handlelength=1, **place)


def _shares(axes: Axes, target: NDArray[np.uint8], labels: NDArray[np.uint8]) -> None:
    found = error_types(target, labels, num_classes=2)
    shares, bottom = found.share[1], 0.0
    parts = {"IoU": 1 - shares.sum(), **dict(zip(TYPES, shares, strict=True))}
    for (name, share), colour in zip(parts.items(), ("#009e73", "#f0e442", "#e69f00", "#d55e00"), strict=True):
        axes.bar(0, share, bottom=bottom, color=colour, width=0.6)
        axes.text(0.38, bottom + share / 2, f"{name} {share:.2f}", va="center")
        bottom += share
    axes.set(title="union of the cells", xlim=(-0.4, 1.1), ylim=(0, 1), xticks=[])
    axes.spines[["top", "right", "bottom"]].set_visible(False)


if __name__ == "__main__":
    draw(Path(__file__).parent / "images" / "errors.png")
