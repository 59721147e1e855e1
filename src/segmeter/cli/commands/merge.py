"""`segmeter merge`: the shards of a run, or the folds of a cross-validation -> one run."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from segmeter.checks import expected
from segmeter.cli.commands._score_pictures import headlines
from segmeter.cli.config.schema import ROOTS, MergeConfig
from segmeter.cli.runs.job import Job
from segmeter.cli.runs.run_folder import note_done, open_run
from segmeter.errors import ConfigError, DataError
from segmeter.evaluation.merging.merge import Merge, check_merge, merge
from segmeter.evaluation.merging.pieces import Piece, read_pieces
from segmeter.files import link_or_copy, make_folder
from segmeter.metrics.cases.table import read_cases
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.report.config import ReportConfig
from segmeter.report.figures import aggregates
from segmeter.report.gallery import choose_cases
from segmeter.report.html import write_report
from segmeter.report.overlay import picture_path
from segmeter.report.table import print_summary
from segmeter.schema import Config


def run(config: MergeConfig, job: Job) -> float | None:
    """Merge; returns the headline over the data set, None for predict.

    Raises
    ------
    InputError
        The runs are not parts of one run; each difference has its line, and no folder is left.
    """
    pieces = read_pieces(config.runs)
    merging = Merge(pieces=pieces, kind=config.kind, metrics=_metrics_of(pieces[0]), folder=Path())
    check_merge(merging)
    with open_run(config, job, facts=_facts(merging)) as folder:
        summary = merge(replace(merging, folder=folder))
        take_pictures(pieces, folder, config.report, merging.metrics)
        note_done(folder, {row["name"]: row["dataset"] for row in aggregates(summary)} if summary else {})
        if config.report.html:
            write_report(folder, config.report)
    return _show(config, folder, summary)


def _metrics_of(piece: Piece) -> MetricsConfig | None:
    """What a run was measured with, from its config.yaml; `check_merge` compares it with the manifest."""
    if piece.command == "predict":
        return None
    path = piece.folder / "config.yaml"
    try:
        config: Config = ROOTS[piece.command].model_validate(yaml.safe_load(path.read_bytes()))
    except OSError as error:
        raise DataError(expected("merge", "runs", "to hold config.yaml", f"{path} ({error.strerror})")) from error
    except (ValueError, yaml.YAMLError, ConfigError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(expected("merge", "runs", "to have a whole config.yaml", f"{path} ({reason})")) from error
    metrics: MetricsConfig = config.metrics  # type: ignore[attr-defined]
    return metrics


def _facts(job: Merge) -> dict[str, Any]:
    """What run.json says: what was joined, and what the runs themselves say of checkpoint and data."""
    records = [piece.record for piece in job.pieces]
    shared = ("predictions", "references", "probs", "data", "checkpoint", "checkpoint_sha256", "trained")
    kept = {key: records[0][key] for key in shared if all(each.get(key) == records[0].get(key) for each in records)
            and key in records[0]}  # fmt: skip
    joined = {"command": job.pieces[0].command, "kind": job.kind, "runs": [str(piece.folder) for piece in job.pieces]}
    return {**kept, "merged": joined}


def take_pictures(pieces: Sequence[Piece], folder: Path, config: ReportConfig, metrics: MetricsConfig | None) -> None:
    """Take over the pictures that the whole run would have: its worst cases are among the worst of their shard."""
    found = {path.stem: path for piece in pieces for path in sorted((piece.folder / "overlays").glob("*.png"))}
    if not found:
        return
    spec, scores = pieces[0].spec, dict[str, float | None]()
    if spec is None or metrics is None:  # predict: without scores none is worst
        scores = dict.fromkeys(case_id for piece in pieces for case_id in piece.cases)
        config = config.replace(worst=0)
    else:
        scores |= headlines(read_cases(folder), spec, metrics)
    make_folder(folder / "overlays")
    for case_id in sorted(choose_cases(scores, config)):
        target = picture_path(folder / "overlays", case_id)
        if target.stem in found:
            link_or_copy(found[target.stem], target)


def _show(config: MergeConfig, folder: Path, summary: dict[str, Any]) -> float | None:
    if not summary:
        sys.stdout.write(f"predictions   {folder / 'predictions'}\n")
        return None
    print_summary(summary)
    if "merged" in summary:
        sys.stdout.write(f"out of fold: the rows of {summary['merged']['n_runs']} checkpoints, each on its own cases\n")
    lines = [f"figures   {folder / 'metrics.json'}", f"cases     {folder / 'cases.csv'}"]
    if config.report.html:
        lines.append(f"report    {folder / 'report.html'}")
    sys.stdout.write("\n".join(lines) + "\n")
    value: float | None = aggregates(summary)[0]["dataset"]
    return value
