"""Shows the results of `segmeter agree` and `segmeter suspects`: tables, words, and crops to look at."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from segmeter.classes import ClassSpec
from segmeter.metrics.objects.planted import SHARE
from segmeter.metrics.objects.suspects import CROPS, DRAWN, KINDS
from segmeter.metrics.summary.agreement import CERTAIN
from segmeter.records import read_own
from segmeter.report.decisions import Shown
from segmeter.report.figures import interval, number, probability, resampled, signed, title
from segmeter.report.pictures.flatten import draw_overlay
from segmeter.report.pictures.maps import display_image, encode
from segmeter.report.tables import Table

_MARGIN = 12  # Pixels around a suspect in its crop.
_LEAST = 48  # Smallest edge of a crop, pixels.
_PANEL = 170  # Edge of a panel, pixels.
_AGREEMENT_OBJECTIONS = (
    "Agreement is not accuracy. Readers with the same training, or who corrected the same draft, share errors.",
    "The intervals tell how much depends on the choice of cases, not on the choice of readers: other readers may agree "
    "otherwise.",
    "These cases and sites only: cases that are read twice are often the difficult ones.",
    "The majority of all includes the reader's own vote; that of the rest does not.",
    "A model that learned from several readers averages them, and may agree with each more than they do with each "
    "other. That makes it no better than a reader.",
)
_SUSPECT_OBJECTIONS = (
    "A suspect is a question, not a verdict. Correcting only what the model doubts moves the references towards it: "
    "measure on corrected test labels only if every label was looked at.",
    "A model that learned from the same annotators repeats their habits, and sees no error in them.",
    "Planted errors are whole objects dropped, added, swapped, or moved by 2 to 5 pixels. Errors of people may be "
    "finer or follow a habit.",
    "A validation split chose the checkpoint, so its cases are not quite unseen.",
)
_WORDS = {  # A kind of suspects, and one suspect, in words.
    "extra": ("extra: the model sees background", "extra {given}"),
    "missing": ("missing: the model sees an object", "missing {suggested}"),
    "class": ("other class", "{given}, rather {suggested}"),
    "border": ("border elsewhere", "border of {given}"),
}


def show_agreement(result: Mapping[str, Any]) -> Shown:
    """Lay out agree.json: the matrix of the headline, each reader's agreement with the others, and who stands apart."""
    leading = result["scores"][result["headline"]]
    names = [*result["readers"], *result["models"]]
    means = leading["matrix"]
    matrix = [[a, *(number(means[a][b]["mean"]) if b in means[a] else "" for b in names)] for a in names]
    words = f"{title(result['headline'])}, mean over {result['n_cases']} cases: a row is the reference"
    further, heads = [], ["reference", "reader", "mean", "95 %", "cases"]
    for name, entry in result["scores"].items():
        further += [_readers(names, entry, title(name))] if entry is not leading else []
        pairs = [(a, b, score) for a in names for b, score in entry["matrix"][a].items()]
        rows = [
            [a, b, number(score["mean"]), interval(score["ci95"], 3), str(score["n_used"])] for a, b, score in pairs
        ]
        further.append(Table(heads=heads, rows=rows, names=2, title=f"{title(name)} of each pair", strong=()))
    return Shown(
        tables=[
            Table(heads=["", *names], rows=matrix, title=words, strong=()),
            _readers(names, leading, f"readers by {title(result['headline'])}"),
        ],
        further=further,
        verdicts=verdicts(result),
        notes=agreement_notes(result),
        objections=_AGREEMENT_OBJECTIONS,
    )


def verdicts(result: Mapping[str, Any]) -> list[str]:
    """State who stands apart, and whether each model is further from the readers than they are from each other."""
    contrasts = result["scores"][result["headline"]]["contrast"]
    lines = []
    if any(name in contrasts for name in result["readers"]):
        apart = ", ".join(result["apart"])
        lines.append(f"stands apart: {apart}" if apart else "no reader stands apart beyond chance")
    for name in (name for name in result["models"] if name in contrasts):
        contrast = contrasts[name]
        verdict = "not told apart from the human ceiling"
        ends = [float(end) for end in contrast["ci95"] or () if end is not None]
        if len(ends) == 2 and not ends[0] <= 0 <= ends[1]:
            worse = contrast["change"] == "worse"
            verdict = "further than readers from each other" if worse else "closer than readers to each other"
        difference = f"{signed(contrast['mean'])} {interval(contrast['ci95'], 3)}"
        lines.append(f"{name} to the readers, minus the readers to each other: {difference} ({verdict})")
    return lines


def agreement_notes(result: Mapping[str, Any]) -> list[str]:
    """State how the agreement was measured."""
    resampling = result["bootstrap"]
    readers = len(result["readers"])
    few = ""
    if readers < 3:
        few = "two readers: there is no majority and no contrast, so neither can be told to stand apart"
    elif readers ** (1.0 - resampling["n_units"]) >= CERTAIN:  # the smallest p-value
        units = "clusters" if resampling["cluster"] else "cases"
        few = f"{resampling['n_units']} {units}: too few to tell anyone apart, whatever the difference"
    tied = ", ".join(f"{100 * share:.2f} % ({kind})" for kind, share in result["tied"].items() if share)
    lines = [
        f"convention {result['convention']}",
        resampled(resampling),
        "contrast: agreement with the others, minus the agreement of the others among each other; 0 if all are alike",
        few,
        f"pixels without a majority are left out there, which flatters every reader: {tied}" if tied else "",
        f"{len(result['left_out'])} cases left out, as not every reader has them" if result.get("left_out") else "",
        resampling["warning"],
    ]
    return [line for line in lines if line]


