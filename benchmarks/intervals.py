"""How often 95 % intervals hold the true value, and how wide they are: a simulation on populations of known truth.

Every population draws cases (or clusters of cases) as the columns that segmeter sums, with the score of the sums. The
truth is the score of 400 000 cases or clusters. Coverage is the share of replications whose interval holds it; width is
the median interval's, over that of the central 95 % of the estimates, which is what an interval needs.

    python benchmarks/intervals.py [replications]      writes benchmarks/results/intervals.json
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from record import circumstances, write_record
from segmeter.metrics.arrays import divide, mean_defined
from segmeter.metrics.statistics.bootstrap import bootstrap
from segmeter.metrics.statistics.clusters import sum_by
from segmeter.metrics.statistics.columns import INTERVALS, mean_columns, mean_of_columns
from segmeter.metrics.statistics.intervals import find_ends, measure_influence

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], tuple[Array, list[str] | None]]

RESULT = Path(__file__).parent / "results" / "intervals.json"
SIZES = (8, 20, 50, 200, 500)
FEW, MANY = 5000, 2000  # resamples up to 50 units and above
TRUTH, BATCH = 400_000, 20_000

SHARES = np.array([0.258, 0.246, 0.171, 0.113, 0.093, 0.04, 0.012, 0.012, 0.01, 0.006, 0.003])  # of CamVid's classes
IOUS = np.array([0.85, 0.7, 0.87, 0.65, 0.6, 0.6, 0.15, 0.2, 0.2, 0.3, 0.25])
PRESENT = np.array([1, 1, 0.98, 0.95, 0.95, 0.8, 0.4, 0.95, 0.6, 0.5, 0.25])
SPREADS = np.array([0.2, 0.4, 0.4, 0.6, 0.5, 0.9, 0.9, 0.5, 0.8, 0.9, 1.2])


@dataclass(frozen=True)
class Population:
    """How to draw cases, the score of their sums (R, M), shaped (R,), and the true score if it is known exactly."""

    name: str
    what: str
    draw: Draw
    score: Callable[[Array], Array]
    truth: float | None = None


def mean_iou(sums: Array) -> Array:
    """Columns are the classes' intersections, then their unions."""
    common, union = np.split(sums, 2, axis=1)
    return mean_defined(divide(common, union))


def last_iou(sums: Array) -> Array:
    """Return the IoU of the last, rarest class."""
    classes = sums.shape[1] // 2
    return divide(sums[:, classes - 1], sums[:, -1])


def difference(sums: Array) -> Array:
    """Mean IoU of one run minus that of another."""
    first, second = np.split(sums, 2, axis=1)
    return mean_iou(first) - mean_iou(second)


def quality(sums: Array) -> Array:
    """PQ: summed IoU of matches over tp + fp / 2 + fn / 2."""
    return divide(sums[:, 0], sums[:, 1])


def mean(sums: Array) -> Array:
    """Mean over cases."""
    return mean_of_columns(sums)[:, 0]


