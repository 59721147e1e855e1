"""Gathers what the page of a training shows: curves, and pictures of validations over the run."""

import base64
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from segmeter.records import flatten, read_own, read_run
from segmeter.report import figures
from segmeter.report.config import ReportConfig
from segmeter.report.page.evaluation import script_json
from segmeter.report.page.render import if_there
from segmeter.report.pictures.maps import encode

MOST_POINTS = 1500  # Curves with more points are thinned evenly.
WIDTH = 1000  # An embedded picture is at most this wide, pixels.
QUALITY = 78  # WebP quality of embedded pictures.
VALIDATION = "validation"  # Folder of pictures: step-<number>/<case>.png.
FIRST_BATCH = "first_batch.png"

_POSITION = ("step", "epoch", "seconds")  # These numbers of a row say where it lies in the training.
_VALIDATED = ("scores of the validation", "score")  # Title and axis of the leading chart.
_SCORES = {"iou": "IoU by class", "dice": "Dice by class", "pq": "PQ by class"}
_NAMES = {
    "loss": ("loss", "loss"),
    "lr": ("learning rate", "learning rate"),
    "grad_norm": ("gradient norm", "norm before clipping"),
    "images_per_second": ("throughput", "images per second"),
    "data_wait": ("waiting for data", "share of time"),
    "peak_memory_mb": ("peak memory", "MB"),
    "stages": ("time by stage", "seconds"),
}

Series = dict[str, list[tuple[int, float | None]]]


def training_values(folder: Path, history: Sequence[Mapping[str, Any]], config: ReportConfig) -> dict[str, Any]:
    """Gather the values of the template: ``cards``, ``curves``, ``pictures`` and others.

    Parameters
    ----------
    folder
        The run's folder.
    history
        Rows of history.jsonl: numbers by name. The numbers of a validation are one level deeper. A number that is not
        finite interrupts its curve.
    config
        The limit of bytes for pictures.
    """
    monitor = next(iter((if_there(read_run, folder) or {}).get("result", ())), "")
    leading = (*_VALIDATED, figures.title(monitor)) if monitor not in ("", "loss") else None
    charts: dict[tuple[str, str], Series] = {_VALIDATED: {leading[-1]: []}} if leading else {}
    for index, row in enumerate(history):
        for name, value in flatten(row, separator="/").items():
            if name in _POSITION or isinstance(value, bool) or not isinstance(value, int | float | None):
                continue
            value = value if value is None or math.isfinite(value) else None
            lines = {_chart_of(name)} | ({leading} if leading and name == f"val/{monitor}" else set())
            for title, axis, line in lines:
                charts.setdefault((title, axis), {}).setdefault(line, []).append((index, value))
    curves = [_chart(title, axis, series, history) for (title, axis), series in charts.items()]
    order = [_VALIDATED[0], "loss", *_SCORES.values(), *(title for title, _ in _NAMES.values())]
    curves = [chart for chart in curves if chart["lines"]]
    curves.sort(key=lambda chart: order.index(chart["title"]) if chart["title"] in order else len(order))
    pictures, left_out = _validation_pictures(folder, config)
    best = [row.get("step") for row in history if row.get("best") is True]
    first_batch = folder / FIRST_BATCH
    return {
        "cards": _cards(history, monitor),
        "curves": script_json({"charts": curves, "best": best[-1] if best else None}),
        "pictures": script_json(pictures) if pictures else None,
        "left_out": left_out,
        "first_batch": _source(folder, first_batch, config) if first_batch.is_file() else None,
    }


def _chart_of(name: str) -> tuple[str, str, str]:
    """Find the title and axis of the chart for a number of the history, and the name of its line."""
    validated, rest = name.startswith("val/"), name.removeprefix("val/")
    head, _, tail = rest.partition("/")
    if rest in figures.AGGREGATES:
        return *_VALIDATED, figures.AGGREGATES[rest]
    if head in _SCORES and tail:
        return _SCORES[head], "score", tail
    title, axis = _NAMES.get(head, (head, head))
    line = tail or ("validation" if validated else "training" if head == "loss" else title)
    return title, axis, line


