"""`segmeter compare`, `merge` and `report`: the commands that work on finished runs."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from segmeter.checks import expected
from segmeter.cli.config.command_configs import CompareConfig, MergeConfig
from segmeter.cli.config.groups import ROOTS
from segmeter.cli.folders import NO_FOLDER, Job
from segmeter.cli.results import find_objective, record_results
from segmeter.cli.run_folder import note_done, open_run, show_files
from segmeter.data.files.refusals import known_place
from segmeter.errors import EXIT_REGRESSION, EXIT_UNDECIDED, ConfigError, DataError, GateError
from segmeter.evaluation.compare import compare
from segmeter.evaluation.merge import Merge, check_merge, merge
from segmeter.evaluation.pieces import Piece, read_pieces
from segmeter.files import link_or_copy, make_folder, write_bytes, write_json
from segmeter.metrics.cases.stored import open_cases
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.scoreboard import build_scoreboard
from segmeter.records import CONFIG, read_yaml
from segmeter.report.config import ReportConfig
from segmeter.report.html import write_index, write_report
from segmeter.report.page.comparison import gate_lines, markdown_summary, print_comparison
from segmeter.report.pictures.chosen import Ranking, choose_cases
from segmeter.report.pictures.flatten import OVERLAYS, picture_path
from segmeter.report.pictures.layers import layers_path
from segmeter.report.pictures.worst import crops_path, write_worst_list
from segmeter.report.summary import print_summary
from segmeter.schema import Config

_USAGE = "Write segmeter report run=RUN, with report.pictures=link or report.picture_mb=20 if need be, or runs=ROOT."
_EXITS = {"regression": EXIT_REGRESSION, "unknown": EXIT_UNDECIDED}


def run_compare(config: CompareConfig, job: Job) -> None:
    """Compare, print the tables, and write compare.json, compare.html and compare.md.

    Raises
    ------
    InputError
        The runs are not comparable. Each difference has its line, and no folder is made.
    GateError
        A requirement is violated or undecided. The files are written anyway.
    """
    result = compare(config.runs, config.metrics, rank_by=config.rank_by, require=config.require)
    with open_run(config, job, facts={"runs": result["folders"]}) as folder:
        write_json(folder / "compare.json", result)
        write_bytes(folder / "compare.md", markdown_summary(result).encode("utf-8", "replace"))
        note_done(folder, {})
        page = write_report(folder)
    print_comparison(result)
    sys.stdout.write(f"result    {folder / 'compare.json'}\nsummary   {folder / 'compare.md'}\n")
    sys.stdout.write(f"report    {page}\n")
    outcome = result["gate"]["outcome"] if "gate" in result else "pass"
    if outcome != "pass":
        raise GateError(gate_lines(result), exit_code=_EXITS[outcome])


def run_merge(config: MergeConfig, job: Job) -> float | None:
    """Merge, and return the headline over the data set, or None for predict.

    Raises
    ------
    InputError
        The runs are not parts of one run. Each difference has its line, and no folder is left.
    """
    pieces = read_pieces(config.runs)
    merging = Merge(pieces=pieces, kind=config.kind, metrics=metrics_of(pieces[0]), folder=NO_FOLDER)
    check_merge(merging)
    first, *others = (piece.record for piece in pieces)
    keys = ("predictions", "references", "probs", "data", "checkpoint", "checkpoint_sha256", "trained")
    shared = [key for key in keys if key in first and all(record.get(key) == first[key] for record in others)]
    facts: dict[str, Any] = {key: first[key] for key in shared}
    folders = [known_place(piece.folder) for piece in pieces]
    facts["merged"] = {"command": pieces[0].command, "kind": config.kind, "runs": folders}
    with open_run(config, job, facts=facts) as folder:
        summary, value = merge_into(replace(merging, folder=folder), config.report, None)
    show_merged(folder, summary)
    return value


def merge_into(merging: Merge, report: ReportConfig, objective: str | None) -> tuple[dict[str, Any], float | None]:
    """Merge runs into a folder, with pictures and report. Return the summary, and the score that a sweep compares."""
    summary = merge(merging)
    take_pictures(merging.pieces, report, merging.metrics, merging.folder)
    spec = merging.pieces[0].spec
    if summary and merging.metrics is not None and spec is not None:
        objective = find_objective(objective, merging.metrics, spec)
    return summary, record_results(merging.folder, summary, report, objective)


def metrics_of(piece: Piece) -> MetricsConfig | None:
    """Read the metrics from a run's config.yaml. `check_merge` compares them with the manifest."""
    if piece.command == "predict":
        return None
    path = piece.folder / CONFIG
    try:
        config: Config = ROOTS[piece.command].model_validate(read_yaml(path))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(expected("merge", "runs", "to have a whole config.yaml", f"{path} ({reason})")) from error
    metrics: MetricsConfig = config.metrics  # type: ignore[attr-defined]
    return metrics


