"""Plain numbers for JSON: undefined is None and counted, infinity is a text."""

import statistics

import numpy as np
import pytest

from segmeter.metrics.statistics.describe import describe, plain, say


def test_means_and_deviations_are_those_of_the_standard_library():
    values = [0.1, 0.4, 0.4, 0.9]
    found = describe(np.array([*values, np.nan]))
    assert found["mean"] == pytest.approx(statistics.fmean(values), rel=1e-12)
    assert found["std"] == pytest.approx(statistics.stdev(values), rel=1e-12)
    assert found["std_population"] == pytest.approx(statistics.pstdev(values), rel=1e-12)
    assert (found["n_used"], found["n_undefined"]) == (4, 1)


def test_one_value_has_no_spread_of_a_sample_and_none_has_nothing():
    assert describe(np.array([0.5])) == {"mean": 0.5, "std": None, "std_population": 0.0, "n_used": 1, "n_undefined": 0}
    assert describe(np.array([np.nan])) == {
        "mean": None,
        "std": None,
        "std_population": None,
        "n_used": 0,
        "n_undefined": 1,
    }


def test_values_become_python_floats():
    for value in (np.float32(0.5), np.int64(2), np.array(0.25)):
        assert type(plain(value)) is type(say(value)) is float
    assert (plain(np.nan), say(np.nan)) == (None, None)
    assert [say(value) for value in (np.inf, -np.inf)] == ["inf", "-inf"]