def _chart(title: str, axis: str, series: Series, history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Lay out the lines of a chart as lists of step, epoch, seconds and value. The best loss is the lowest."""
    pick, lines = {"loss": min, "score": max}.get(axis), list[dict[str, Any]]()
    for name, points in series.items():
        finite = [(row, value) for row, value in points if value is not None]
        if finite:
            thinned = points[:: max(1, math.ceil(len(points) / MOST_POINTS))]
            best = [pick(finite, key=lambda point: point[1])] if pick else []
            kept = sorted({*thinned, points[-1], finite[-1], *best}, key=lambda point: point[0])
            line = {x: [history[row].get(x, row if x == "step" else None) for row, _ in kept] for x in _POSITION}
            values = [value if value is None else float(f"{value:.6g}") for _, value in kept]
            lines.append({"name": name, "best": kept.index(best[0]) if best else None, **line, "values": values})
    return {"title": title, "axis": axis, "lines": lines}


def _cards(history: Sequence[Mapping[str, Any]], monitor: str) -> list[dict[str, str]]:
    """List the scores of the best checkpoint, led by the one that chose it, then the length of the run."""
    cards = []
    best = next((row for row in reversed(history) if row.get("best") is True and row.get("val")), None)
    if best is not None:
        caption = f"best, at step {best.get('step')}"
        metric, _, region = monitor.partition("/")
        leading = [monitor, f"dice/{region}"] if metric == "iou" else [monitor]
        for name in dict.fromkeys([*leading, *figures.AGGREGATES]):
            if name in best["val"]:
                value = figures.number(best["val"][name], 3)
                cards.append({"name": figures.title(name), "value": value, "under": caption})
    last = history[-1] if history else {}
    length = [f"{last['epoch']:.4g} epochs"] if isinstance(last.get("epoch"), float | int) else []
    length += [f"{last['seconds'] / 60:.1f} minutes"] if isinstance(last.get("seconds"), float | int) else []
    return [*cards, {"name": "steps", "value": str(last.get("step", "n/a")), "under": ", ".join(length)}]


def _validation_pictures(folder: Path, config: ReportConfig) -> tuple[dict[str, dict[str, str]], int]:
    """Load pictures by case and step; also return how many steps the limit of bytes left out."""
    step_folders = {int(path.name[5:]): path for path in (folder / VALIDATION).glob("step-*") if path.is_dir()}
    steps = kept = sorted(step_folders)
    sources = dict[int, dict[str, str]]()
    for step in steps:
        sources[step] = {path.stem: _source(folder, path, config) for path in sorted(step_folders[step].glob("*.png"))}
    sizes = {step: len(json.dumps(sources[step])) for step in steps}
    most_bytes = math.inf if config.pictures == "link" else config.picture_mb * 2**20
    while len(kept) > 1 and sum(sizes[step] for step in kept) > most_bytes:
        kept = [kept[round(i * (len(kept) - 1) / max(1, len(kept) - 2))] for i in range(len(kept) - 1)]
    cases = dict.fromkeys(case for step in kept for case in sources[step])
    pictures = {case: {str(step): sources[step][case] for step in kept if case in sources[step]} for case in cases}
    return pictures, len(steps) - len(kept)


def _source(folder: Path, path: Path, config: ReportConfig) -> str:
    """Return the address of a picture, or its content reduced to the width of the page."""
    if config.pictures == "link":
        return path.relative_to(folder).as_posix()
    with Image.open(io.BytesIO(read_own(path)), formats=["PNG"]) as stored:
        image = stored.convert("RGB")
    if image.width > WIDTH:
        image = image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.Resampling.LANCZOS)
    content = encode(np.asarray(image), "WEBP", quality=QUALITY, method=2)
    return "data:image/webp;base64," + base64.b64encode(content).decode()