def show_merged(folder: Path, summary: dict[str, Any]) -> None:
    """Print the results of a merged run, and where its files are."""
    if not summary:
        sys.stdout.write(f"predictions   {folder / 'predictions'}\n")
        return
    print_summary(summary)
    if "merged" in summary:
        sys.stdout.write(f"out of fold: the rows of {summary['merged']['n_runs']} checkpoints, each on its own cases\n")
    show_files(folder)


def take_pictures(pieces: Sequence[Piece], config: ReportConfig, metrics: MetricsConfig | None, folder: Path) -> None:
    """Copy the pictures that an unsharded run would have. Its worst cases are among the worst of each piece."""
    spec = pieces[0].spec
    if spec is not None and metrics is not None:
        ranking = Ranking.of(build_scoreboard(open_cases([folder]), spec, metrics))
    else:  # predict has no scores, so no case is worst
        ranking = Ranking(case_ids=[case_id for piece in pieces for case_id in piece.cases])
        config = config.replace(worst=0)
    case_ids = sorted(choose_cases(ranking, config))
    targets = [picture_path(folder / OVERLAYS, case_id) for case_id in case_ids]
    targets += [layers_path(folder, case_id) for case_id in case_ids]
    targets += [crops_path(folder, case_id) for case_id in ranking.worst[: config.worst]]
    for target in targets:
        sources = (piece.folder / target.relative_to(folder) for piece in pieces)
        source = next((path for path in sources if path.exists()), None)
        if source is not None:
            make_folder(target.parent)
            link_or_copy(source, target)
    if spec is not None and metrics is not None:
        write_worst_list(folder, spec, metrics, config.worst)


def run_report(arguments: Sequence[str]) -> None:
    """Rebuild report.html from a run's files. The report settings are the run's, except for those that are given.

    With ``runs=ROOT``, write ROOT/index.html instead.

    Raises
    ------
    ConfigError
        There is not exactly one folder, it is not a run, or a setting is not one of the report.
    """
    folders = [argument for argument in arguments if not argument.startswith("report.")]
    settings = [argument.removeprefix("report.") for argument in arguments if argument.startswith("report.")]
    wants_index = any(argument.startswith("runs=") for argument in folders)
    if len(folders) != 1 or (wants_index and settings) or not all("=" in setting for setting in settings):
        raise ConfigError(f"report: expected one run folder, got {' '.join(arguments) or 'none'}. {_USAGE}")
    folder = Path(folders[0].removeprefix("runs=").removeprefix("run="))
    if not folder.is_dir():
        raise ConfigError(f"report: expected a run folder of this machine, got {folder.absolute()}.")
    if wants_index:
        sys.stdout.write(f"index     {write_index(folder)}\n")
        return
    try:
        given = {key: yaml.safe_load(value) for key, _, value in (setting.partition("=") for setting in settings)}
    except (ValueError, yaml.YAMLError) as error:
        values = " ".join(f"report.{setting}" for setting in settings)
        raise ConfigError(expected("report", "report.*", "to be values that YAML can read", values)) from error
    try:
        saved = read_yaml(folder / CONFIG).get("report")
    except FileNotFoundError:
        saved = None
    saved = saved if isinstance(saved, dict) else {}
    # another version may have saved keys that this one lacks
    known = {key: value for key, value in saved.items() if key in ReportConfig.model_fields}
    sys.stdout.write(f"report    {write_report(folder, ReportConfig(**known | given))}\n")
