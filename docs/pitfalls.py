"""Draws where each kind of metric misleads, with the metrics computed from the masks that are drawn."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

import segmeter
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.scores import find_direction

QUESTION = "Would you have scored these predictions like that?"
LEGENDS = {
    True: "Grey is right, orange is missed, blue is a false alarm.",
    False: "Dark is probable, and the orange line is the object's border.",
}
SIDE = 40
MEASURES = [
    {"name": "surface", "tolerances": [3], "surface": "both"},
    {"name": "boundary", "width": 4},
    {"name": "instances", "distances": True},
    *("cldice", "average_precision", "aji", "iiou", "partition", "topology", "events", "sizes", "lesions"),
    "error_types",
]
ROWS, COLUMNS = np.mgrid[:SIDE, :SIDE]
COLOURS = np.array([[255, 255, 255], [213, 94, 0], [0, 114, 178], [150, 150, 150]], np.uint8)  # by target + 2 * mask
Array = NDArray[np.generic]


@dataclass(frozen=True)
class Pitfall:
    """Metrics, two pictures as (title, target, prediction), how their values compare, and the lesson."""

    metric: str  # and others that it misleads too
    beside: str  # another metric, for the contrast
    compare: Callable[[float | None, float | None], bool]
    left: tuple[str, Array, Array]
    right: tuple[str, Array, Array]
    lesson: str

    @property
    def metrics(self) -> list[str]:
        """The metrics that mislead here."""
        return self.metric.split()

    def misleads(self, name: str, left: float | None, right: float | None) -> bool:
        """Tell whether the values of a metric compare as the lesson says, or the other way round if lower is better."""
        turned = (find_direction(name) == "lower") != (find_direction(self.metrics[0]) == "lower")
        return self.compare(right, left) if turned else self.compare(left, right)


def disc(row: float, column: float, radius: float) -> Array:
    """Draw a filled circle."""
    return np.hypot(ROWS - row, COLUMNS - column) <= radius


def box(top: int, left: int, height: int, width: int) -> Array:
    """Draw a filled rectangle."""
    mask = np.zeros((SIDE, SIDE), bool)
    mask[top : top + height, left : left + width] = True
    return mask


NOTHING, TINY, DOT, BIG, LINE = box(0, 0, 0, 0), box(20, 20, 1, 1), disc(20, 20, 4), disc(20, 20, 14), box(19, 2, 2, 36)
CELLS = disc(10, 10, 5) | disc(10, 29, 5) | disc(29, 20, 5)
TWO = disc(10, 10, 5) | disc(29, 10, 5)
PAIR = box(10, 6, 18, 13) | box(10, 21, 18, 13)
SMALL = box(0, 0, 3, 3) | box(0, 37, 3, 3) | box(37, 37, 3, 3)
CROWD = box(5, 4, 18, 30) | box(30, 4, 3, 3) | box(30, 14, 3, 3) | box(30, 24, 3, 3)
PITFALLS = [
    Pitfall(
        "iou dice mean_iou mean_dice kappa mcc", "nsd@3", operator.gt,
        ("a disc, moved by a pixel", BIG, np.roll(BIG, 1, 0)), ("a line, moved by a pixel", LINE, np.roll(LINE, 1, 0)),
        "Both predictions are off by one pixel. Overlap forgives this for a large object and not for a thin one.",
    ),
    Pitfall(
        "pixel_accuracy specificity frequency_weighted_iou", "iou", operator.gt,
        ("the object is missed", DOT, NOTHING), ("found, with a wide border", DOT, disc(20, 20, 7)),
        "Background fills most of the image, and decides the value. Predicting nothing scores higher.",
    ),
    Pitfall(
        "iou", "iou", lambda left, right: left is None and right == 0,
        ("nothing there, nothing found", NOTHING, NOTHING), ("nothing there, one pixel found", NOTHING, TINY),
        "An empty case has no value and is left out of the mean. A single pixel turns it into a case with an IoU of 0. "
        "Look at the number of cases beside each mean.",
    ),
    Pitfall(
        "volumetric_similarity relative_volume_difference", "iou", operator.gt,
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
        "hd95 hd95_pooled assd masd", "pq", operator.lt,
        ("a lesion is missed", BIG | box(1, 1, 1, 2), BIG), ("a border is off by two", BIG, disc(20, 20, 16)),
        "The 95th percentile also ignores a whole lesion if less than 5 % of the surface belongs to it. A mean hardly "
        "changes.",
    ),
    Pitfall(
        "nsd@3 nsd_mean@3", "iou", operator.eq,
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
        "pq rq tp object_f1@small object_recall@small object_fn@small objects_matched", "iou", operator.lt,
        ("a bridge merges two cells", PAIR, PAIR | box(18, 19, 1, 2)), ("a cell is missed", PAIR, box(10, 6, 18, 13)),
        "A bridge of two pixels merges two objects. Neither matches any more, and the IoU hardly moves.",
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
        "voi are", "pq", operator.lt,
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
        "ece mce classwise_ece", "brier", operator.lt,
        ("the same everywhere", disc(20, 20, 9), np.full((SIDE, SIDE), disc(20, 20, 9).mean())),
        ("sharp, and too unsure", disc(20, 20, 9), np.where(disc(21, 20, 9), 0.85, 0.15)),
        "A model that gives every pixel the frequency of the class is calibrated perfectly, and useless. Read the "
        "Brier score beside it.",
    ),
    Pitfall(
        "precision", "recall", operator.gt,
        ("a single pixel of it is found", BIG, TINY), ("found, with a wide border", BIG, disc(20, 20, 16)),
        "Only predicted pixels count. Predict little, and all of it is right. Read the recall beside it.",
    ),
    Pitfall(
        "recall balanced_accuracy", "iou", operator.gt,
        ("found, with a wide border", DOT, disc(20, 20, 6)), ("found, a little small", DOT, disc(20, 20, 3)),
        "A wide border finds every pixel of the object, and its false alarms cost little or nothing.",
    ),
    Pitfall(
        "sq object_dice object_masd", "rq", operator.gt,
        ("two are missed, one is right", CELLS, disc(29, 20, 5)),
        ("all found, borders off by one", CELLS, np.roll(CELLS, (1, 1), (0, 1))),
        "Only matches count here. An object that was missed lowers no mean over the matches.",
    ),
    Pitfall(
        "iiou", "pq", operator.gt,
        ("a bridge merges two cells", PAIR, PAIR | box(18, 19, 1, 2)), ("a cell is missed", PAIR, box(10, 6, 18, 13)),
        "Objects weigh the same here, but their pixels are counted. Nothing shows that two objects became one.",
    ),
    Pitfall(
        "boundary_errors boundary_gain", "iou", operator.lt,
        ("moved, and one made up", DOT, np.roll(DOT, 1, 0) | box(28, 4, 9, 30)), ("moved", DOT, np.roll(DOT, 1, 0)),
        "The types share the union out. An object that is made up lowers the share of the border's errors.",
    ),
    Pitfall(
        "brats_dice brats_f1 brats_fp brats_hd95", "pq", operator.gt,
        ("small lesions are missed", BIG | SMALL, BIG), ("and one is made up", BIG | SMALL, BIG | box(34, 1, 5, 5)),
        "BraTS ignores lesions up to a volume of 50. A miss of these costs nothing, and made-up ones count.",
    ),
    Pitfall(
        "picai_f1 picai_fn", "dice", operator.gt,
        ("an eighth of it is found", BIG, disc(20, 20, 5)), ("found, but small ones missed", BIG | SMALL, BIG),
        "A candidate with an IoU of 0.1 finds a lesion, whatever its shape.",
    ),
    Pitfall(
        "autopet_fn_volume", "dice", operator.lt,
        ("a pixel of it is found", BIG, TINY), ("a small lesion is missed", BIG | box(1, 1, 3, 3), BIG),
        "A lesion that the prediction touches in one pixel counts as found.",
    ),
    Pitfall(
        "cc_dice", "dice", operator.lt,
        ("a speck of a lesion is missed", BIG | box(1, 1, 2, 2), BIG), ("a border is wide", BIG, disc(20, 20, 17)),
        "Each lesion weighs the same, a speck as much as the largest.",
    ),
    Pitfall(
        "brier", "average_precision", operator.lt,
        ("0.03 everywhere", DOT, np.full((SIDE, SIDE), 0.03)),
        ("sharp, with a wide border", DOT, np.where(disc(20, 20, 6), 0.9, 0.02)),
        "Where the class is rare, low probabilities everywhere have a low squared error, though they find nothing.",
    ),
    Pitfall(
        "nll", "brier", operator.gt,
        ("right, but sure of one miss", BIG, np.where(BIG & ~TINY, 0.99, np.where(TINY, 0, 0.01))),
        ("the same everywhere", BIG, np.full((SIDE, SIDE), BIG.mean())),
        "A single pixel whose class has probability 0 makes the mean infinite.",
    ),
    Pitfall(
        "average_precision", "brier", operator.gt,
        ("ranked right, never above 0.1", BIG, np.where(BIG, 0.1, 0.01)),
        ("sharp, off by one pixel", BIG, np.where(np.roll(BIG, 1, 0), 0.99, 0.01)),
        "Only the order of the probabilities counts, not their size.",
    ),
]  # fmt: skip


def show_pitfalls(names: tuple[str, ...], folder: Path) -> str:
    """Draw every pitfall of these metrics into `folder`, and write the section that shows them, as Markdown.

    Raises
    ------
    AssertionError
        Two values do not compare as the lesson says.
    """
    lines: list[str] = []
    for number, pitfall in enumerate(PITFALLS):
        about = [name for name in pitfall.metrics if name.partition("@")[0] in names]
        if not about:
            continue
        path, shown = f"{about[0].partition('@')[0]}_{number}.png", dict.fromkeys((*about, pitfall.beside))
        sides = {picture[0]: measure(*picture[1:], shown) for picture in (pitfall.left, pitfall.right)}
        for name in about:
            assert pitfall.misleads(name, *(values[name] for values in sides.values())), (name, sides)
        captions = [f"{title}\n{', '.join(map(_show, values.items()))}" for title, values in sides.items()]
        draw(folder / path, [pitfall.left, pitfall.right], captions)
        alternative = "; ".join(caption.replace("\n", ": ") for caption in captions)
        lines = lines or ["## Where it misleads", "", f"{QUESTION} {LEGENDS[pitfall.left[2].dtype == bool]}", ""]
        lines += [pitfall.lesson, "", f"![{alternative}]({folder.name}/{path})", ""]
    return "\n".join(lines)


def measure(target: Array, prediction: Array, names: dict[str, None]) -> dict[str, float | None]:
    """Return the metrics of one pair of masks, or of one mask and its probabilities."""
    if prediction.dtype != bool:
        found = segmeter.calibration(target.astype(int), prediction, num_classes=2, task="binary")
        values = {"ece": found.top_label.ece, "mce": found.top_label.mce, "classwise_ece": found.classwise_ece}
        values |= {"brier": found.brier, "nll": found.nll, "average_precision": found.sweeps[0].average_precision}
        return {name: values[name] for name in names}
    target, labels = target.astype(np.uint8), prediction.astype(np.uint8)
    classes = ["ground", "object"]
    case, quick = [("case", target, labels)], MetricsConfig(bootstrap=0)
    measured = segmeter.evaluate(case, classes=classes, task="binary", measures=MEASURES, metrics=quick)
    pixels = segmeter.overlap_scores(segmeter.confusion_matrix(target, labels, num_classes=2))
    values = {}
    for name in names:
        if hasattr(pixels, name):
            found = float(np.ravel(getattr(pixels, name))[-1])  # of the object, or of all classes
        else:
            scores = measured.summary["measures"][name]["object"]
            found = scores["dataset"] if "dataset" in scores else scores["mean"]
        values[name] = None if found is None or np.isnan(float(found)) else float(found)
    return values


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
