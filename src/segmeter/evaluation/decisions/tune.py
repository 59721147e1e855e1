"""Tries settings of threshold and post-processing on the validation split, with one forward pass per image.

It also writes the files of the chosen setting, and warns of evaluations on the cases that it was chosen on.
"""

import logging
import pickle
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml
from pydantic import ValidationError

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.dataset import Dataset
from segmeter.errors import ConfigError, DataError, InputError
from segmeter.evaluation.decisions.held_out import HeldOut, find_probs, read_held_out
from segmeter.evaluation.decisions.settings import Setting, Settings, count_settings, labels_at
from segmeter.evaluation.evaluate import measure_prediction
from segmeter.export.config import ExportConfig
from segmeter.export.writer import Writer
from segmeter.files import write_bytes, write_json
from segmeter.inference.config import InferenceConfig
from segmeter.inference.results import Prediction
from segmeter.metrics.cases.table import CaseRow, order_rows
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import Measure, build_measures
from segmeter.metrics.summary.scoreboard import Scoreboard, build_scoreboard
from segmeter.metrics.summary.tune import tune_boards
from segmeter.parallel import map_in_threads
from segmeter.postprocess.pipeline import run_steps
from segmeter.progress import track
from segmeter.records import CONFIG, read_json, read_run, read_yaml
from segmeter.schema import as_plain

CARD = "tuned.json"  # This file beside a checkpoint names its tuned settings, and the cases they were chosen on
_LOG = logging.getLogger(__name__)


def tune(
    predictions: Iterable[Prediction], dataset: Dataset, metrics: MetricsConfig, settings: Settings
) -> dict[str, Any]:
    """Measure every setting on predictions that are made once, and choose by the headline.

    Each case is counted under all settings as soon as it is predicted. The counts wait on disk, so memory holds the
    counts of only one setting at a time.

    Parameters
    ----------
    predictions
        Of every case of the data set, with probabilities where settings have thresholds.
    dataset
        The validation split.
    metrics
        The metrics, with the headline's full name.
    settings
        From `parse_over`.

    Returns
    -------
    dict
        The content of tune.json, see `segmeter.metrics.summary.tune.Tuned`.

    Raises
    ------
    DataError
        A file can't be read.
    InputError
        A case has no target, or is too large for memory, or the headline is no score of the cases.
    RunError
        A prediction is not finite.
    """
    spec = dataset.spec
    offsets = list[list[int]]()  # of each case's row under each setting, in the file
    work = partial(_rows, spec, metrics, settings, build_measures(metrics, spec))
    with tempfile.TemporaryFile() as file:
        for rows in track(map_in_threads(work, predictions, name="measure"), "tuning", len(dataset)):
            offsets.append([])
            for row in rows:
                offsets[-1].append(file.tell())
                pickle.dump(row, file, pickle.HIGHEST_PROTOCOL)

        def boards() -> Iterator[Scoreboard]:
            for offsets_of_setting in zip(*offsets, strict=True):
                rows = list[CaseRow]()
                for offset in offsets_of_setting:
                    file.seek(offset)
                    rows.append(pickle.load(file))
                yield build_scoreboard(order_rows("tune", rows, spec), spec, metrics)

        return tune_boards(
            boards(),
            [{key: str(value) for key, value in setting.values.items()} for setting in settings.every],
            by=str(metrics.headline),
            usual=settings.usual,
            simplicity=[setting.simplicity for setting in settings.every],
            split=dataset.split or "",
        )


def _rows(
    spec: ClassSpec, metrics: MetricsConfig, settings: Settings, measures: Sequence[Measure], prediction: Prediction
) -> list[CaseRow]:
    """Make the row of a case under each setting: of counts alone, or of everything if the metrics need more."""
    sample = prediction.sample
    labels, probs = prediction.labels, prediction.probs
    if not isinstance(sample.target, np.ndarray):
        rule = "to have a target that fits into memory"
        raise InputError(expected("tune", "data", rule, f"case {sample.case_id!r} without one"))
    height, width = sample.target.shape[-2:]
    if not measures:
        tables = count_settings(sample.target, settings, spec, labels=labels, probs=probs)
        return [CaseRow(case_id=sample.case_id, height=height, width=width, counts=counts) for counts in tables]
    rows = []
    for setting in settings.every:
        uncleaned = labels_at(setting, spec, labels=labels, probs=probs)
        cleaned = run_steps(uncleaned, setting.steps, spec, probs)
        rows.append(measure_prediction(metrics, measures, spec, prediction, cleaned))
    return rows


