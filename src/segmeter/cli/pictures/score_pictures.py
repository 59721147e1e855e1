"""Scored cases and their images -> the run's pictures, and crops of the worst; of a volume, one slice."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from segmeter.classes import ClassSpec
from segmeter.cli.pictures.worst import write_crops
from segmeter.errors import DataError
from segmeter.evaluation.cases import CaseScorer
from segmeter.evaluation.images import read_case_image
from segmeter.evaluation.manifest import read_notes
from segmeter.evaluation.pairing import MaskPair, check_unchanged, limit_of
from segmeter.evaluation.score import Scoring
from segmeter.metrics.cases.stored import read_cases
from segmeter.metrics.cases.table import CaseRow, stack_totals
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.pixels.overlap import score_totals
from segmeter.metrics.summary.summary import mean_classes
from segmeter.parallel import map_in_threads
from segmeter.progress import track
from segmeter.report.config import ReportConfig
from segmeter.report.figures import headline_scores
from segmeter.report.pictures.gallery import choose_cases, worst_first
from segmeter.report.pictures.layers import draw_layers, file_names, write_layers
from segmeter.report.pictures.objects import measured_objects, slice_objects
from segmeter.report.pictures.overlay import draw_overlay, write_overlay
from segmeter.report.pictures.slices import choose_slice


def draw_cases(scoring: Scoring, images: Mapping[str, Path], config: ReportConfig) -> None:
    """Draw the chosen cases, and crop the worst. They are read again: which they are is known only after the last.

    Parameters
    ----------
    scoring
        The finished run.
    images
        The image of every case, by stem.
    config
        Which cases are drawn, and how large, and how many are cropped.

    Raises
    ------
    DataError
        One line for each image that can't be read or has another size, and each case whose masks changed.
    """
    scores, of_classes = case_scores(read_cases(scoring.folder), scoring.spec, scoring.metrics)
    drawn = choose_cases(scores, config, of_classes)
    defined = {case_id: score for case_id, score in scores.items() if not np.isnan(score)}
    worst = set(worst_first(defined)[: config.worst])
    pairs = scoring.pairs.of_cases({*drawn, *worst}.__contains__)
    measured = {case_id: noted["sha256"] for case_id, noted in read_notes(scoring.folder).items()}
    given = _Drawing(scoring, scoring.scorer(), images, scores, measured, config.panel, drawn, worst)
    problems = [line for found in track(map_in_threads(given.draw, pairs), "drawing", len(pairs)) for line in found]
    if problems:
        raise DataError(problems)


def case_scores(
    rows: Sequence[CaseRow], spec: ClassSpec, metrics: MetricsConfig
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Find the headline of each case, as metrics.json defines it, and its IoU per class; NaN is undefined."""
    totals = score_totals(stack_totals(rows, spec), task=spec.task, classes=mean_classes(metrics, spec))
    ids = [row.case_id for row in rows]
    headlines = headline_scores(totals, spec.task).tolist()
    return dict(zip(ids, headlines, strict=True)), dict(zip(ids, totals.iou.tolist(), strict=True))


@dataclass(frozen=True)
class _Drawing:
    """What is known when pictures are drawn: scores and hashes by case id, and which cases are drawn and cropped."""

    scoring: Scoring
    scorer: CaseScorer
    images: Mapping[str, Path]
    scores: Mapping[str, float]
    measured: Mapping[str, str]
    panel: int
    drawn: Set[str]
    worst: Set[str]

    def draw(self, pair: MaskPair) -> tuple[str, ...]:
        """Write the pictures of one case, or say what is wrong with its image."""
        scoring, spec, path = self.scoring, self.scoring.spec, self.images[pair.stem]
        try:
            maps = self.scorer.read(pair)
            in_time = limit_of(replace(pair, image=path), scoring.timeout_s)
            in_time(partial(check_unchanged, pair, self.measured))
            image, _ = in_time(partial(read_case_image, path, maps.shape, max_pixels=scoring.max_pixels))
        except DataError as error:
            return error.problems
        target, labels, title, number = maps.target, maps.labels, pair.case_id, None
        objects = measured_objects(scoring.metrics, maps.target_instances, maps.instances)
        files = {"image": [path], "target": pair.references, "prediction": pair.predictions}
        notes: dict[str, Any] = {"files": file_names(files)}
        if len(maps.shape) == 3:
            place = choose_slice(target, labels, spec)
            number = place + 1
            objects = slice_objects(objects, target, labels, spec, place)
            title = f"{title}, slice {number} of {maps.shape[0]}"
            notes["slice"] = [number, maps.shape[0]]
            target, labels, image = target[..., place, :, :], labels[..., place, :, :], image[place]
        if pair.case_id in self.drawn:
            score, panel = self.scores[pair.case_id], self.panel
            shown = draw_overlay(image, target, labels, spec, title=title, score=score, panel=panel, objects=objects)
            write_overlay(scoring.folder / "overlays", pair.case_id, shown)
            layers = draw_layers(image, target, labels, spec, panel=panel, objects=objects, notes=notes)
            write_layers(scoring.folder, pair.case_id, layers)
        if pair.case_id in self.worst:
            crops = {"image": image, "target": target, "labels": labels}
            write_crops(scoring.folder, pair.case_id, spec, **crops, step=1, slice_number=number)
        return ()
