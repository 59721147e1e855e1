"""The overlays and worst cases of the parts of a run -> those of the run."""

from collections.abc import Sequence
from pathlib import Path

from segmeter.cli.pictures.score_pictures import case_scores
from segmeter.cli.pictures.worst import take_worst
from segmeter.evaluation.merging.pieces import Piece
from segmeter.files import link_or_copy, make_folder
from segmeter.metrics.cases.stored import read_cases
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.report.config import ReportConfig
from segmeter.report.pictures.gallery import OVERLAYS, choose_cases
from segmeter.report.pictures.layers import FOLDER as LAYERS
from segmeter.report.pictures.layers import layers_path
from segmeter.report.pictures.overlay import picture_path


def take_pictures(
    pieces: Sequence[Piece], config: ReportConfig, metrics: MetricsConfig | None, folder: Path
) -> list[str]:
    """Take over what the whole run would have: its worst cases are among the worst of their shard.

    Returns
    -------
    The names of pictures and crops in the folder.
    """
    crops = list[str]()
    if pieces[0].spec is not None and metrics is not None:
        crops = take_worst(pieces, folder, pieces[0].spec, metrics, config.worst)
    found = {path.stem: path for piece in pieces for path in sorted((piece.folder / OVERLAYS).glob("*.png"))}
    if not found:
        return crops
    spec, scores = pieces[0].spec, dict[str, float | None]()
    of_classes = None
    if spec is None or metrics is None:  # predict: without scores none is worst
        scores = dict.fromkeys(case_id for piece in pieces for case_id in piece.cases)
        config = config.replace(worst=0)
    else:
        headlines, of_classes = case_scores(read_cases(folder), spec, metrics)
        scores |= headlines
    layers = {path.name: path for piece in pieces for path in sorted((piece.folder / LAYERS).glob("*"))}
    make_folder(folder / OVERLAYS)
    taken = dict[Path, Path]()
    for case_id in sorted(choose_cases(scores, config, of_classes)):
        target = picture_path(Path(OVERLAYS), case_id)
        if target.stem in found:
            taken[target] = found[target.stem]
        if target.stem in layers:
            taken[layers_path(Path(), case_id)] = layers[target.stem]
    for target, source in taken.items():
        link_or_copy(source, folder / target)
    return [*crops, *map(str, taken)]
