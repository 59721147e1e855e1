"""`segmeter tune`: chooses threshold and post-processing on the validation split, with an honest interval."""

from collections.abc import Iterator
from pathlib import Path

from segmeter.checks import expected
from segmeter.cli.commands.decide import Decision, record
from segmeter.cli.config.model_command_configs import TuneConfig
from segmeter.cli.folders import Job
from segmeter.cli.results import settle_metrics
from segmeter.data.verification.splits import open_splits
from segmeter.errors import ConfigError
from segmeter.evaluation.decisions.settings import parse_over
from segmeter.evaluation.decisions.tune import (
    has_room,
    keep_probs,
    note_tuned,
    refuse_test,
    settings_table,
    stored_predictions,
    tune,
    write_tuned,
)
from segmeter.inference.device import pick_device
from segmeter.inference.predictor import Predictor
from segmeter.inference.results import Prediction
from segmeter.metrics.summary.slice_labels import check_case_ids
from segmeter.models.trained import read_checkpoints
from segmeter.report.decisions import show_tuned
from segmeter.threads import share_cores


def run_tune(config: TuneConfig, job: Job) -> None:
    """Tune, print the answer, and write tune.json, tune.parquet, tuned.yaml, the chart and the page.

    Raises
    ------
    ConfigError
        A setting can't be tried, or the split is the test split.
    """
    refuse_test(config.data.split)
    share_cores()
    checkpoint = read_checkpoints(config.checkpoints, user_card=config.model, spec=config.data.spec())
    spec = checkpoint.card.spec
    best_class_decides = bool(checkpoint.card.class_map)  # such a model has no threshold
    if best_class_decides and spec.task == "binary":
        rule = "to decide by a threshold in a binary task"
        given = f"{checkpoint.card.model['name']}, whose best class decides"
        raise ConfigError(expected("tune", "checkpoint", rule, given, "Compare runs of eval instead."))
    if best_class_decides and config.probs is not None:
        rule = f"to be null for {checkpoint.card.model['name']}, whose best class decides each pixel"
        raise ConfigError(expected("tune", "probs", rule, config.probs))
    metrics = config.metrics.replace(headline=config.by or config.metrics.headline)
    metrics = settle_metrics(metrics, spec, instances=config.data.instances)
    settings = parse_over(config.over, spec, threshold=config.inference.threshold, steps=config.postprocess.steps)
    (dataset,), (report,) = open_splits(config.data, [config.data.split])
    check_case_ids(metrics, dataset.spec, dataset.case_ids, images=True)
    facts = {**checkpoint.facts(), "data": report.content_sha256}
    inference = config.inference
    keeps_probs = False
    predictions: Iterator[Prediction]
    if config.probs is None:
        device = pick_device(config.device)
        predictor = Predictor(checkpoint.load(device), inference, device)
        pixels = report.total_pixels // (spec.num_classes if spec.is_multilabel else 1)
        has_probs = checkpoint.card.output == "logits" and not best_class_decides
        keeps_probs = has_probs and has_room(pixels, spec, keep_gb=config.keep_gb)
        predictions = predictor.predict(dataset, probs=settings.need_probs or keeps_probs)
        facts["precision"] = predictor.precision
    else:
        predictions, inference = stored_predictions(config.probs, dataset, facts)

    def decide(folder: Path) -> Decision:
        tried = keep_probs(predictions, folder, dataset, needed=settings.need_probs) if keeps_probs else predictions
        result = tune(tried, dataset, metrics, settings)
        tuned = folder / "tuned.yaml"
        note = f"Chosen by {result['by']} on {result['n_cases']} cases of split {result['split']}; see tune.json."
        write_tuned(tuned, settings.every[result["chosen"]], inference, note)
        note_tuned(checkpoint.folders, tuned, result, dataset)
        return Decision(
            result=result,
            rows=settings_table(result),
            shown=show_tuned(result),
            files={"tuned": tuned},
            numbers={result["by"]: result["score"]},
        )

    record(config, job, "tune", decide, facts=facts)
