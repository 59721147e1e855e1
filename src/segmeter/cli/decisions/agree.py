"""`segmeter agree`: how far several readers agree, without a reference, and who stands apart."""

from pathlib import Path

from segmeter.cli.config.decision_schema import AgreeConfig
from segmeter.cli.runs.run_folder import Job, note_done, open_run
from segmeter.data.files.sniff import known_place
from segmeter.data.masks.options import Reading
from segmeter.evaluation.decisions.agree import (
    TABLE,
    AgreeJob,
    agree,
    check_readers,
    find_cases,
    masks_of_run,
    name_readers,
)
from segmeter.files import write_json
from segmeter.metrics.config.metrics import check_metrics, with_objects
from segmeter.metrics.summary.scoreboard import settle_headline
from segmeter.report.decisions import print_shown
from segmeter.report.html import write_report
from segmeter.report.readers import show_agreement


def run(config: AgreeConfig, job: Job) -> None:
    """Compare the readers, print who agrees with whom, and write agree.json, agree.parquet, agree.html and consensus.

    Raises
    ------
    InputError
        Fewer than two readers, or files that can't be read or don't fit together. No folder is left.
    """
    check_readers(config.data)
    spec = config.data.spec()
    readers, models = name_readers(config)
    runs = {place.resolve() for place in config.runs}
    masks: dict[str, Path] = {
        name: masks_of_run(place) if place.resolve() in runs else place for name, place in (readers | models).items()
    }
    metrics = with_objects(config.metrics) if config.data.instances else config.metrics
    check_metrics(metrics, spec)
    cases, left_out = find_cases(masks, spec, missing=config.missing)
    agreeing = AgreeJob(
        readers=readers,
        models=models,
        cases=cases,
        left_out=left_out,
        reading=Reading.of(config.data, spec),
        metrics=settle_headline(metrics, spec),
        keys=config,
    )
    with open_run(
        config, job, facts={"readers": {name: known_place(place) for name, place in masks.items()}}
    ) as folder:
        result = agree(agreeing, folder)
        write_json(folder / "agree.json", result)
        note_done(folder, {})
        page = write_report(folder)
    files = {"figures": folder / "agree.json", "cases": folder / TABLE}
    files |= {"consensus": folder / "consensus"} if config.consensus and not config.data.instances else {}
    print_shown(show_agreement(result), {**files, "report": page})
