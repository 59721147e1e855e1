"""Draws where each kind of metric misleads, with the metrics computed from the masks that are drawn."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

import segmeter

MARK = "<!-- pitfalls: inserted by make docs -->"  # in docs/metric-list.md
FOLDER = "pitfalls"
SIDE = 40
MEASURES = [
    {"name": "surface", "tolerances": [3]},
    {"name": "boundary", "width": 4},
    *("cldice", "instances", "average_precision", "aji", "partition", "topology"),
]
ROWS, COLUMNS = np.mgrid[:SIDE, :SIDE]
COLOURS = np.array([[255, 255, 255], [213, 94, 0], [0, 114, 178], [150, 150, 150]], np.uint8)  # by target + 2 * mask
Array = NDArray[np.generic]


@dataclass(frozen=True)
class Pitfall:
    """A metric, two pictures as (title, target, prediction), how their values compare, and the lesson."""

    metric: str
    beside: str  # another metric, for the contrast
    compare: Callable[[float | None, float | None], bool]
    left: tuple[str, Array, Array]
    right: tuple[str, Array, Array]
    lesson: str


def disc(row: float, column: float, radius: float) -> Array:
    """A filled circle."""
    return np.hypot(ROWS - row, COLUMNS - column) <= radius


def box(top: int, left: int, height: int, width: int) -> Array:
    """A filled rectangle."""
    mask = np.zeros((SIDE, SIDE), bool)
    mask[top : top + height, left : left + width] = True
    return mask


NOTHING, TINY, DOT, BIG, LINE = box(0, 0, 0, 0), box(20, 20, 1, 1), disc(20, 20, 4), disc(20, 20, 14), box(19, 2, 2, 36)
CELLS = disc(10, 10, 5) | disc(10, 29, 5) | disc(29, 20, 5)
TWO = disc(10, 10, 5) | disc(29, 10, 5)
PAIR = box(10, 6, 18, 13) | box(10, 21, 18, 13)
CROWD = box(5, 4, 18, 30) | box(30, 4, 3, 3) | box(30, 14, 3, 3) | box(30, 24, 3, 3)
PITFALLS = [
    Pitfall(
        "iou", "nsd@3", operator.gt,
        ("a disc, moved by a pixel", BIG, np.roll(BIG, 1, 0)), ("a line, moved by a pixel", LINE, np.roll(LINE, 1, 0)),
        "Both predictions are off by one pixel. IoU and Dice forgive this for a large object and not for a thin one.",
    ),
    Pitfall(
        "pixel_accuracy", "iou", operator.gt,
        ("the object is missed", DOT, NOTHING), ("found, with a wide border", DOT, disc(20, 20, 6)),
        "Background fills most of the image, so predicting nothing has the higher pixel accuracy.",
    ),
    Pitfall(
        "iou", "iou", lambda left, right: left is None and right == 0,
        ("nothing there, nothing found", NOTHING, NOTHING), ("nothing there, one pixel found", NOTHING, TINY),
        "An empty case has no value and is left out of the mean. A single pixel turns it into a case with an IoU of 0. "
        "Look at the number of cases beside each mean.",
    ),
    Pitfall(
        "volumetric_similarity", "iou", operator.gt,
        ("in another place", disc(11, 11, 7), disc(28, 28, 7)),
        ("in its place, a little small", disc(11, 11, 7), disc(11, 11, 6)),
        "Only the volumes are compared. Where the objects lie does not matter.",
    ),
    Pitfall(
        "hd", "hd95", operator.gt,
        ("right, and one stray pixel", disc(25, 25, 10), disc(25, 25, 10) | box(1, 1, 1, 1)),
        ("half of it is missing", disc(25, 25, 10), disc(25, 25, 10) & (COLUMNS > 25)),
        "One stray pixel decides the Hausdorff distance. Its 95th percentile ignores that pixel.",
    ),
    Pitfall(
        "hd95", "pq", operator.lt,
        ("a lesion is missed", BIG | box(1, 1, 1, 2), BIG), ("a border is off by two", BIG, disc(20, 20, 16)),
        "The 95th percentile also ignores a whole lesion if less than 5 % of the surface belongs to it.",
    ),
    Pitfall(
        "nsd@3", "iou", operator.eq,
        ("a small object, moved by 3", DOT, np.roll(DOT, 3, 0)), ("a large one, moved by 3", BIG, np.roll(BIG, 3, 0)),
        "Within the tolerance every error is free. For an object as small as the tolerance, little is left to measure.",
    ),
    Pitfall(
        "boundary_iou", "iou", operator.lt,
        ("a small object, moved by a pixel", disc(20, 20, 5), disc(21, 20, 5)),
        ("a large one, moved by a pixel", BIG, np.roll(BIG, 1, 0)),
        "A band of 4 pixels fills most of a small object, so its boundary IoU is just its IoU. Only for the large "
        "object is it the stricter of the two.",
    ),
    Pitfall(
        "cldice", "dice", operator.gt,
        ("five times too wide", box(20, 4, 1, 32), box(18, 4, 5, 32)),
        ("right, with a gap", box(20, 4, 1, 32), box(20, 4, 1, 13) | box(20, 22, 1, 14)),
        "Centreline Dice sees whether a vessel is connected, not how wide it is. Report Dice or a distance beside it.",
    ),
    Pitfall(
        "pq", "iou", operator.lt,
        ("a bridge merges two cells", PAIR, PAIR | box(18, 19, 1, 2)), ("a cell is missed", PAIR, box(10, 6, 18, 13)),
        "A bridge of two pixels merges two objects. Neither matches any more: PQ is 0, and the IoU hardly moves.",
    ),
    Pitfall(
        "ap", "iou", operator.lt,
        ("all found, borders off by one", CELLS, np.roll(CELLS, (1, 1), (0, 1))),
        ("one missed, the others right", CELLS, CELLS & (ROWS < 20)),
        "Averaged over thresholds up to 0.95, `ap` judges small objects mostly by their borders. See `ap@0.5` too.",
    ),
    Pitfall(
        "aji", "iou", operator.lt,
        ("a cell in two halves", box(10, 5, 20, 30), box(10, 5, 20, 30) & (COLUMNS != 20)),
        ("only one of the halves", box(10, 5, 20, 30), box(10, 5, 20, 15)),
        "AJI counts the second half of a split as missed and as false alarm. Leaving it out scores higher.",
    ),
    Pitfall(
        "voi", "pq", operator.lt,
        ("three small cells are missed", CROWD, box(5, 4, 18, 30)),
        ("the large cell is split", CROWD, CROWD & ~box(5, 19, 18, 1)),
        "Variation of information counts pixels, not objects. Three missed cells weigh less than one split.",
    ),
    Pitfall(
        "betti0_error", "pq", operator.lt,
        ("one missed, one made up", TWO, disc(10, 10, 5) | disc(29, 30, 5)),
        ("right, and a speck", TWO, TWO | box(30, 34, 1, 1)),
        "Only the numbers of objects are compared, so a false alarm cancels a miss.",
    ),
    Pitfall(
        "ece", "brier", operator.lt,
        ("the same everywhere", disc(20, 20, 9), np.full((SIDE, SIDE), disc(20, 20, 9).mean())),
        ("sharp, and too unsure", disc(20, 20, 9), np.where(disc(21, 20, 9), 0.85, 0.15)),
        "A model that gives every pixel the frequency of the class is calibrated perfectly, and useless. Read the "
        "Brier score beside it.",
    ),
]  # fmt: skip


def pitfalls(docs: Path) -> str:
    """Draw every pitfall into `docs`, and write the section that shows them, as Markdown.

    Raises
    ------
    AssertionError
        The two values do not compare as the lesson says.
    """
    (docs / FOLDER).mkdir(exist_ok=True)
    lines = []
    for number, pitfall in enumerate(PITFALLS):
        path, names = f"{FOLDER}/{number}_{pitfall.metric}.png", dict.fromkeys((pitfall.metric, pitfall.beside))
        sides = {picture[0]: measure(*picture[1:], names) for picture in (pitfall.left, pitfall.right)}
        left, right = (values[pitfall.metric] for values in sides.values())
        assert pitfall.compare(left, right), (pitfall.metric, left, right)
        captions = [f"{title}\n{', '.join(map(_show, values.items()))}" for title, values in sides.items()]
        draw(docs / path, [pitfall.left, pitfall.right], captions)
        alternative = "; ".join(caption.replace("\n", ": ") for caption in captions)
        lines += [f"### `{pitfall.metric}`: {pitfall.left[0]}", "", pitfall.lesson, "", f"![{alternative}]({path})", ""]
    return "\n".join(lines)


def measure(target: Array, prediction: Array, names: dict[str, None]) -> dict[str, float | None]:
    """The metrics of one pair of masks, or of one mask and its probabilities."""
    if prediction.dtype != bool:
        found = segmeter.calibration(target.astype(int), prediction, num_classes=2, task="binary")
        return {"ece": found.top_label.ece, "brier": found.brier}
    target, labels = target.astype(np.uint8), prediction.astype(np.uint8)
    classes = ["ground", "object"]
    row = segmeter.evaluate(
        [("case", target, labels)], classes=classes, task="binary", measures=MEASURES
    ).cases.to_pydict()
    scores = segmeter.overlap_scores(segmeter.confusion_matrix(target, labels, num_classes=2))
    row["volumetric_similarity"] = [scores.volumetric_similarity[1]]
    return {
        name: next(row[key][0] for key in (f"extra_{name}/object", f"{name}_object", name) if key in row)
        for name in names
    }


def draw(path: Path, pictures: list[tuple[str, Array, Array]], captions: list[str]) -> None:
    """Write two masks side by side: grey is right, orange is missed, blue is a false alarm."""
    figure, axes = plt.subplots(1, 2, figsize=(6.4, 3.6), layout="constrained")
    for axis, (_, target, prediction), caption in zip(axes, pictures, captions, strict=True):
        if prediction.dtype == bool:
            axis.imshow(COLOURS[target + 2 * prediction])
        else:
            axis.imshow(prediction, cmap="Greys", vmin=0, vmax=1)
            axis.contour(target, [0.5], colors=["#d55e00"])
        axis.set(xticks=[], yticks=[])
        axis.set_title(caption, fontsize=10)
    figure.savefig(path, dpi=120, bbox_inches="tight", pad_inches=0.1)
    plt.close(figure)


def _show(value: tuple[str, float | None]) -> str:
    name, number = value
    return f"{name} {'undefined' if number is None else f'{round(number, 3):g}'}"
