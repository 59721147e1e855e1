"""How often `segmeter agree` names a reader that stands apart: a planted one, and by mistake one of readers alike.

Four readers outline an object in every case. They share the difficulty of the case, and each has errors of his own. In
null sets all draw from one population. In the others one reader's outlines are too small, or twice as noisy.

    python benchmarks/agree.py [sets]      writes benchmarks/results/agree.json
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from record import circumstances, write_record
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


def draw_masks(
    rng: np.random.Generator,
    *,
    bias: float = 0,
    noise: float = 1,
    spread: float = 0,
    slips: float = 0,
    shared: float = 0,
) -> list[NDArray[np.bool_]]:
    """Return the four readers' masks of one case; reader "d" is the planted one."""
    lines, columns = np.ogrid[:EDGE, :EDGE]
    radius, hard = rng.uniform(8, 18), np.exp(spread * rng.normal())
    lost = rng.random() < shared
    masks = []
    for name in NAMES:
        own = noise if name == "d" else 1.0
        found = radius + rng.normal(0, own * hard) + (bias if name == "d" else 0)
        found *= rng.uniform(0.2, 1) if rng.random() < slips or lost else 1
        centre = EDGE / 2 + rng.normal(0, 0.5 * own * hard, 2)
        masks.append((lines - centre[0]) ** 2 + (columns - centre[1]) ** 2 < max(found, 2) ** 2)
    return masks


def name_apart(rng: np.random.Generator, cases: int, **population: Any) -> list[str]:
    """Whom `segmeter agree` names by IoU in one set of cases."""
    values: dict[tuple[str, str], NDArray[np.float64]] = {
        (a, b): np.empty(cases) for a in NAMES for b in NAMES if a != b
    }
    for number in range(cases):
        masks = dict(zip(NAMES, draw_masks(rng, **population), strict=True))
        for (a, b), kept in values.items():
            kept[number] = (masks[a] & masks[b]).sum() / (masks[a] | masks[b]).sum()
    given = Readings(readers=NAMES, models=(), rows={}, tied={})
    contrasts = np.stack([each for _, each in find_contrasts(given, values)], axis=1)
    adjusted = holm(exchanged(contrasts, resamples=RESAMPLES).tolist())
    worse = contrasts.mean(axis=0) < 0
    return [name for name, p, low in zip(NAMES, adjusted, worse, strict=True) if low and p < CERTAIN]


def main(sets: int = 400) -> None:
    found: dict[str, Any] = {"sets": sets, "readers": len(NAMES), "null": {}, "planted": {}}
    for kind, populations in (("null", NULLS), ("planted", PLANTED)):
        for name, population in populations.items():
            for cases in CASES:
                rng = np.random.default_rng(len(name) + cases)
                named = [name_apart(rng, cases, **population) for _ in range(sets)]
                entry: dict[str, Any] = {"anyone": np.mean([bool(each) for each in named])}
                if kind == "planted":
                    entry = {"planted": np.mean(["d" in each for each in named])}
                    entry["another"] = np.mean([bool(set(each) - {"d"}) for each in named])
                found[kind].setdefault(name, {})[f"{cases} cases"] = {
                    key: round(float(v), 4) for key, v in entry.items()
                }
                print(kind, name, cases, entry, flush=True)
    write_record(RESULT, {**circumstances(), **found})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
