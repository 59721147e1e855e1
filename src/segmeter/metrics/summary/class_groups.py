"""rows -> scores of groups of classes, each as one region: exact, from sums of the confusion matrices' cells."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.metrics.arrays import FloatArray
from segmeter.metrics.cases.table import CaseRow, as_table
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.pixels.overlap import overlap_scores
from segmeter.metrics.statistics.bootstrap import bootstrap, mean_columns, mean_of_columns
from segmeter.metrics.statistics.clusters import effective_units, sum_clusters
from segmeter.metrics.statistics.describe import describe, plain

PER_CLASS = (
    "iou",
    "dice",
    "precision",
    "recall",
    "specificity",
    "volumetric_similarity",
    "relative_volume_difference",
)
RESAMPLED_PER_CLASS = ("iou", "dice")


def score_groups(
    rows: Sequence[CaseRow], spec: ClassSpec, config: MetricsConfig, clusters: list[str] | None
) -> dict[str, Any]:
    """Score each group of ``config.groups`` over the data set and per case, with the intervals that classes have.

    Returns
    -------
    dict
        Per group ``classes, support, n_effective``, the scores of a class, ``ci95`` and ``per_case``.
    """
    return {
        name: {"classes": list(members)} | _entry(_count_region(rows, spec, members), config, clusters)
        for name, members in config.groups.items()
    }


def _count_region(rows: Sequence[CaseRow], spec: ClassSpec, members: Sequence[str]) -> NDArray[np.int64]:
    """Counts (N, 2, 2) of outside and inside."""
    inside = np.isin(np.arange(spec.num_classes), [spec.names.index(member) for member in members])
    sides = np.stack([~inside, inside]).astype(np.int64)
    predicted = np.pad(inside, (0, spec.count_invalid))  # what is no class is outside
    columns = np.stack([~predicted, predicted], axis=1).astype(np.int64)
    parts = [sides @ block.counts @ columns for block in as_table(rows).blocks()]
    regions: NDArray[np.int64] = np.concatenate(parts)
    return regions


def _entry(regions: NDArray[np.int64], config: MetricsConfig, clusters: list[str] | None) -> dict[str, Any]:
    total, cases = overlap_scores(regions.sum(axis=0)), _inside(regions)
    ci95: dict[str, Any] = dict.fromkeys(RESAMPLED_PER_CLASS)
    per_case = {name: describe(cases[:, i]) | {"ci95": None} for i, name in enumerate(RESAMPLED_PER_CLASS)}
    if config.bootstrap:
        found = bootstrap(
            np.concatenate([regions.reshape(-1, 4), mean_columns(cases, bounded=True)], axis=1),
            _statistic,
            resamples=config.bootstrap,
            seed=config.seed,
            interval=config.interval,
            clusters=clusters,
        )
        ends = [[plain(low), plain(high)] for low, high in zip(found.low, found.high, strict=True)]
        for i, name in enumerate(RESAMPLED_PER_CLASS):
            ci95[name], per_case[name]["ci95"] = ends[i], ends[i + len(RESAMPLED_PER_CLASS)]
    unions = sum_clusters(regions.reshape(len(regions), 4)[:, 1:], clusters).sum(axis=1, keepdims=True)
    return {
        "support": int(total.support[1]),
        "n_effective": plain(effective_units(unions)[0]),
        **{name: plain(getattr(total, name)[1]) for name in PER_CLASS},
        "ci95": ci95,
        "per_case": per_case,
    }


def _statistic(sums: FloatArray) -> FloatArray:
    """Column sums (R, 4 + 2 M) -> scores of the region, then their means over cases: (R, 2 M)."""
    whole = _inside(np.rint(sums[:, :4]).astype(np.int64).reshape(-1, 2, 2))
    return np.concatenate([whole, mean_of_columns(sums[:, 4:], bounded=True)], axis=1)


def _inside(counts: NDArray[np.int64]) -> FloatArray:
    """Scores (N, M) of the region of each matrix (N, 2, 2)."""
    scores = overlap_scores(counts)
    return np.stack([getattr(scores, name)[:, 1] for name in RESAMPLED_PER_CLASS], axis=1)
