"""`segmeter suspects`: which labels are likely wrong, or which images to label next."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from segmeter.checks import expected
from segmeter.cli.config.decision_schema import SuspectsConfig
from segmeter.cli.config.model_schema import EvalConfig
from segmeter.cli.runs.run_folder import Job, note_done, open_run
from segmeter.data.files.sniff import known_place
from segmeter.errors import ConfigError, DataError
from segmeter.evaluation.decisions.held_out import HeldOut, open_held_out, read_held_out
from segmeter.evaluation.decisions.label_next import rank_images
from segmeter.evaluation.decisions.suspects import COCO, OUTLINES, TABLE, find_in_runs
from segmeter.evaluation.finished.pieces import find_runs
from segmeter.files import make_folder, write_bytes, write_json
from segmeter.records import CONFIG, read_run, read_yaml
from segmeter.report.decisions import print_shown
from segmeter.report.html import write_report
from segmeter.report.suspects import CROPS, draw_crop, show_label_next, show_suspects


def run(config: SuspectsConfig, job: Job) -> None:
    """Rank suspects or images, print the first ones, and write figures, a page, and files for annotation tools.

    Raises
    ------
    InputError
        A run kept no probabilities, or its model saw the cases. No folder is left.
    """
    folders = find_runs("suspects", config.runs)
    runs = [_open(folder) for folder in folders] if config.order == "suspects" else []
    with open_run(config, job, facts={"runs": [known_place(folder) for folder in folders]}) as folder:
        figures = folder / f"{config.order}.json"
        if config.order == "label_next":
            result = rank_images(folders)
            write_json(figures, result)
        else:
            result = find_in_runs(runs, config, config.seed, folder)
            write_json(figures, result)
            _draw(folder, runs, result["suspects"][: config.shown])
        note_done(folder, {})
        page = write_report(folder)
    if config.order == "label_next":
        print_shown(show_label_next(result), {"figures": figures, "report": page})
        return
    files = {"figures": figures, "all": folder / TABLE, "QuPath": folder / OUTLINES, "COCO": folder / COCO}
    print_shown(show_suspects(result, folder), {**files, "report": page})


def _open(folder: Path) -> HeldOut:
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
    return open_held_out(folder, evaluated.data)


def _draw(folder: Path, runs: Sequence[HeldOut], rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw the crop of each suspect, into files named by rank."""
    by_case = defaultdict[str, list[Mapping[str, Any]]](list)
    for row in rows:
        by_case[row["case_id"]].append(row)
    make_folder(folder / CROPS)
    for run in runs:
        for index in (i for i, case_id in enumerate(run.dataset.case_ids) if case_id in by_case):
            sample, target, probs = read_held_out(run, index)
            half = 127 if probs.dtype == "uint8" else 0.5
            labels = probs.argmax(axis=0) if len(probs) > 1 else (probs[0] > half).astype("uint8")
            for row in by_case[sample.case_id]:
                picture = draw_crop(sample.image, target, labels, row, run.dataset.spec)
                write_bytes(folder / CROPS / f"{row['rank']}.webp", picture)
