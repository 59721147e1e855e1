"""`segmeter tune`: chooses threshold and post-processing on the validation split, with an honest interval."""

from segmeter.cli.config.decision_schema import TuneConfig
from segmeter.cli.runs.run_folder import Job, note_done, open_run
from segmeter.data.verification.report import open_splits
from segmeter.evaluation.decisions.settings import parse_over
from segmeter.evaluation.decisions.tune import (
    TuneJob,
    note_tuned,
    refuse_test,
    stored_predictions,
    tune,
    write_settings,
    write_tuned,
)
from segmeter.files import write_json
from segmeter.inference.device import pick_device
from segmeter.inference.predictor import Predictor
from segmeter.metrics.config.metrics import check_metrics, with_objects
from segmeter.metrics.summary.scoreboard import settle_headline
from segmeter.metrics.summary.slice_labels import check_case_ids
from segmeter.models.trained import read_checkpoints
from segmeter.report.decisions import print_shown, show_tuned, write_shown
from segmeter.report.html import write_report
from segmeter.threads import share_cores


def run(config: TuneConfig, job: Job) -> None:
    """Tune, print the answer, and write tune.json, tune.parquet, tuned.yaml, the chart and the page.

    Raises
    ------
    ConfigError
        A setting can't be tried, or the split is the test split.
    """
    refuse_test(config.data.split)
    share_cores()
    checkpoint = read_checkpoints(config.checkpoints)
    spec = checkpoint.card.spec
    metrics = with_objects(config.metrics) if config.data.instances else config.metrics
    check_metrics(metrics, spec)
    metrics = settle_headline(metrics.replace(headline=config.by or metrics.headline), spec)
    settings = parse_over(config.over, spec, threshold=config.inference.threshold, steps=config.postprocess.steps)
    (dataset,), (report,) = open_splits(config.data, [config.data.split])
    check_case_ids(metrics, dataset.spec, dataset.case_ids, images=True)
    facts, inference = {**checkpoint.facts(), "data": report.content_sha256}, config.inference
    if config.probs is None:
        predictor = Predictor(checkpoint.load(pick_device(config.device)), inference, pick_device(config.device))
        predictions = predictor.predict(dataset, probs=settings.need_probs)
        facts["precision"] = predictor.precision
    else:
        predictions, inference = stored_predictions(config.probs, dataset, facts)
    with open_run(config, job, facts=facts) as folder:
        result = tune(TuneJob(predictions=predictions, dataset=dataset, metrics=metrics, settings=settings))
        write_json(folder / "tune.json", result)
        write_settings(folder / "tune.parquet", result)
        tuned = folder / "tuned.yaml"
        note = f"Chosen by {result['by']} on {result['n_cases']} cases of split {result['split']}; see tune.json."
        write_tuned(tuned, settings.every[result["chosen"]], inference, note)
        note_tuned(checkpoint.folders, tuned, result, dataset)
        shown = show_tuned(result)
        write_shown(folder, "tune", shown)
        note_done(folder, {result["by"]: result["score"]})
        page = write_report(folder)
    print_shown(shown, {"figures": folder / "tune.json", "tuned": tuned, "report": page})
