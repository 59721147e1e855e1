"""Reads the scored pairs of a finished run again with their images, so that the chosen ones can be drawn."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from segmeter.evaluation.manifest import hashes_of, read_records
from segmeter.evaluation.pairing import check_unchanged, limit_of, read_case_image
from segmeter.evaluation.score import Scoring
from segmeter.metrics.cases.stored import open_cases
from segmeter.report.config import ReportConfig
from segmeter.report.pictures.finished import DrawnCase, case_scores, draw_run
from segmeter.report.pictures.objects import measured_objects


def draw_cases(scoring: Scoring, images: Mapping[str, Path], config: ReportConfig) -> None:
    """Draw the chosen cases of a finished run of `score`, and crop the worst.

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
    pairs = {pair.case_id: pair for pair in scoring.pairs}
    measured = hashes_of(read_records(scoring.folder))
    scorer = scoring.scorer()

    def read(case_id: str) -> DrawnCase:
        pair = pairs[case_id]
        path = images[pair.stem]
        maps = scorer.read(pair)
        in_time = limit_of(replace(pair, image=path), scoring.timeout_s)
        in_time(partial(check_unchanged, pair, measured))
        image, _ = in_time(partial(read_case_image, path, maps.shape, max_pixels=scoring.max_pixels))
        return DrawnCase(
            image=image,
            target=maps.target,
            labels=maps.labels,
            objects=measured_objects(scoring.metrics, maps.target_instances, maps.instances),
            files={"image": [path], "target": pair.references, "prediction": pair.predictions},
        )

    scores = case_scores(open_cases([scoring.folder]), scoring.spec, scoring.metrics)
    draw_run(scoring.folder, scores, read, config, scoring.spec)
