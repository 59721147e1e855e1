"""`segmeter score`: masks and their references -> figures, pictures, report; no model, no torch."""

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from segmeter.checks import expected
from segmeter.cli.app import Job
from segmeter.cli.run_folder import open_run
from segmeter.cli.schema import ScoreConfig
from segmeter.data.dataset import in_threads
from segmeter.data.formats import show
from segmeter.data.listing import some
from segmeter.data.pairing import Files, list_files, missing_problem, twice_problems
from segmeter.data.read import read_image
from segmeter.errors import DataError
from segmeter.evaluation.score import MaskPair, Pairing, Scoring, pair_masks, read_pair, score
from segmeter.metrics.config import check_metrics
from segmeter.metrics.overlap import score_margins
from segmeter.metrics.rows import read_cases, stack_margins
from segmeter.metrics.summary import mean_classes
from segmeter.progress import track
from segmeter.report.gallery import Gallery
from segmeter.report.html import write_report
from segmeter.report.overlay import draw_overlay, write_overlay
from segmeter.report.table import print_summary


def run(config: ScoreConfig, job: Job) -> float | None:
    """Score; returns the dataset's mean IoU."""
    spec = config.data.spec()
    check_metrics(config.metrics, spec)
    pairing = pair_masks(config.predictions, config.references, spec=spec, missing=config.missing)
    images = _images(config.images, pairing)
    _warn(pairing, config.predictions)
    with open_run(config, job, facts=_facts(config, pairing)) as folder:
        scoring = Scoring(
            pairing=pairing,
            spec=spec,
            label_map=config.data.labels_of(),
            max_pixels=config.data.max_pixels,
            metrics=config.metrics,
            folder=folder,
        )
        summary = score(scoring)
        if images:
            _draw(config, scoring, images)
    _show(config, folder, summary)  # after the run has closed its records, so that the report can say how it ended
    mean_iou: float | None = summary["dataset"]["mean_iou"]
    return mean_iou


def _facts(config: ScoreConfig, pairing: Pairing) -> dict[str, Any]:
    """What run.json says about the files."""
    return {
        "predictions": str(config.predictions.absolute()),
        "references": str(config.references.absolute()),
        "data": pairing.fingerprint(),
        "missing_predictions": list(pairing.missing),
        "extra_predictions": list(pairing.extra),
    }


def _warn(pairing: Pairing, predictions: Path) -> None:
    if pairing.missing:
        sys.stderr.write(f"warning: cases without a prediction, scored as background ({some(pairing.missing)}).\n")
    if pairing.extra:
        sys.stderr.write(f"warning: predictions without a reference in {show(predictions)} ({some(pairing.extra)}).\n")


def _images(folder: Path | None, pairing: Pairing) -> Files:
    """The image of every case."""
    if folder is None:
        return {}
    files = list_files(folder, role="images")
    stems = [pair.stem for pair in pairing.pairs]
    problems = missing_problem(stems, files, what="an image", remedy="Leave images= out to draw no overlays.")
    problems += twice_problems({stem: files[stem] for stem in stems if stem in files}, "images")
    if problems:
        raise DataError(problems)
    return files


def _draw(config: ScoreConfig, scoring: Scoring, images: Files) -> None:
    """Draw the chosen cases. They are read again: which ones they are is known only after the last."""
    rows = read_cases(scoring.folder)
    classes = mean_classes(scoring.metrics, scoring.spec)  # the mean IoU that metrics.json has
    values = score_margins(stack_margins(rows, scoring.spec), task=scoring.spec.task, classes=classes).mean_iou
    scores = {row.case_id: float(value) for row, value in zip(rows, values, strict=True)}
    overlays = scoring.folder / "overlays"
    chosen = Gallery(overlays, config.report, scoring.spec, scores=scores).chosen()
    pairs = [pair for pair in scoring.pairing.pairs if pair.case_id in chosen or config.report.overlays < 0]
    draw = partial(_draw_pair, config, scoring, images, scores)
    problems = [line for found in track(in_threads(draw, pairs), "drawing", len(pairs)) for line in found]
    if problems:
        raise DataError(problems)


def _draw_pair(
    config: ScoreConfig, scoring: Scoring, images: Files, scores: Mapping[str, float], pair: MaskPair
) -> tuple[str, ...]:
    """Write one picture, or say what is wrong with its image."""
    path = images[pair.stem][0]
    try:
        image = read_image(path, max_pixels=scoring.max_pixels)
        target, labels = read_pair(scoring, pair)
    except DataError as error:
        return error.problems
    if image.shape[:2] != target.shape[-2:]:
        rule = f"to have the size of its reference, {target.shape[-2]} x {target.shape[-1]}"
        return (expected(show(path), "image", rule, f"{image.shape[0]} x {image.shape[1]} (height x width)"),)
    title, mean_iou = pair.case_id, scores[pair.case_id]
    picture = draw_overlay(
        image, target, labels, scoring.spec, title=title, mean_iou=mean_iou, panel=config.report.panel
    )
    write_overlay(scoring.folder / "overlays", pair.case_id, picture)
    return ()


def _show(config: ScoreConfig, folder: Path, summary: dict[str, Any]) -> None:
    print_summary(summary)
    lines = [f"figures   {folder / 'metrics.json'}", f"cases     {folder / 'cases.csv'}"]
    if config.images and config.report.overlays:
        lines.append(f"overlays  {folder / 'overlays'}")
    if config.report.html:
        lines.append(f"report    {write_report(folder, config.report)}")
    sys.stdout.write("\n".join(lines) + "\n")
