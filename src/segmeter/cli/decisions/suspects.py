"""`segmeter suspects`: which labels are likely wrong, or which images to label next."""

from pathlib import Path

import pyarrow as pa

from segmeter.checks import expected
from segmeter.cli.config.decision_schema import SuspectsConfig
from segmeter.cli.config.model_schema import EvalConfig
from segmeter.cli.decisions._recorded import Decision, record
from segmeter.cli.runs.run_folder import Job
from segmeter.data.files.sniff import known_place
from segmeter.errors import ConfigError, DataError
from segmeter.evaluation.decisions.held_out import HeldOut, open_held_out
from segmeter.evaluation.decisions.label_next import rank_images
from segmeter.evaluation.decisions.suspects import COCO, OUTLINES, find_in_runs
from segmeter.evaluation.finished.pieces import find_runs
from segmeter.records import CONFIG, read_run, read_yaml
from segmeter.report.suspects import draw_crop, show_label_next, show_suspects


def run(config: SuspectsConfig, job: Job) -> None:
    """Rank suspects or images, print the first ones, and write the ranking, a page, and files for annotation tools.

    Raises
    ------
    InputError
        A run kept no probabilities, or its model saw the cases. No folder is left.
    """
    folders = find_runs("suspects", config.runs)
    runs = [_open(folder, unseen=config.unseen) for folder in folders] if config.order == "suspects" else []

    def decide(folder: Path) -> Decision:
        if config.order == "label_next":
            result = rank_images(folders)
            rows = pa.Table.from_pylist([{**one, "distance": float(one["distance"])} for one in result["images"]])
            return Decision(result=result, rows=rows, shown=show_label_next(result))
        result, rows = find_in_runs(runs, config.seed, folder, draw_crop)
        files = {"QuPath": folder / OUTLINES, "COCO": folder / COCO}
        return Decision(result=result, rows=rows, shown=show_suspects(result, folder), files=files)

    record(config, job, config.order, decide, facts={"runs": [known_place(folder) for folder in folders]})


def _open(folder: Path, *, unseen: bool) -> HeldOut:
    """Open a finished evaluation by the configuration that it kept."""
    remedy = "Give the folder of a finished `segmeter eval`; score and predict know no training split."
    try:
        command = read_run(folder).get("command")
        if command != "eval":
            raise DataError(expected("suspects", "runs", "to be runs of eval", f"{folder}, of {command}", remedy))
        evaluated = EvalConfig.model_validate(read_yaml(folder / CONFIG))
    except OSError as error:
        given = f"{folder} ({error.strerror})"
        raise DataError(expected("suspects", "runs", "to be runs of eval", given, remedy)) from error
    if evaluated.shard is not None:
        raise ConfigError(expected("suspects", "runs", "to be whole runs", f"{folder}, a shard", "Merge them first."))
    return open_held_out(folder, evaluated.data, unseen=unseen)
