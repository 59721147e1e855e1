"""Measures how far several readers agree if there is no reference: in pairs, with the majority, and who stands apart.

A reader is a person or a model. In each case, its contrast is its mean agreement with the other readers, minus their
mean agreement with each other. Readers that are alike have a contrast of 0 on average, so a reader whose contrast is
worse beyond chance stands apart. The contrast of a model among readers tells whether the model is further from them
than they are from each other. Maps are joined by majority vote or by STAPLE. Axis letters: N cases, C columns of
values, R readers.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from segmeter.classes import ClassSpec
from segmeter.data.files.reader_process import need
from segmeter.metrics.arrays import FloatArray, json_number_or_inf, mean_defined, minus
from segmeter.metrics.cases.run_columns import lay_out_run
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.config.scores import find_direction, is_overall, name_change
from segmeter.metrics.statistics.bootstrap import Resampled
from segmeter.metrics.statistics.columns import mean_columns, mean_of_columns
from segmeter.metrics.statistics.paired_tests import exchanged, holm
from segmeter.metrics.summary.compare import values_of_units
from segmeter.metrics.summary.scoreboard import Scoreboard, build_scoreboards
from segmeter.metrics.summary.summarise import note_resampling
from segmeter.records import Form

SCHEMA = 1  # version of agree.json
CERTAIN = 0.05  # a reader stands apart if the adjusted p-value is below this
_RESAMPLES = 10_000  # resamples of the test if the configuration asks for no intervals
MAJORITY, REST = "majority", "rest"

Compared = tuple[str, str]  # the reference (a reader, "majority" or "rest"), then the measured reader


class Agreement(Form):
    """agree.json: the result of `segmeter agree`."""

    schema_: int = Field(SCHEMA, alias="schema")
    n_cases: int
    readers: list[str]
    """Names of people, or of all maps if no model is among them."""
    models: list[str]
    headline: str
    """The score by which a reader stands apart."""
    scores: dict[str, dict[str, Any]]
    """By name: ``better``, ``matrix`` (reference, then reader, to an entry), ``majority`` and ``rest`` (by reader), and
    ``contrast`` (by reader or model). An entry has ``mean``, ``ci95`` and ``n_used``."""
    apart: list[str]
    """Readers whose contrast of the headline is worse than 0, with p (Holm) below 0.05."""
    tied: dict[str, float | None]
    """Share of pixels without a majority: ``majority`` of all readers, and ``rest``, the mean over leaving out each
    reader.
    """
    bootstrap: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Readings:
    """The rows of every comparison, in the order of the cases.

    Parameters
    ----------
    readers, models
        Their names. Models are compared with readers, but have no vote in majorities.
    rows
        One row per case for each comparison; pairs are compared in both directions.
    tied
        As in `Agreement`.
    """

    readers: Sequence[str]
    models: Sequence[str]
    rows: Mapping[Compared, Sequence[CaseRow]]
    tied: Mapping[str, float | None]

    @property
    def names(self) -> list[str]:
        """Readers, then models."""
        return [*self.readers, *self.models]


def lay_out_readings(readings: Readings, spec: ClassSpec, config: MetricsConfig) -> dict[Compared, Scoreboard]:
    """Lay out the scores of every comparison. They were measured with `spec` and `config`."""
    runs = {f"{a}\0{b}": lay_out_run(rows, spec, config.groups) for (a, b), rows in readings.rows.items()}
    boards, _ = build_scoreboards(runs, spec, config)
    return dict(zip(readings.rows, boards.values(), strict=True))


def agreement_scores(board: Scoreboard) -> list[str]:
    """List the headline, the scores of all classes together, and for each class the headline's metric and IoU."""
    metrics = (board.headline.partition("/")[0], "iou")
    scores = [name for name in board.names_per_case if is_overall(name) or name.partition("/")[0] in metrics]
    return list(dict.fromkeys([board.headline, *scores]))


