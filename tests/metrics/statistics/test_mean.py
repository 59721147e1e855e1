"""The interval of a vector of values in one call is that of the summary."""

import math

import numpy as np
import pytest

from segmeter.errors import InputError
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.statistics.bootstrap import mean_interval
from segmeter.metrics.summary.summarise import summarise
from tests.metrics.build import class_spec, random_rows


def test_it_is_the_interval_of_the_summary():
    rows, spec = random_rows(23, seed=4), class_spec(3)
    found = summarise(rows, spec, MetricsConfig(bootstrap=500))["per_class"]["road"]["per_case"]["iou"]
    counts = np.stack([row.counts for row in rows])
    tp = counts[:, 1, 1]
    with np.errstate(invalid="ignore"):
        values = tp / (counts[:, 1].sum(1) + counts[:, :, 1].sum(1) - tp)
    ours = mean_interval(values, resamples=500)
    assert [ours.low, ours.high] == found["ci95"]
    assert (ours.mean, ours.n_used, ours.n_undefined) == (
        pytest.approx(found["mean"], rel=1e-12),
        found["n_used"],
        found["n_undefined"],
    )


def test_clusters_are_drawn_together():
    values, clusters = [0.1, 0.1, 0.5, 0.5, 0.9, 0.9, 0.4, 0.4, 0.6, 0.6], [c for c in "abcde" for _ in "12"]
    alone, together = mean_interval(values), mean_interval(values, clusters=clusters)
    assert together.high - together.low > alone.high - alone.low
    assert together.mean == alone.mean


def test_infinite_values_leave_no_finite_mean():
    found = mean_interval([1.0, 2.0, math.inf, 3.0, 4.0, math.nan])
    assert (found.mean, found.high, found.n_used, found.n_undefined) == (math.inf, math.inf, 5, 1)


def test_few_values_have_no_interval():
    found = mean_interval([0.5, 0.7])
    assert found.mean == pytest.approx(0.6)
    assert math.isnan(found.low)


@pytest.mark.parametrize(
    "values",
    [[], [[0.5]], "abc", ["a"], [None, 1.0], [1j], 5, [[1], [1, 2]], np.ma.masked_array([1.0])],
    ids=str,
)
def test_what_is_no_number_per_case_is_refused(values):
    with pytest.raises(InputError, match="mean_interval: expected `values` to be one number per case"):
        mean_interval(values)


def test_options_are_those_of_the_bootstrap():
    with pytest.raises(InputError, match="`clusters` to be 2 labels"):
        mean_interval([0.5, 0.7], clusters=["a"])
