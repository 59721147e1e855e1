"""Shows the suspects and the images to label next that `segmeter suspects` found, and draws a crop of each suspect."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.metrics.objects.planted import SHARE
from segmeter.metrics.objects.suspects import CROPS, DRAWN, KINDS
from segmeter.records import read_own
from segmeter.report.decisions import Shown
from segmeter.report.figures import number
from segmeter.report.pictures.flatten import draw_overlay
from segmeter.report.pictures.maps import display_image, encode
from segmeter.report.tables import Table

_MARGIN, _LEAST, _PANEL = 12, 48, 170  # around a suspect, smallest edge of a crop, and edge of a panel, pixels
_OBJECTIONS = (
    "A suspect is a question, not a verdict. Correcting only what the model doubts moves the references towards it: "
    "measure on corrected test labels only if every label was looked at.",
    "A model that learned from the same annotators repeats their habits, and sees no error in them.",
    "Planted errors are whole objects dropped, added, swapped, or moved by 2 to 5 pixels. Errors of people may be "
    "finer or follow a habit.",
    "A validation split chose the checkpoint, so its cases are not quite unseen.",
)
_WORDS = {
    "extra": "extra: the model sees background",
    "missing": "missing: the model sees an object",
    "class": "other class",
    "border": "border elsewhere",
}


def draw_crop(
    image: NDArray[Any], target: NDArray[Any], labels: NDArray[Any], row: Mapping[str, Any], spec: ClassSpec
) -> bytes:
    """Draw image, reference, prediction and errors around a suspect, whose box is marked, as WebP."""
    image = display_image(image)
    window = []
    for start, length, side in zip((row["top"], row["left"]), (row["height"], row["width"]), target.shape, strict=True):
        edge = max(length + 2 * _MARGIN, _LEAST)
        first = min(max(0, start - (edge - length) // 2), max(0, side - edge))
        window.append(slice(first, min(side, first + edge)))
    rows, columns = window
    shown = image[rows, columns].copy()
    top, left = row["top"] - rows.start, row["left"] - columns.start
    bottom, right = top + row["height"] - 1, left + row["width"] - 1
    colour = DRAWN.colours[1 + KINDS.index(row["kind"])]
    for line in (max(0, top - 1), min(len(shown) - 1, bottom + 1)):
        shown[line, left : right + 1] = colour
    for column in (max(0, left - 1), min(shown.shape[1] - 1, right + 1)):
        shown[top : bottom + 1, column] = colour
    maps = (shown, target[rows, columns], np.asarray(labels[rows, columns], spec.label_dtype), spec)
    return encode(draw_overlay(*maps, panel=_PANEL), "WEBP", quality=80, method=2)


def show_suspects(result: Mapping[str, Any], folder: Path) -> Shown:
    """Lay out suspects.json, with the crops in the run's folder."""
    rows, crops, kinds = [], [], []
    for kind, one in result["kinds"].items():
        recovered = f"{number(one['recovered'], 2)} of {one['planted']}"
        kinds.append([_WORDS[kind], str(one["found"]), number(one["expected"], 1), recovered])
    for one in result["suspects"]:
        place = [str(one["top"]), str(one["left"]), str(one["size"]), f"{one['size_z']:+.1f}"]
        rows.append([str(one["rank"]), one["case_id"], _says(one), number(one["chance"], 2), *place])
        path = folder / CROPS / f"{one['rank']}.webp"
        if path.is_file():
            words = f"{one['rank']}. {_says(one)} in {one['case_id']}, chance {number(one['chance'], 2)}"
            crops.append((words, "data:image/webp;base64," + base64.b64encode(read_own(path)).decode()))
    heads = ["rank", "case", "suspect", "chance", "line", "column", "pixels", "size_z"]
    return Shown(
        tables=[
            Table(heads=["kind", "suspects", "errors expected", "planted errors found"], rows=kinds, strong=()),
            Table(heads=heads, rows=rows, names=3, strong=()),
        ],
        rest="suspects in suspects.json and on the page.",
        notes=notes(result),
        objections=_OBJECTIONS,
        crops=crops,
        ids=list(dict.fromkeys(one["case_id"] for one in result["suspects"])),
    )


def show_label_next(result: Mapping[str, Any]) -> Shown:
    """Lay out label_next.json."""
    rows = [
        [str(one["rank"]), one["case_id"], number(one["gain"]), number(one["distance"], 3)] for one in result["images"]
    ]
    table = Table(heads=["rank", "image", f"{result['by']} (nats)", "distance"], rows=rows, names=2, strong=())
    single = "one set of probabilities: its entropy can't tell apart what the model could learn and mere noise"
    gain = single if result["by"] == "entropy" else "gain: entropy of the mean minus the mean of the entropies"
    return Shown(
        tables=[table],
        rest="images in label_next.json and on the page.",
        notes=["gain x distance to the images above: the first ones differ from each other", gain],
        objections=["Images chosen this way are not a random sample: do not measure on them."],
        ids=[one["case_id"] for one in result["images"]],
    )


def notes(result: Mapping[str, Any]) -> list[str]:
    """State what a chance means."""
    unknown = [kind for kind, one in result["kinds"].items() if one["found"] and not one["planted"]]
    few = f"too few objects to plant errors of: {', '.join(unknown)}. Their chance of 0 only means that it is unknown"
    return [
        *([few] if unknown else []),
        f"{result['n_cases']} cases of {len(result['runs'])} run(s), whose models never saw them",
        f"chance: errors to expect at this score, if {100 * SHARE:g} % of the objects are wrong, over the suspects of "
        "the same kind there. If your share of errors is lower, so are the chances",
        "size_z: how unusual the size is for its class, in robust standard deviations of its logarithm",
    ]


def _says(one: Mapping[str, Any]) -> str:
    forms = {"class": "{given}, rather {suggested}", "missing": "missing {suggested}", "border": "border of {given}"}
    return forms.get(one["kind"], "extra {given}").format_map(one)