def summarise_agreement(readings: Readings, boards: Mapping[Compared, Scoreboard]) -> dict[str, Any]:
    """Summarise comparisons of readers as the content of agree.json, see `Agreement`.

    All values of a score are resampled together. The p-value of a reader's contrast is one-sided. It comes from a test
    that exchanges readers within each case or cluster, and is adjusted over the readers by Holm's method. The contrast
    of a model has an interval, but no p-value.

    Parameters
    ----------
    readings
        Three readers or more for contrasts, two or more for the rest.
    boards
        From `lay_out_readings`.
    """
    board = next(iter(boards.values()))
    scores = {name: _describe(name, readings, boards) for name in agreement_scores(board)}
    contrasts = scores[board.headline]["contrast"]
    return {
        "schema": SCHEMA,
        "n_cases": len(board.run.case_ids),
        "readers": list(readings.readers),
        "models": list(readings.models),
        "convention": board.config.convention,
        "classes": list(board.spec.names),
        "headline": board.headline,
        "scores": scores,
        "apart": [name for name in readings.readers if name in contrasts and contrasts[name]["apart"]],
        "tied": dict(readings.tied),
        "bootstrap": note_resampling(board, dict.fromkeys(board.spec.names)),
    }


def _describe(name: str, readings: Readings, boards: Mapping[Compared, Scoreboard]) -> dict[str, Any]:
    """Make all entries of one score, from one set of resamples."""
    board = next(iter(boards.values()))
    values = {compared: own_board.values(name) for compared, own_board in boards.items()}
    contrasts = find_contrasts(readings, values)
    resampled = None
    if board.config.bootstrap:
        columns = np.stack([*values.values(), *contrasts.values()], axis=1)
        resampled = board.resample(mean_columns(columns), mean_of_columns)
    entries = {key: _entry(column, resampled, index) for index, (key, column) in enumerate(values.items())}
    of_contrasts: dict[str, dict[str, Any]] = {}
    for index, (reader, contrast) in enumerate(contrasts.items(), start=len(values)):
        of_contrasts[reader] = _entry(contrast, resampled, index) | {"change": name_change(name, _mean(contrast))}
    better = find_direction(name)
    tested = [reader for reader in readings.readers if reader in contrasts]
    if tested and better:
        sign = -1 if better == "lower" else 1
        units = np.stack([sign * values_of_units(contrasts[reader], board.clusters) for reader in tested], axis=1)
        p_values = exchanged(units, resamples=board.config.bootstrap or _RESAMPLES, seed=board.config.seed)
        for reader, p_value, adjusted in zip(tested, p_values, holm(p_values.tolist()), strict=True):
            apart = bool(adjusted < CERTAIN) and of_contrasts[reader]["change"] == "worse"
            of_contrasts[reader] |= {"p": float(p_value), "p_holm": float(adjusted), "apart": apart}
    names = readings.names
    pairs = {a: {b: entries[a, b] for b in names if (a, b) in entries} for a in names}
    consensus = {kind: {b: entries[kind, b] for b in names if (kind, b) in entries} for kind in (MAJORITY, REST)}
    return {"better": better, "matrix": pairs, **consensus, "contrast": of_contrasts}


def find_contrasts(readings: Readings, values: Mapping[Compared, FloatArray]) -> dict[str, FloatArray]:
    """Compute the contrast (N,) of each reader or model with the other readers, if these are two or more."""
    contrasts = dict[str, FloatArray]()
    for name in readings.names:
        others = [reader for reader in readings.readers if reader != name]
        own = [np.stack([values[name, other], values[other, name]], axis=-1) for other in others]
        among = [np.stack([values[a, b], values[b, a]], axis=-1) for a, b in itertools.combinations(others, 2)]
        if among:
            own_mean, mean_among = (
                mean_defined(np.stack([*map(mean_defined, pairs)], axis=-1)) for pairs in (own, among)
            )
            contrasts[name] = minus(own_mean, mean_among)
    return contrasts


def _mean(values: FloatArray) -> float:
    return float(mean_of_columns(mean_columns(values[:, None]).sum(axis=0)[None])[0, 0])