def even(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Objects of similar size and quality."""
    union = rng.gamma(8, size=(n, 1))
    return union * rng.beta(17, 3, (n, 1)), union


def objects(rng: np.random.Generator, n: int, *, spread: float, better: float, missed: float) -> tuple[Array, Array]:
    """Log-normal sizes: few cases hold most pixels, and large objects are found better."""
    z = rng.normal(size=(n, 1))
    size = np.exp(spread * z)
    iou = expit(1.1 + better * z + 0.9 * rng.normal(size=z.shape))
    return size * iou * (rng.random(z.shape) > missed), size


def lesions(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Nothing there in 30 % of the cases, small ones missed, and false alarms."""
    z = rng.normal(size=(n, 1))
    size = np.exp(1.3 * z) * (rng.random(z.shape) > 0.3)
    iou = expit(0.7 + 0.5 * z + 0.8 * rng.normal(size=z.shape)) * (rng.random(z.shape) > 0.12 * np.exp(-0.5 * z))
    alarms = np.exp(-2 + 1.2 * rng.normal(size=z.shape)) * (rng.random(z.shape) < 0.4)
    return size * iou, size + alarms


def failures(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Draw cases of which a fifth fails, while the others are nearly perfect."""
    union = rng.gamma(6, size=(n, 1))
    failed = rng.random((n, 1)) < 0.2
    return union * np.where(failed, rng.beta(2, 3, (n, 1)), rng.beta(60, 2, (n, 1))), union


def scenes(
    rng: np.random.Generator, n: int, *, shares: Array, ious: Array, present: Array, spreads: Array
) -> tuple[Array, Array]:
    """Many classes, the rare ones in some cases only; hard cases are hard for all classes."""
    z = rng.normal(size=(n, len(shares)))
    size = shares * np.exp(spreads * z - spreads**2 / 2) * (rng.random(z.shape) < present) / present
    hard = 0.5 * rng.normal(size=(n, 1))
    return size * expit(logit(ious) + 0.3 * z + hard + 0.6 * rng.normal(size=z.shape)), size


ROAD = partial(scenes, shares=SHARES, ious=IOUS, present=PRESENT, spreads=SPREADS)
NINETEEN = partial(
    scenes,
    shares=np.geomspace(0.35, 0.002, 19),
    ious=np.linspace(0.95, 0.4, 19),
    present=np.linspace(1, 0.2, 19),
    spreads=np.linspace(0.3, 1.2, 19),
)
RARE = partial(
    scenes,
    shares=np.array([0.9, 0.08, 0.02]),
    ious=np.array([0.95, 0.7, 0.5]),
    present=np.array([1, 0.9, 0.2]),
    spreads=np.array([0.1, 0.6, 0.8]),
)
SMALL = partial(objects, spread=1.5, better=0.6, missed=0.1)
SKEWED = partial(objects, spread=1.8, better=0.0, missed=0.0)


def one_run(source: Callable[..., tuple[Array, Array]], rng: np.random.Generator, n: int) -> tuple[Array, None]:
    """Intersections and unions of one run."""
    return np.concatenate(source(rng, n), axis=1), None


def two_runs(
    source: Callable[..., tuple[Array, Array]], shift: float, rng: np.random.Generator, n: int
) -> tuple[Array, None]:
    """Two runs on the same cases, alike but for chance and a shift of the second one's quality on the logit scale."""
    common, union = source(rng, n)
    quality = logit(np.clip(divide(common, union), 1e-3, 1 - 1e-3))
    moved = [np.nan_to_num(union * expit(quality + _noise(rng, quality.shape) + by)) for by in (0.0, shift)]
    return np.concatenate([moved[0], union, moved[1], union], axis=1), None


def _noise(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return 0.5 * rng.normal(size=shape) + 0.3 * rng.normal(size=(shape[0], 1))


def slices(rng: np.random.Generator, n: int, *, grouped: bool) -> tuple[Array, list[str] | None]:
    """Patients with 8 to 39 slices each, which resemble one another in size and quality."""
    patient = np.repeat(np.arange(n), rng.integers(8, 40, n))
    z = 0.9 * rng.normal(size=n)[patient] + 0.6 * rng.normal(size=len(patient))
    iou = expit(1.2 + 0.3 * z + 0.7 * rng.normal(size=n)[patient] + 0.5 * rng.normal(size=len(patient)))
    columns = np.stack([np.exp(z) * iou, np.exp(z)], axis=1)
    return columns, [f"{number:06}" for number in patient] if grouped else None


def cells(rng: np.random.Generator, n: int) -> tuple[Array, None]:
    """Sums of PQ: images with a few or very many objects, some images hard."""
    found = rng.poisson(np.exp(2.5 + rng.normal(size=n)))
    hard = rng.normal(size=n)
    tp = rng.binomial(found, expit(1.5 - 0.8 * hard))
    spurious = rng.poisson(0.15 * found + 0.2)
    iou = tp * expit(1.3 - 0.3 * hard + 0.2 * rng.normal(size=n))
    return np.stack([iou, tp + (found - tp + spurious) / 2], axis=1), None


def per_case(source: Callable[..., tuple[Array, Array]], rng: np.random.Generator, n: int) -> tuple[Array, None]:
    """Return the mean over cases of each case's mean IoU."""
    common, union = source(rng, n)
    return mean_columns(mean_defined(divide(common, union))[:, None]), None


def mostly_alike(rng: np.random.Generator, n: int) -> tuple[Array, None]:
    """Draw equal cases, one in 50 of which is a little lower or, half as often, twice as far higher."""
    differing = rng.random((n, 1)) < 0.02
    return mean_columns(0.875 + differing * rng.choice([-0.0625, -0.0625, 0.125], (n, 1))), None


def distances(spread: float, rng: np.random.Generator, n: int) -> tuple[Array, None]:
    """Distances per case, log-normal."""
    return mean_columns(np.exp(spread * rng.normal(size=(n, 1)))), None


POPULATIONS = (
    Population("even", "objects alike in size and quality", partial(one_run, even), mean_iou),
    Population("small", "small objects with a long tail of sizes", partial(one_run, SMALL), mean_iou),
    Population("skewed", "a few cases hold most pixels", partial(one_run, SKEWED), mean_iou),
    Population("lesions", "30 % empty cases, misses, false alarms", partial(one_run, lesions), mean_iou),
    Population("failures", "a fifth of the cases fails", partial(one_run, failures), mean_iou),
    Population("road", "11 classes, some rare", partial(one_run, ROAD), mean_iou),
    Population("nineteen", "19 classes, some rare", partial(one_run, NINETEEN), mean_iou),
    Population("rare", "3 classes, one in a fifth of the cases", partial(one_run, RARE), mean_iou),
    Population("rarest", "the IoU of that class alone", partial(one_run, RARE), last_iou),
    Population("patients", "slices, in clusters", partial(slices, grouped=True), mean_iou),
    Population("cells", "PQ from sums", cells, quality),
    Population("mean of road", "per case, then the mean", partial(per_case, ROAD), mean),
    Population("mean of small", "per case, then the mean", partial(per_case, SMALL), mean),
    Population("mostly alike", "per case, of which 2 % differ", mostly_alike, mean, truth=0.875),
    Population("distances", "log-normal, spread 0.5", partial(distances, 0.5), mean),
    Population("long distances", "log-normal, spread 1", partial(distances, 1.0), mean),
    Population("A/A small", "two runs that differ by chance", partial(two_runs, SMALL, 0.0), difference),
    Population("A/A lesions", "the same", partial(two_runs, lesions, 0.0), difference),
    Population("A/A road", "the same", partial(two_runs, ROAD, 0.0), difference),
    Population("A/A rare", "the same", partial(two_runs, RARE, 0.0), difference),
    Population("A/B small", "the second run is better", partial(two_runs, SMALL, 0.4), difference),
    Population("A/B road", "the same", partial(two_runs, ROAD, 0.4), difference),
    Population("ungrouped", "the patients' slices without clusters", partial(slices, grouped=False), mean_iou),
)


def find_truth(population: Population) -> float:
    """Return the score of so many cases that chance no longer counts."""
    if population.truth is not None:
        return population.truth
    rng = np.random.default_rng(2**32)
    total = sum(population.draw(rng, BATCH)[0].sum(axis=0) for _ in range(TRUTH // BATCH))
    return float(population.score(total[None])[0])


def simulate(population: Population, units: int, replications: int, resamples: int, truth: float) -> dict[str, Any]:
    """Coverage and width of every method at one number of units."""
    rng = np.random.default_rng(units)
    estimates, ends = [], {method: [] for method in INTERVALS}
    for seed in range(replications):
        columns, clusters = population.draw(rng, units)
        found = bootstrap(columns, population.score, resamples=resamples, seed=seed, clusters=clusters)
        sums = columns
        if clusters is not None:
            labels, index = np.unique(clusters, return_inverse=True)
            sums = np.stack([sum_by(index, len(labels), column) for column in columns.T], axis=1)
        estimate = population.score(sums.sum(axis=0)[None])
        left_out = population.score(sums.sum(axis=0) - sums)[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            alone = population.score(sums)[:, None]
        influence = measure_influence(iter([left_out]), iter([alone]), estimate)
        estimates.append(estimate[0])
        for method, kept in ends.items():
            kept.append(np.concatenate(find_ends(method, 0.95, estimate, found.replicates[:, None], influence)))
    needed = np.diff(np.nanquantile(estimates, [0.025, 0.975]))[0]
    return {method: describe(np.array(kept), truth, needed) for method, kept in ends.items()}


def describe(ends: Array, truth: float, needed: float) -> dict[str, float]:
    """Describe ends (replications, 2): shares that contain the truth or lie on one side of it, and the width."""
    low, high = ends.T
    given = ~np.isnan(low)
    return {
        "coverage": float(((low <= truth) & (truth <= high)).sum() / max(given.sum(), 1)),
        "above": float((low > truth).sum() / max(given.sum(), 1)),
        "below": float((high < truth).sum() / max(given.sum(), 1)),
        "none": float(1 - given.mean()),
        "width": float(np.median((high - low)[given]) / needed) if given.any() else float("nan"),
    }


def table(records: Sequence[dict[str, Any]], key: str, methods: Sequence[str] = ("expanded", "bca")) -> str:
    """Markdown: coverage or width by population and number of units, of the methods side by side."""
    lines = [f"| {key}: {' / '.join(methods)} | {' | '.join(map(str, SIZES))} |", "|---|" + "---|" * len(SIZES)]
    for record in records:
        found = [record["units"][str(units)] for units in SIZES]
        shown = [" / ".join(f"{one[method][key]:.2f}".lstrip("0") for method in methods) for one in found]
        lines.append(f"| {record['name']} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main(replications: int = 1000) -> None:
    """Simulate every population, with 2 in 5 of the replications above 50 units, and write the record."""
    records = []
    for population in POPULATIONS:
        truth = find_truth(population)
        units = {
            str(n): simulate(population, n, *plan, truth)
            for n in SIZES
            for plan in [(replications, FEW) if n <= 50 else (2 * replications // 5, MANY)]
        }
        records.append({"name": population.name, "what": population.what, "truth": truth, "units": units})
        print(records[-1], flush=True)
    content = circumstances("scipy") | {"replications": replications, "level": 0.95, "populations": records}
    write_record(RESULT, content)
    print(table(records, "coverage"), table(records, "width"), sep="\n\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
