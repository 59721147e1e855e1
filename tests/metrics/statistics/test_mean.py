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
    assert (ours.n_used, ours.n_undefined) == (found["n_used"], found["n_undefined"])
    assert ours.mean == pytest.approx(found["mean"], rel=1e-12)


def test_infinite_values_leave_no_finite_mean():
    found = mean_interval([1.0, 2.0, math.inf, 3.0, 4.0, math.nan])
    assert (found.mean, found.high, found.n_used, found.n_undefined) == (math.inf, math.inf, 5, 1)


@pytest.mark.parametrize(
    "values", [[], [[0.5]], "abc", ["a"], [None, 1.0], [1j], 5, [[1], [1, 2]], np.ma.masked_array([1.0])], ids=str
)
def test_what_is_no_number_per_case_is_refused(values):
    with pytest.raises(InputError, match="mean_interval: expected `values` to be one number per case"):
        mean_interval(values)