def _entry(values: FloatArray, resampled: Resampled | None, index: int) -> dict[str, Any]:
    return {
        "mean": json_number_or_inf(_mean(values)),
        "ci95": None if resampled is None else resampled.ends(index),
        "n_used": int((~np.isnan(values)).sum()),
    }


def majority_vote(maps: Sequence[NDArray[Any]], spec: ClassSpec) -> NDArray[Any]:
    """Give each pixel the label that most readers gave it.

    Parameters
    ----------
    maps : R arrays (H, W) or (D, H, W), for multilabel (K, H, W) or (K, D, H, W), integer
        Labels. A pixel that one reader ignores is ignored.
    spec
        The classes. Their ignored value marks pixels that have no majority, so there must be one.

    Returns
    -------
    Labels of `spec.label_dtype`, ignored where two labels have the most votes, or a reader ignores the pixel.

    Examples
    --------
    >>> spec = ClassSpec(task="multiclass", names=("a", "b", "c"), colours=((0, 0, 0),) * 3).with_ignored()
    >>> majority_vote([np.array([[0, 1, 2]]), np.array([[0, 1, 1]]), np.array([[1, 1, 0]])], spec)
    array([[  0,   1, 255]], dtype=uint8)
    """
    majority = np.zeros(maps[0].shape, spec.label_dtype)
    undecided = np.ones(maps[0].shape, bool)
    most = np.zeros(majority.shape, np.uint8 if len(maps) < 256 else np.uint32)
    for label in range(spec.num_values):
        votes = np.zeros_like(most)
        for labels in maps:
            votes += labels == label
        leads, ties = votes > most, (votes == most) & (votes > 0)
        majority[leads] = label
        undecided[leads] = False
        undecided[ties] = True
        np.maximum(most, votes, out=most)
    for labels in maps:
        undecided |= spec.is_ignored(labels)
    return spec.ignoring(majority, undecided)


def staple(maps: Sequence[NDArray[Any]], spec: ClassSpec) -> NDArray[Any]:
    """Estimate the hidden truth of a case together with each reader's performance, by SimpleITK's filters.

    A binary task, and each plane of a multilabel one, is estimated by STAPLE, with a threshold of 0.5 on the
    probability. Several classes are estimated by its extension to labels. Both see one case at a time. Pixels that a
    reader ignores are background in the estimation, and ignored in the result.

    Parameters
    ----------
    maps, spec
        As for `majority_vote`.

    Raises
    ------
    DataError
        SimpleITK is not installed.

    References
    ----------
    Warfield, Zou and Wells 2004, "Simultaneous truth and performance level estimation (STAPLE)", IEEE Trans. Med.
    Imaging 23, 903-921. Rohlfing, Russakoff and Maurer 2003, IPMI (several labels).
    """
    ignored = np.any([spec.is_ignored(labels) for labels in maps], axis=0)
    filled = [np.where(ignored, 0, labels).astype(spec.label_dtype) for labels in maps]
    if spec.is_multilabel:
        estimate = np.stack([_staple_binary([labels[k] for labels in filled]) for k in range(spec.num_classes)])
    elif spec.task == "binary":
        estimate = _staple_binary(filled)
    else:
        sitk = need("SimpleITK", "itk", "STAPLE")
        images = [sitk.GetImageFromArray(labels) for labels in filled]
        estimate = sitk.GetArrayFromImage(sitk.MultiLabelSTAPLE(images, spec.values[-1]))
    return spec.ignoring(estimate, ignored)


def _staple_binary(maps: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
    """Select pixels in which the probability of the hidden truth is 0.5 or more; none if no reader marks a pixel."""
    sitk = need("SimpleITK", "itk", "STAPLE")
    if not any(labels.any() for labels in maps):
        return np.zeros(maps[0].shape, bool)
    images = [sitk.GetImageFromArray((labels > 0).astype(np.uint8)) for labels in maps]
    return np.asarray(sitk.GetArrayFromImage(sitk.STAPLE(images, 1.0)) >= 0.5)
