"""`segmeter plan`, `agree` and `suspects`: the commands that read finished runs and help to decide what to do next."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from segmeter.checks import expected
from segmeter.cli.config.command_configs import Common
from segmeter.cli.config.model_command_configs import AgreeConfig, EvalConfig, PlanConfig, SuspectsConfig
from segmeter.cli.folders import Job
from segmeter.cli.results import settle_metrics
from segmeter.cli.run_folder import note_done, open_run
from segmeter.data.files.refusals import known_place
from segmeter.data.sample import Reading
from segmeter.errors import ConfigError, DataError
from segmeter.evaluation.decisions.agree import AgreeJob, agree, check_readers, find_cases, masks_of_run, name_readers
from segmeter.evaluation.decisions.held_out import HeldOut, open_held_out
from segmeter.evaluation.decisions.plan import plan_runs, points_table
from segmeter.evaluation.decisions.suspects import COCO, OUTLINES, find_in_runs, rank_images
from segmeter.evaluation.pieces import find_runs
from segmeter.files import atomic_write, write_json
from segmeter.metrics.summary.needed_cases import Aims, plan_published
from segmeter.records import CONFIG, read_run, read_yaml
from segmeter.report.decisions import Shown, print_shown, show_plan, write_charts
from segmeter.report.html import write_report
from segmeter.report.labels import draw_crop, show_agreement, show_label_next, show_suspects


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The answer of a command.

    Parameters
    ----------
    result, rows
        The contents of <name>.json, which has a schema, and of <name>.parquet.
    shown
        Tables, charts and lines for the terminal and the page.
    files
        Further files or folders to name on the terminal.
    numbers
        The results for run.json. A sweep compares the first.
    """

    result: dict[str, Any]
    rows: pa.Table
    shown: Shown
    files: Mapping[str, Path] = field(default_factory=dict)
    numbers: Mapping[str, float | None] = field(default_factory=dict)


def record(
    config: Common, job: Job, name: str, decide: Callable[[Path], Decision], *, facts: Mapping[str, Any]
) -> None:
    """Decide in the folder of a new run, write the files of the answer, and print it. Bad input leaves no folder."""
    with open_run(config, job, facts=dict(facts)) as folder:
        decision = decide(folder)
        write_json(folder / f"{name}.json", decision.result)
        with atomic_write(folder / f"{name}.parquet") as file:
            pq.write_table(decision.rows, file)
        write_charts(folder, name, decision.shown)
        note_done(folder, decision.numbers)
        page = write_report(folder)
    files = {"result": folder / f"{name}.json", "rows": folder / f"{name}.parquet", **decision.files}
    print_shown(decision.shown, files | {"report": page})


def run_plan(config: PlanConfig, job: Job) -> None:
    """Plan, print the answer, and write plan.json, plan.parquet, the chart and the page.

    Raises
    ------
    InputError
        The runs are not comparable, or have no such score. No folder is made.
    """
    aims = Aims(width=config.width, detect=config.detect, power=config.power)
    if config.sd is None:
        result = plan_runs(config.folders, config.metrics, aims, scores=config.scores)
    else:
        result = plan_published(mean=config.mean, sd=config.sd, cases=config.cases, config=config.metrics, aims=aims)
    decision = Decision(result=result, rows=points_table(result), shown=show_plan(result))
    record(config, job, "plan", lambda _: decision, facts={"runs": result["runs"]})


def run_agree(config: AgreeConfig, job: Job) -> None:
    """Compare the readers, print who agrees with whom, and write agree.json, agree.parquet, agree.html and consensus.

    Raises
    ------
    InputError
        Fewer than two readers, or files that can't be read or don't fit together. No folder is left.
    """
    check_readers(config.data)
    spec = config.data.spec()
    readers, models = name_readers(config)
    runs = {folder.resolve() for folder in config.runs}
    masks: dict[str, Path] = {
        name: masks_of_run(path) if path.resolve() in runs else path for name, path in (readers | models).items()
    }
    metrics = settle_metrics(config.metrics, spec, instances=config.data.instances)
    cases, left_out = find_cases(masks, spec, missing=config.missing)
    agree_job = AgreeJob(
        readers=readers,
        models=models,
        cases=cases,
        left_out=left_out,
        reading=Reading.of(config.data, spec),
        metrics=metrics,
        keys=config,
    )

    def decide(folder: Path) -> Decision:
        result, rows = agree(agree_job, folder)
        files = {"consensus": folder / "consensus"} if config.consensus and not config.data.instances else {}
        return Decision(result=result, rows=rows, shown=show_agreement(result), files=files)

    record(config, job, "agree", decide, facts={"readers": {name: known_place(path) for name, path in masks.items()}})


def run_suspects(config: SuspectsConfig, job: Job) -> None:
    """Rank suspects or images, print the first ones, and write the ranking, a page, and files for annotation tools.

    Raises
    ------
    InputError
        A run kept no probabilities, or its model saw the cases. No folder is left.
    """
    folders = find_runs("suspects", config.runs)
    runs = [_open(folder, unseen=config.unseen) for folder in folders] if config.order == "suspects" else []
    if config.order == "label_next":
        for folder in folders:
            _check_images(folder)

    def decide(folder: Path) -> Decision:
        if config.order == "label_next":
            result = rank_images(folders)
            rows = pa.Table.from_pylist([{**image, "distance": float(image["distance"])} for image in result["images"]])
            return Decision(result=result, rows=rows, shown=show_label_next(result))
        result, rows = find_in_runs(runs, config.seed, folder, draw_crop)
        files = {"QuPath": folder / OUTLINES, "COCO": folder / COCO}
        return Decision(result=result, rows=rows, shown=show_suspects(result, folder), files=files)

    record(config, job, config.order, decide, facts={"runs": [known_place(folder) for folder in folders]})


def _open(folder: Path, *, unseen: bool) -> HeldOut:
    """Open a finished evaluation with the configuration in its folder."""
    remedy = "Give the folder of a finished `segmeter eval`; score and predict know no training split."
    try:
        command = read_run(folder).get("command")
        if command != "eval":
            raise DataError(expected("suspects", "runs", "to be runs of eval", f"{folder}, of {command}", remedy))
        eval_config = EvalConfig.model_validate(read_yaml(folder / CONFIG))
    except OSError as error:
        given = f"{folder} ({error.strerror})"
        raise DataError(expected("suspects", "runs", "to be runs of eval", given, remedy)) from error
    except ValidationError as error:
        rule, reason = "to have a config.yaml that this version can read", " ".join(str(error).split())[:200]
        raise DataError(expected("suspects", "runs", rule, f"{folder / CONFIG} ({reason})")) from error
    _check_whole(folder, eval_config.shard)
    return open_held_out(folder, eval_config.data, unseen=unseen)


def _check_images(folder: Path) -> None:
    """Refuse a run that lacks images: one that is not finished, or a shard."""
    try:
        state, shard = read_run(folder).get("state"), read_yaml(folder / CONFIG).get("shard")
    except OSError:
        state, shard = "without run.json or config.yaml", None
    if state != "done":
        remedy = f"Finish it with resume={folder}."
        raise DataError(expected("suspects", "runs", "to be finished", f"{folder} ({state})", remedy))
    _check_whole(folder, shard)


def _check_whole(folder: Path, shard: object) -> None:
    if shard is not None:
        raise ConfigError(expected("suspects", "runs", "to be whole runs", f"{folder}, a shard", "Merge them first."))
