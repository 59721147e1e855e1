"""Tries settings of threshold and post-processing on the validation split, with one forward pass per image."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from segmeter.checks import expected, nearest
from segmeter.data.dataset import Dataset
from segmeter.errors import ConfigError, InputError
from segmeter.evaluation.decisions.settings import Setting, Settings, count_settings, labels_at
from segmeter.files import write_bytes, write_json
from segmeter.inference.predictor import Predictor
from segmeter.inference.results import Prediction
from segmeter.metrics.cases.table import CaseRow, order_rows
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, Measure, build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.summary.scoreboard import build_scoreboard
from segmeter.metrics.summary.tune import tune_boards
from segmeter.parallel import map_in_threads
from segmeter.postprocess.pipeline import run_steps
from segmeter.progress import track
from segmeter.records import read_json
from segmeter.schema import as_plain

CARD = "tuned.json"  # beside a checkpoint: what was tuned for it, and on which cases
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TuneJob:
    """A model, the cases to choose on, and the settings to try.

    Parameters
    ----------
    predictor
        The model. Its threshold does not matter.
    dataset
        The validation split.
    metrics
        With the headline's full name.
    settings
        From `parse_over`.
    """

    predictor: Predictor
    dataset: Dataset
    metrics: MetricsConfig
    settings: Settings


def tune(job: TuneJob) -> dict[str, Any]:
    """Run the network once, measure every setting, and choose by the headline.

    Probabilities are kept as one byte per pixel: how many of the thresholds each exceeds. Each case is counted under
    all settings as soon as it is predicted, so memory does not grow with the images.

    Returns
    -------
    dict
        The content of tune.json, see `segmeter.metrics.summary.tune.Tuned`.

    Raises
    ------
    DataError
        A file can't be read.
    InputError
        A case has no target, or is too large for memory.
    RunError
        A prediction is not finite.
    """
    spec, settings = job.dataset.spec, job.settings
    rows: list[list[CaseRow]] = [[] for _ in settings.every]
    thresholded = len(settings.thresholds) > 0
    measures = build_measures(job.metrics, spec)

    def work(prediction: Prediction) -> list[CaseRow]:
        levels = prediction.labels
        if thresholded and prediction.probs is not None:
            levels = settings.levels(prediction.probs)
        return _rows(job, prediction, levels, measures)

    found = job.predictor.predict(job.dataset, probs=thresholded)
    for case in track(map_in_threads(work, found, name="measure"), "tuning", len(job.dataset)):
        for kept, row in zip(rows, case, strict=True):
            kept.append(row)
    boards = [build_scoreboard(order_rows("tune", each, spec), spec, job.metrics) for each in rows]
    return tune_boards(
        boards,
        [{key: str(value) for key, value in one.values.items()} for one in settings.every],
        by=_score(boards[0].names, job.metrics),
        usual=settings.usual,
        simplicity=[one.simplicity for one in settings.every],
        split=job.dataset.split or "",
    )


def _score(names: Sequence[str], metrics: MetricsConfig) -> str:
    if metrics.headline in names:
        return str(metrics.headline)
    rule, given = "to be a score of the cases", repr(metrics.headline)
    raise InputError(expected("tune", "by", rule, given, nearest(str(metrics.headline), names)))


def _rows(
    job: TuneJob, prediction: Prediction, levels: np.ndarray[Any, Any], measures: Sequence[Measure]
) -> list[CaseRow]:
    """The row of a case under each setting: of counts alone, or of everything if the metrics need more."""
    sample, spec, settings = prediction.sample, job.dataset.spec, job.settings
    target = sample.target
    if not isinstance(target, np.ndarray):
        rule = "to have a target that fits into memory"
        raise InputError(expected("tune", "data", rule, f"case {sample.case_id!r} without one"))
    height, width = target.shape[-2:]
    if not measures:
        counts = count_settings(levels, target, settings, spec, probs=prediction.probs)
        return [CaseRow(case_id=sample.case_id, height=height, width=width, counts=each) for each in counts]
    maps = CaseMaps(
        case_id=sample.case_id,
        target=target,
        labels=target,
        spacing=job.metrics.spacing or (1.0, 1.0),
        spec=spec,
        target_instances=sample.instances,
    )

    def measured(setting: Setting) -> CaseRow:
        cleaned = run_steps(labels_at(levels, setting, settings, spec), setting.steps, spec, prediction.probs)
        own = replace(maps, labels=cleaned.labels, instances=cleaned.instances, kept={})
        return replace(make_row(own, measures), spacing=job.metrics.spacing)

    return [measured(setting) for setting in settings.every]


def write_tuned(path: Path, setting: Setting, note: str) -> None:
    """Write the chosen setting as a root file of `segmeter eval`, for --config-dir and --config-name."""
    content: dict[str, Any] = {"defaults": ["eval", "_self_"]}
    if setting.threshold is not None:
        content["inference"] = {"threshold": setting.threshold}
    content["postprocess"] = {"steps": [as_plain(step) for step in setting.steps]}
    text = f"# {note}\n" + yaml.safe_dump(content, sort_keys=False)
    write_bytes(path, text.encode())


def write_settings(path: Path, result: Mapping[str, Any]) -> None:
    """Write every setting with its score as a Parquet table, one row each."""
    rows = []
    for s, one in enumerate(result["settings"]):
        numbers = {"score": one["score"], "low": one["ci95"][0], "high": one["ci95"][1], "gain": one["gain"]}
        known = {name: None if value is None else float(value) for name, value in numbers.items()}  # "inf" too
        marks = {"share": one["share"], "chosen": s == result["chosen"], "usual": s == result["usual"]}
        rows.append(one["values"] | known | marks)
    content = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), content)
    write_bytes(path, content.getvalue().to_pybytes())


def note_tuned(checkpoints: Sequence[Path], tuned: Path, result: Mapping[str, Any], dataset: Dataset) -> None:
    """Name the file of the chosen setting, and the cases that it was chosen on, beside each checkpoint."""
    entry = {
        "schema": 1,
        "tuned": str(tuned.absolute()),
        "values": result["settings"][result["chosen"]]["values"],
        "by": result["by"],
        "split": result["split"],
        "cases": list(dataset.case_ids),
    }
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
