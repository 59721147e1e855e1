"""The number of cases that a pilot promises, beside SciPy's own formulas and draws of known populations."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from segmeter.metrics.arrays import divide
from segmeter.metrics.statistics import columns as columns_module
from segmeter.metrics.statistics.columns import Columns, mean_columns, mean_of_columns
from segmeter.metrics.statistics.planning import Pilot, measure_pilot, resample_smaller, tail_factor

NORMAL = Pilot.published(mean=0.78, sd=0.12, cases=40, interval="expanded")


def measured(columns, statistic, sizes, resamples: int) -> Pilot:
    options = {"resamples": resamples, "seed": 0, "interval": "expanded"}
    return measure_pilot(Columns.of(columns), statistic, [sizes], **options)[0][0]


def mean_pilot(values: NDArray[np.float64], resamples: int = 2000) -> Pilot:
    return measured(mean_columns(values[:, None]), mean_of_columns, None, resamples)


def ratio_pilot(common: NDArray[np.float64], union: NDArray[np.float64], resamples: int = 2000) -> Pilot:
    columns = np.stack([common, union], axis=1)
    return measured(columns, lambda sums: divide(sums[:, :1], sums[:, 1:]), union, resamples)


@pytest.mark.parametrize("cases", [20, 93, 400])
def test_the_width_of_published_figures_is_that_of_student(cases: int) -> None:
    pilot = Pilot.published(mean=0.78, sd=0.12, cases=None, interval="expanded")
    low, high = stats.t.interval(0.95, cases - 1, scale=0.12 / math.sqrt(cases))
    assert pilot.width_of(cases) == pytest.approx(high - low, rel=1e-3)


def test_the_power_of_published_differences_is_that_of_the_t_test() -> None:
    pilot, n = Pilot.published(mean=0.0, sd=0.12, cases=None, interval="expanded"), 60
    reach, shift = stats.t.ppf(0.975, n - 1), 0.04 / 0.12 * math.sqrt(n)
    exact = stats.nct.sf(reach, n - 1, shift) + stats.nct.cdf(-reach, n - 1, shift)
    assert pilot.power_of(0.04, n) == pytest.approx(exact, abs=0.01)


def test_the_number_is_the_least_that_reaches_the_width_and_its_interval_that_of_a_variance() -> None:
    units, low, high = NORMAL.units_for(lambda n, sigma: NORMAL.width_of(n, sigma) <= 0.05)
    assert NORMAL.width_of(units) <= 0.05 < NORMAL.width_of(units - 1)
    ends = 39 / stats.chi2.ppf([0.975, 0.025], 39)  # a variance's interval, as factors of its estimate
    median = 39 / stats.chi2.ppf(0.5, 39)
    assert [low / units, high / units] == pytest.approx(ends / median, rel=0.03)


def test_an_aim_that_no_number_reaches_has_none() -> None:
    assert NORMAL.units_for(lambda n, sigma: NORMAL.width_of(n, sigma) <= 1e-6) == (None, None, None)
    exact = Pilot.published(mean=0.78, sd=0.12, cases=None, interval="expanded")
    assert exact.units_for(lambda n, sigma: exact.width_of(n, sigma) <= 0.05)[1:] == (None, None)


def test_a_pilot_tells_the_spread_of_its_cases() -> None:
    values = np.random.default_rng(1).normal(0.8, 0.1, 200)
    pilot = mean_pilot(values)
    assert pilot.sigma == pytest.approx(values.std(ddof=1), rel=0.05)
    assert pilot.sigma_low < 0.1 < pilot.sigma_high
    assert pilot.width_of(200) == pytest.approx(pilot.width, rel=0.08)
    assert pilot.ask_again is None


def test_smaller_data_sets_follow_the_law() -> None:
    values = np.random.default_rng(2).normal(0.8, 0.1, 80)
    columns, pilot = mean_columns(values[:, None]), mean_pilot(values)
    low, high = resample_smaller(columns, mean_of_columns, [20, 80], draws=40, seed=0, interval="expanded")
    drawn = np.median(high - low, axis=1)[:, 0]
    assert drawn == pytest.approx([pilot.width_of(20), pilot.width_of(80)], rel=0.12)


@pytest.mark.parametrize(
    ("sizes", "least", "most"),
    [
        (lambda rng: np.full(60, 3.0), 1.0, 1.0),
        (lambda rng: rng.gamma(8, size=60), 1.0, 1.05),
        (lambda rng: np.exp(rng.normal(size=60)), 1.0, 2.5),
        (lambda rng: np.r_[np.zeros(50), np.ones(4)], 1.0, 1.0),
    ],
    ids=["equal", "alike", "log-normal", "few"],
)
def test_only_sizes_with_a_tail_are_completed(sizes, least, most) -> None:
    found = [tail_factor(sizes(np.random.default_rng(seed))) for seed in range(20)]
    assert least <= np.median(found) <= most


def test_completed_sizes_have_the_second_moment_of_their_distribution() -> None:
    """A log-normal size of spread 1 has a second moment of e**2; 60 of them show less in most draws."""
    rng = np.random.default_rng(4)
    draws = [np.exp(rng.normal(size=60)) for _ in range(300)]
    plain = [np.mean(sizes**2) for sizes in draws]
    completed = [np.mean(sizes**2) * tail_factor(sizes) for sizes in draws]
    assert np.median(plain) < 0.8 * math.e**2
    assert np.median(completed) == pytest.approx(math.e**2, rel=0.12)


def test_a_pilot_that_looks_even_by_luck_has_no_answer_if_its_sizes_promise_larger_ones() -> None:
    """Sizes of spread 1.5: one pilot of 60 in six looks like 20 equal cases, and shows two thirds of the spread."""
    told, rng = 0, np.random.default_rng(6)
    for _ in range(60):
        union = np.exp(1.5 * rng.normal(size=60))
        told += ratio_pilot(union * rng.beta(17, 3, 60), union, resamples=200).ask_again is None
    assert told <= 3


def test_a_few_large_cases_are_no_pilot_and_the_number_to_ask_with_again_is_named() -> None:
    rng = np.random.default_rng(5)
    union = np.exp(1.5 * rng.normal(size=60))
    pilot = ratio_pilot(union * rng.beta(17, 3, 60), union)
    assert pilot.effective < 20
    assert pilot.ask_again == math.ceil(60 * 20 / pilot.effective)
    even = ratio_pilot(rng.beta(17, 3, 60), np.ones(60))
    assert (even.ask_again, even.effective) == (None, pytest.approx(60))


@pytest.mark.parametrize(("share", "n"), [(1.0, 20), (0.1, 1000)], ids=["all move", "a tenth moves"])
def test_a_pilot_of_pools_has_the_kurtosis_and_the_moving_share_of_its_units(share, n, monkeypatch) -> None:
    """Mutation seen to fail: pools are taken for units, so that few units get a width of far too few."""
    rng = np.random.default_rng(0)
    values = np.where(rng.random(20_000) < share, rng.exponential(size=20_000), np.nan)
    alone = mean_pilot(values, resamples=1000)
    monkeypatch.setattr(columns_module, "MOST_UNITS", 5000)
    pooled = mean_pilot(values, resamples=1000)
    assert pooled.moving == pytest.approx(alone.moving, rel=0.02)
    assert pooled.kurtosis == pytest.approx(alone.kurtosis, rel=0.2)  # pools themselves have 4.5 where units have 9
    assert pooled.width_of(n) == pytest.approx(alone.width_of(n), rel=0.05)
