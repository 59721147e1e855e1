"""How well a pilot tells the number of cases that are needed: a simulation on populations of known spread.

Each replication draws a pilot, predicts with it, and is compared with the truth: the spread of 4 million cases, and the
power that fresh data sets have. "Limit" is the error that arithmetic allows to a plain estimate: 80 % of pilots predict
the width within it.

    python benchmarks/plan.py [replications]      writes benchmarks/results/plan.json
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from intervals import Array, distances, even, failures, objects, one_run, per_case, slices
from record import circumstances, write_record
from segmeter.metrics.arrays import divide
from segmeter.metrics.statistics.bootstrap import bootstrap
from segmeter.metrics.statistics.clusters import sum_by
from segmeter.metrics.statistics.columns import Columns, mean_columns, mean_of_columns
from segmeter.metrics.statistics.planning import Pilot, measure_pilot

RESULT = Path(__file__).parent / "results" / "plan.json"
PILOTS = (15, 30, 60)
TARGET = 240  # units whose interval is predicted
RESAMPLES = 2000
TRUTH = 4_000_000
POWER_AT, GAIN = 60, 0.35  # units of the test, and the true difference in standard deviations of one


@dataclass(frozen=True)
class Population:
    """How to draw units as columns, their score, and the error of a predicted width that arithmetic allows."""

    name: str
    what: str
    draw: Callable[[np.random.Generator, int], tuple[Array, list[str] | None]]
    limits: tuple[float, ...]
    sums: bool  # a score of sums, and not a mean over cases

    def units(self, rng: np.random.Generator, n: int) -> Array:
        """Columns (n, C) of independent units."""
        columns, labels = self.draw(rng, n)
        if labels is None:
            return columns
        index = np.unique(labels, return_inverse=True)[1]
        return np.stack([sum_by(index, n, column) for column in columns.T], axis=1)

    def score(self, sums: Array) -> Array:
        """Scores (R, 1) of sums (R, C)."""
        return divide(sums[:, :1], sums[:, 1:2]) if self.sums else mean_of_columns(sums)


def paired(source: Any, gain: float, rng: np.random.Generator, n: int) -> tuple[Array, None]:
    """Differences of the IoU of two independent models on each case, and a gain."""
    (common, union), (other, its_union) = source(rng, n), source(rng, n)
    return mean_columns(common / union - other / its_union + gain), None


MEANS, SKEWED, LONG, HEAVY = (0.27, 0.19, 0.13), (0.40, 0.26, 0.18), (0.50, 0.42, 0.34), (0.76, 0.67, 0.59)
POPULATIONS = (
    Population("even", "mean over cases, alike in quality", partial(per_case, even), MEANS, False),
    Population("failures", "mean over cases, a fifth fails", partial(per_case, failures), SKEWED, False),
    Population("distances", "mean over cases, log-normal", partial(distances, 0.5), SKEWED, False),
    Population(
        "sizes",
        "IoU of sums, log-normal sizes",
        partial(one_run, partial(objects, spread=0.95, better=0.0, missed=0.0)),
        LONG,
        True,
    ),
    Population(
        "heavy tails",
        "IoU of sums, sizes of spread 1.5",
        partial(one_run, partial(objects, spread=1.5, better=0.0, missed=0.0)),
        HEAVY,
        True,
    ),
    Population("patients", "IoU of sums, slices in clusters", partial(slices, grouped=True), LONG, True),
)


def true_spread(population: Population) -> float:
    """Standard deviation of one unit's influence, from so many that chance no longer counts."""
    rng, size = np.random.default_rng(2**32), 100_000
    parts = [population.units(rng, size) for _ in range(TRUTH // size if population.name != "patients" else 4)]
    units = np.concatenate(parts)
    if not population.sums:
        return float(units[:, 0].std())
    ratio = units[:, 0].sum() / units[:, 1].sum()
    return float((units[:, 0] - ratio * units[:, 1]).std() / units[:, 1].mean())


def measure(population: Population, units: Array, seed: int) -> Pilot:
    """Return the pilot that `segmeter plan` would take from these units."""
    sizes = units[:, 1] if population.sums else None
    options: dict[str, Any] = {"resamples": RESAMPLES, "seed": seed, "interval": "expanded"}
    return measure_pilot(Columns.of(units), population.score, [sizes], **options)[0][0]


def simulate(population: Population, replications: int) -> dict[str, Any]:
    """Errors of predicted widths, and how often the interval of the number of units holds the true one."""
    sigma, rng, found = true_spread(population), np.random.default_rng(7), dict[str, Any]()
    widths = [measure(population, population.units(rng, TARGET), seed).width for seed in range(200)]
    for n, limit in zip(PILOTS, population.limits, strict=True):
        rows = [_compare(measure(population, population.units(rng, n), seed), sigma) for seed in range(replications)]
        known = np.array([row for row, told in rows if told])
        found[str(n)] = {"limit": limit, "told": len(known) / replications}
        if len(known) > 20:
            ratio, covered = known.T
            found[str(n)] |= {
                "median": float(np.median(ratio)),
                "within_80": float(np.quantile(np.abs(ratio - 1), 0.8)),
                "covered": float(covered.mean()),
            }
    seen = float(np.nanmedian(widths) * math.sqrt(TARGET) / (2 * 1.96 * sigma))
    return {"name": population.name, "what": population.what, "sigma": sigma, "seen_width": seen, "pilots": found}


def _compare(pilot: Pilot, sigma: float) -> tuple[tuple[float, bool], bool]:
    """Return the predicted spread over the true one, whether its interval holds it, and whether the pilot can tell."""
    told = math.isfinite(pilot.width) and pilot.ask_again is None
    return (pilot.sigma / sigma, pilot.sigma_low <= sigma <= pilot.sigma_high), told


def simulate_power(name: str, source: Any, replications: int) -> dict[str, Any]:
    """Predicted power of a paired difference from pilots of 60, beside the share of fresh data sets that find it."""
    rng = np.random.default_rng(11)
    null = Population(name, "", partial(paired, source, 0.0), MEANS, False)  # a pilot's own difference does not matter
    gain = GAIN * true_spread(null)
    true, hits, tests = replace(null, draw=partial(paired, source, gain)), 0, 4 * replications
    for seed in range(tests):
        found = bootstrap(true.units(rng, POWER_AT), mean_of_columns, resamples=RESAMPLES, seed=seed)
        hits += bool(found.low[0] > 0 or found.high[0] < 0)
    pilots = [measure(null, null.units(rng, 60), seed) for seed in range(replications)]
    power, actual = np.array([pilot.power_of(gain, POWER_AT) for pilot in pilots]), hits / tests
    error = power - actual
    return {
        "name": name,
        "actual": actual,
        "median": float(np.median(power)),
        "median_error": float(np.median(np.abs(error))),
        "rms_error": float(np.sqrt((error**2).mean())),
    }


def main(replications: int = 400) -> None:
    """Simulate every population, and write the record."""
    records = []
    for population in POPULATIONS:
        records.append(simulate(population, replications))
        print(records[-1], flush=True)
    power = [simulate_power(name, source, replications) for name, source in (("even", even), ("failures", failures))]
    print(power)
    content = circumstances("scipy") | {"replications": replications, "populations": records, "power": power}
    write_record(RESULT, content)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
