"""How often `segmeter agree` names a reader that stands apart: a planted one, and by mistake one of readers alike.

Four readers outline an object in every case. They share the difficulty of the case, and each has errors of his own. In
null sets all draw from one population. In the others one reader's outlines are too small, or three times as noisy.

    python benchmarks/agree.py [sets]      writes benchmarks/results/agree.json
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from record import circumstances, write_record
from segmeter.metrics.arrays import divide
from segmeter.metrics.statistics.paired_tests import exchanged, holm
from segmeter.metrics.summary.agreement import CERTAIN, Readings, find_contrasts

RESULT = Path(__file__).parent / "results" / "agree.json"
NAMES = ("a", "b", "c", "d")
EDGE, CASES, RESAMPLES = 48, (20, 40), 2000
NULLS = {
    "even": {},
    "uneven cases": {"spread": 1.0},
    "slips in 5 % of cases": {"slips": 0.05},
    "shared slips": {"shared": 0.1},
}
PLANTED: dict[str, dict[str, Any]] = {
    "2 pixels too small": {"bias": -2.0},
    "three times as noisy": {"noise": 3.0},
    "2 pixels too small, slips in 5 % of cases": {"bias": -2.0, "slips": 0.05},
}


def draw_overlaps(
    rng: np.random.Generator,
    cases: int,
    *,
    bias: float = 0,
    noise: float = 1,
    spread: float = 0,
    slips: float = 0,
    shared: float = 0,
) -> NDArray[np.float64]:
    """Return the IoU (N, 4, 4) of the four readers' masks of each case; reader "d" is the planted one."""
    grid, own, count = np.arange(EDGE), np.array([1, 1, 1, noise]), (cases, len(NAMES))
    hard = np.exp(spread * rng.normal(size=(cases, 1)))
    radius = rng.uniform(8, 18, (cases, 1)) + own * hard * rng.normal(size=count) + np.array([0, 0, 0, bias])
    slipped = (rng.random(count) < slips) | (rng.random((cases, 1)) < shared)
    radius = np.maximum(np.where(slipped, radius * rng.uniform(0.2, 1, count), radius), 2)
    lines, columns = (EDGE / 2 + 0.5 * own * hard * rng.normal(size=count) for _ in range(2))
    away = (grid[:, None] - lines[..., None, None]) ** 2 + (grid - columns[..., None, None]) ** 2
    masks = (away < radius[..., None, None] ** 2).reshape(*count, -1).astype(np.float32)
    common, sizes = masks @ masks.transpose(0, 2, 1), masks.sum(axis=2)
    return divide(common, sizes[:, :, None] + sizes[:, None] - common).astype(np.float64)


def name_apart(rng: np.random.Generator, cases: int, seed: int, **population: Any) -> list[str]:
    """Return whom `segmeter agree` names by IoU in one set of cases."""
    overlaps, places = draw_overlaps(rng, cases, **population), range(len(NAMES))
    values = {(NAMES[a], NAMES[b]): overlaps[:, a, b] for a in places for b in places if a != b}
    given = Readings(readers=NAMES, models=(), rows={}, tied={})
    contrasts = np.stack([*find_contrasts(given, values).values()], axis=1)
    adjusted = holm(exchanged(contrasts, resamples=RESAMPLES, seed=seed).tolist())
    worse = np.nanmean(contrasts, axis=0) < 0
    return [name for name, p, low in zip(NAMES, adjusted, worse, strict=True) if low and p < CERTAIN]


def main(sets: int = 2000) -> None:
    found: dict[str, Any] = {"sets": sets, "readers": len(NAMES), "null": {}, "planted": {}}
    for kind, populations in (("null", NULLS), ("planted", PLANTED)):
        for name, population in populations.items():
            for cases in CASES:
                rng = np.random.default_rng(len(name) + cases)
                named = [name_apart(rng, cases, seed, **population) for seed in range(sets)]
                entry: dict[str, Any] = {"anyone": np.mean([bool(each) for each in named])}
                if kind == "planted":
                    entry = {"planted": np.mean(["d" in each for each in named])}
                    entry["another"] = np.mean([bool(set(each) - {"d"}) for each in named])
                found[kind].setdefault(name, {})[f"{cases} cases"] = {
                    key: round(float(v), 4) for key, v in entry.items()
                }
                print(kind, name, cases, entry, flush=True)
    shares = [
        share for population in found["null"].values() for entry in population.values() for share in entry.values()
    ]
    found["null_pooled"] = round(float(np.mean(shares)), 5)  # of all null sets
    print(found["null_pooled"])
    write_record(RESULT, {**circumstances(), **found})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