def stored_predictions(
    run: Path, dataset: Dataset, facts: Mapping[str, Any]
) -> tuple[Iterator[Prediction], InferenceConfig]:
    """Take the probabilities of an evaluation, and the way its model was run, instead of running it again.

    Parameters
    ----------
    run
        The folder of an earlier `tune` or `eval` of the same cases.
    dataset
        The cases.
    facts
        The hashes `checkpoint_sha256` and `data` of this run.

    Raises
    ------
    ConfigError
        The run is of another checkpoint or data.
    DataError
        Files are missing, or don't fit.
    """
    try:
        record = read_run(run)
        inference = InferenceConfig.model_validate(read_yaml(run / CONFIG)["inference"])
    except (OSError, KeyError, ValidationError) as error:
        rule = "to be a run of eval or tune whose `inference` in config.yaml can be read; a merge has none"
        given = f"{run} ({' '.join(str(error).split())[:200]})"
        raise DataError(expected("tune", "probs", rule, given)) from error
    if any(record.get(key) != facts[key] for key in ("checkpoint_sha256", "data")):
        given = f"{run}, of {record.get('command')} and {record.get('checkpoint')}, or its files have changed"
        raise ConfigError(expected("tune", "probs", "to be a run of the same checkpoint, split and files", given))
    evaluated = HeldOut(folder=run, dataset=dataset, probs=find_probs("tune", run, dataset.case_ids))

    def read(index: int) -> Prediction:
        sample, _, probs = read_held_out(evaluated, index)
        return Prediction(sample=sample, labels=probs.argmax(axis=0).astype(dataset.spec.label_dtype), probs=probs)

    return map_in_threads(read, range(len(dataset)), name="probabilities"), inference


def has_room(pixels: int, spec: ClassSpec, *, keep_gb: float) -> bool:
    """Tell whether the probabilities of some pixels fit into a space on disk, and warn if they don't.

    This is known before the network runs, so that probabilities that nobody needs are not computed.
    """
    fits = pixels * spec.num_channels * np.dtype(np.float16).itemsize <= keep_gb * 2**30
    if keep_gb and not fits:
        _LOG.warning("tune: probabilities need more than keep_gb=%g, so none are kept.", keep_gb)
    return fits


def keep_probs(
    predictions: Iterable[Prediction], folder: Path, dataset: Dataset, *, needed: bool
) -> Iterator[Prediction]:
    """Write the probabilities of predictions as they pass, for `stored_predictions`.

    Unless the settings need the probabilities, they are dropped after that.

    Raises
    ------
    RunError
        A file can't be written.
    """
    options = ExportConfig(labels=False, probs=True, probs_dtype="float16")
    writer = Writer(folder / "predictions", options, dataset.spec)
    for prediction in predictions:
        writer.write(prediction.sample.case_id, prediction.labels, probs=prediction.probs)
        yield prediction if needed else replace(prediction, probs=None)


def write_tuned(path: Path, setting: Setting, inference: InferenceConfig, note: str) -> None:
    """Write the chosen setting for `segmeter eval postprocess=FILE`, and how the model was run if that matters."""
    usual = InferenceConfig()
    changed = {key: value for key, value in as_plain(inference).items() if value != getattr(usual, key)}
    if setting.threshold is not None:
        changed["threshold"] = setting.threshold
    content = {"inference": changed, "postprocess": {"steps": [as_plain(step) for step in setting.steps]}}
    write_bytes(path, f"# {note}\n{yaml.safe_dump(content, sort_keys=False)}".encode())


def settings_table(result: Mapping[str, Any]) -> pa.Table:
    """List every setting with its score, one row each."""
    rows = []
    for s, setting in enumerate(result["settings"]):
        low, high = setting["ci95"]
        numbers = {"score": setting["score"], "low": low, "high": high, "gain": setting["gain"]}
        floats = {name: None if value is None else float(value) for name, value in numbers.items()}  # also of "inf"
        marks = {"share": setting["share"], "chosen": s == result["chosen"], "usual": s == result["usual"]}
        rows.append(setting["values"] | floats | marks)
    return pa.Table.from_pylist(rows)


def note_tuned(checkpoints: Sequence[Path], tuned: Path, result: Mapping[str, Any], dataset: Dataset) -> None:
    """Name the file of the chosen setting, and the cases that it was chosen on, beside each checkpoint."""
    entry = {"schema": 1, "tuned": str(tuned.absolute()), "values": result["settings"][result["chosen"]]["values"]}
    entry |= {"by": result["by"], "split": result["split"], "cases": list(dataset.case_ids)}
    for folder in checkpoints:
        try:
            write_json(folder / CARD, entry)
        except OSError as error:
            _LOG.warning("tune: %s can't be written (%s), so eval can't warn of these cases.", folder / CARD, error)


def tuning_warnings(checkpoints: Sequence[Path], case_ids: Sequence[str]) -> Iterator[str]:
    """Warn of cases on which a setting of a checkpoint was chosen: their scores are too good with that setting."""
    for folder in checkpoints:
        try:
            card = read_json(folder / CARD)
        except (OSError, InputError):
            continue
        shared = set(card.get("cases", ())) & set(case_ids)
        if shared:
            used = f"eval: {len(shared)} of {len(case_ids)} cases were used to choose {card.get('tuned')}."
            yield f"{used} With that setting their scores are too good; evaluate it on the test split."


def refuse_test(split: str) -> None:
    """Refuse to tune on the test split.

    Raises
    ------
    ConfigError
        `split` is "test", or "all", which contains it.
    """
    if split in ("test", "all"):
        remedy = "Settings that are chosen on test cases have no honest score left. Leave data.split out."
        raise ConfigError(expected("tune", "data.split", "to be val or train", repr(split), remedy))