def _readers(names: Sequence[str], entry: Mapping[str, Any], words: str) -> Table:
    """Lay out readers, then models: agreement with both majorities, and the contrast."""
    rows, apart = [], []
    for index, name in enumerate(names):
        majority, rest, contrast = (entry[key].get(name) for key in ("majority", "rest", "contrast"))
        row = [name]
        for form, score in ((number, majority), (number, rest), (signed, contrast)):
            row.append(f"{form(score['mean'])} {interval(score['ci95'], 3)}".rstrip() if score else "")
        rows.append([*row, probability(contrast.get("p_holm")) if contrast else ""])
        apart += [index] if contrast and contrast.get("apart") else []
    heads = ["reader", "with the majority", "with the rest's majority", "contrast", "p (Holm)"]
    return Table(heads=heads, rows=rows, title=words, strong=apart)


def draw_crop(
    image: NDArray[Any], target: NDArray[Any], labels: NDArray[Any], row: Mapping[str, Any], spec: ClassSpec
) -> bytes:
    """Draw image, reference, prediction and errors around a suspect, whose box is marked, as WebP."""
    image = display_image(image)
    window = []
    for start, length, side in zip((row["top"], row["left"]), (row["height"], row["width"]), target.shape, strict=True):
        edge = max(length + 2 * _MARGIN, _LEAST)
        begin = min(max(0, start - (edge - length) // 2), max(0, side - edge))
        window.append(slice(begin, min(side, begin + edge)))
    rows, columns = window
    crop = Image.fromarray(np.ascontiguousarray(image[rows, columns]))
    top, left = row["top"] - rows.start, row["left"] - columns.start
    right, bottom = min(crop.width - 1, left + row["width"]), min(crop.height - 1, top + row["height"])
    box = (max(0, left - 1), max(0, top - 1), right, bottom)
    ImageDraw.Draw(crop).rectangle(box, outline=DRAWN.colours[1 + KINDS.index(row["kind"])])
    cropped_labels = np.asarray(labels[rows, columns], spec.label_dtype)
    overlay = draw_overlay(np.asarray(crop), target[rows, columns], cropped_labels, spec, panel=_PANEL)
    return encode(overlay, "WEBP", quality=80, method=2)


def show_suspects(result: Mapping[str, Any], folder: Path) -> Shown:
    """Lay out suspects.json, with the crops in the run's folder."""
    rows, crops, kinds = [], [], []
    for kind, entry in result["kinds"].items():
        recovered = f"{number(entry['recovered'], 2)} of {entry['planted']}"
        kinds.append([_WORDS[kind][0], str(entry["found"]), number(entry["expected"], 1), recovered])
    for suspect in result["suspects"]:
        words = _WORDS[suspect["kind"]][1].format_map(suspect)
        rank, case_id, chance = str(suspect["rank"]), suspect["case_id"], number(suspect["chance"], 2)
        cells = [str(suspect["top"]), str(suspect["left"]), str(suspect["size"]), f"{suspect['size_z']:+.1f}"]
        rows.append([rank, case_id, words, chance, *cells])
        path = folder / CROPS / f"{rank}.webp"
        if path.is_file():
            caption = f"{rank}. {words} in {case_id}, chance {chance}"
            crops.append((caption, "data:image/webp;base64," + base64.b64encode(read_own(path)).decode()))
    unknown = [kind for kind, entry in result["kinds"].items() if entry["found"] and not entry["planted"]]
    few = f"too few objects to plant errors of: {', '.join(unknown)}. Their chance of 0 only means that it is unknown"
    notes = [
        *([few] if unknown else []),
        f"{result['n_cases']} cases of {len(result['runs'])} run(s), whose models never saw them",
        f"chance: errors to expect at this score, if {100 * SHARE:g} % of the objects are wrong, over the suspects of "
        "the same kind there. If your share of errors is lower, so are the chances",
        "size_z: how unusual the size is for its class, in robust standard deviations of its logarithm",
    ]
    heads = ["rank", "case", "suspect", "chance", "line", "column", "pixels", "size_z"]
    return Shown(
        tables=[
            Table(heads=["kind", "suspects", "errors expected", "planted errors found"], rows=kinds, strong=()),
            Table(heads=heads, rows=rows, names=3, strong=()),
        ],
        rest="suspects in suspects.json and on the page.",
        notes=notes,
        objections=_SUSPECT_OBJECTIONS,
        crops=crops,
        ids=list(dict.fromkeys(suspect["case_id"] for suspect in result["suspects"])),
    )


def show_label_next(result: Mapping[str, Any]) -> Shown:
    """Lay out label_next.json."""
    images = result["images"]
    rows = [[str(row["rank"]), row["case_id"], number(row["gain"]), number(row["distance"], 3)] for row in images]
    table = Table(heads=["rank", "image", f"{result['by']} (nats)", "distance"], rows=rows, names=2, strong=())
    entropy_only = "one set of probabilities: its entropy can't tell apart what the model could learn and mere noise"
    gain = entropy_only if result["by"] == "entropy" else "gain: entropy of the mean minus the mean of the entropies"
    return Shown(
        tables=[table],
        rest="images in label_next.json and on the page.",
        notes=["gain x distance to the images above: the first ones differ from each other", gain],
        objections=["Images chosen this way are not a random sample: do not measure on them."],
        ids=[row["case_id"] for row in images],
    )
