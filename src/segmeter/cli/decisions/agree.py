"""`segmeter agree`: how far several readers agree, without a reference, and who stands apart."""

from pathlib import Path

from segmeter.cli.config.decision_schema import AgreeConfig
from segmeter.cli.decisions._recorded import Decision, record
from segmeter.cli.runs.run_folder import Job
from segmeter.data.files.sniff import known_place
from segmeter.data.masks.options import Reading
from segmeter.evaluation.decisions.agree import (
    AgreeJob,
    agree,
    check_readers,
    find_cases,
    masks_of_run,
    name_readers,
)
from segmeter.metrics.config.metrics import check_metrics, with_objects
from segmeter.metrics.summary.scoreboard import settle_headline
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

    def decide(folder: Path) -> Decision:
        result, rows = agree(agreeing, folder)
        files = {"consensus": folder / "consensus"} if config.consensus and not config.data.instances else {}
        return Decision(result=result, rows=rows, shown=show_agreement(result), files=files)

    places = {name: known_place(place) for name, place in masks.items()}
    record(config, job, "agree", decide, facts={"readers": places})
