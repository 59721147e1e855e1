"""Gives a merged run the pictures of its parts, as they would be without parts."""

from collections.abc import Sequence
from pathlib import Path

from segmeter.classes import ClassSpec
from segmeter.evaluation.pieces import Piece
from segmeter.files import link_or_copy, make_folder
from segmeter.metrics.cases.stored import open_cases
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.report.config import ReportConfig
from segmeter.report.pictures.finished import Scores, case_scores
from segmeter.report.pictures.gallery import OVERLAYS, choose_cases
from segmeter.report.pictures.layers import FOLDER as LAYERS
from segmeter.report.pictures.layers import layers_path
from segmeter.report.pictures.overlay import picture_path
from segmeter.report.pictures.worst import FOLDER as CROPS
from segmeter.report.pictures.worst import crops_path, worst_rows, write_worst_list


def take_pictures(pieces: Sequence[Piece], config: ReportConfig, metrics: MetricsConfig | None, folder: Path) -> None:
    """Take over the pictures that the whole run would have: its worst cases are among the worst of their part."""
    spec = pieces[0].spec
    if spec is not None and metrics is not None:
        scores = case_scores(open_cases([folder]), spec, metrics)
        _take_worst(pieces, folder, spec, metrics, config.worst)
    else:  # predict: without scores none is worst
        scores = Scores(headline=dict.fromkeys(case_id for piece in pieces for case_id in piece.cases))
        config = config.replace(worst=0)
    drawn = {path.stem: path for piece in pieces for path in sorted((piece.folder / OVERLAYS).glob("*.png"))}
    layers = {path.name: path for piece in pieces for path in sorted((piece.folder / LAYERS).glob("*"))}
    if not drawn:
        return
    make_folder(folder / OVERLAYS)
    for case_id in sorted(choose_cases(scores.headline, config, scores.classes)):
        target = picture_path(folder / OVERLAYS, case_id)
        if target.stem in drawn:
            link_or_copy(drawn[target.stem], target)
        if target.stem in layers:
            link_or_copy(layers[target.stem], layers_path(folder, case_id))


def _take_worst(pieces: Sequence[Piece], folder: Path, spec: ClassSpec, metrics: MetricsConfig, count: int) -> None:
    """Give a merged run the list and the crops that it would have without its parts."""
    found = {path.name: path for piece in pieces for path in sorted((piece.folder / CROPS).glob("*"))}
    for row in worst_rows(folder, spec, metrics)[:count]:
        place = crops_path(folder, row["case_id"])
        if place.name in found:
            link_or_copy(found[place.name], place)
    write_worst_list(folder, spec, metrics, count)
