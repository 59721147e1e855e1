"""How long it takes to sort the wrong pixels of a map by type, and to score 100,000 cases slice by slice.

Types of errors: 1024 x 1024 pixels of 19 classes, on one thread; their counts first have the sum of the wrong pixels.
Slices: 20 of a table, intervals and tests included; the value of each is first held against the sums of its cases'
counts. What is timed is all that a run does for slices once its rows are there: the table is read, cases are put into
slices, and slices are resampled together.

    python benchmarks/diagnosis.py [--rounds N]      writes benchmarks/results/diagnosis.json
"""

import argparse
import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from record import RESULTS, circumstances, write_record
from segmeter.classes import ClassSpec
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.cases.typed import class_regions, lay_out_run
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.pixels.error_types import error_types
from segmeter.metrics.summary.scoreboard import build_scoreboards
from segmeter.metrics.summary.slices import summarise_slices

CASES, SLICES, NEEDS_S = 100_000, 20, 2.0
CLASSES = (2, 19)
SIDE, ERRORS_NEED_S = 1024, 0.05


def make_rows(classes: int, rng: np.random.Generator) -> list[CaseRow]:
    """Cases of some thousand pixels, each class half right."""
    counts = rng.integers(0, 40, (CASES, classes, classes))
    counts[:, range(classes), range(classes)] *= 20
    return [CaseRow(case_id=f"c{i:06d}", height=64, width=64, counts=one) for i, one in enumerate(counts)]


def make_table(path: Path, rng: np.random.Generator) -> list[str]:
    """A table that names a scanner for each case."""
    names = [f"scanner {k:02d}" for k in rng.integers(0, SLICES, CASES)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("case_id", "scanner"), *((f"c{i:06d}", name) for i, name in enumerate(names))])
    return names


def check(found: dict[str, Any], rows: list[CaseRow], names: list[str]) -> None:
    """Refuse to time what is wrong."""
    for name, each in found["by"]["scanner"].items():
        total = sum(row.counts for row, own in zip(rows, names, strict=True) if own == name)
        tp = np.diag(total)
        iou = tp / (total.sum(0) + total.sum(1) - tp)
        wanted = iou[1] if len(iou) == 2 else iou.mean()
        np.testing.assert_allclose(each["scores"][found["headline"]]["value"], wanted, rtol=1e-12)
        assert each["n"] == names.count(name)


def make_scene(rng: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Blocks of 32 pixels whose borders are 3 pixels off, and 1 % specks."""
    target = np.kron(rng.integers(0, 19, (SIDE // 32, SIDE // 32)), np.ones((32, 32), int)).astype(np.uint8)
    labels = np.roll(target, 3, axis=1)
    specks = rng.random(labels.shape) < 0.01
    labels[specks] = rng.integers(0, 19, specks.sum())
    return target, labels


def time_errors(rounds: int) -> dict[str, Any]:
    """Sort the wrong pixels of a scene."""
    target, labels = make_scene(np.random.default_rng(0))
    found = error_types(target, labels, num_classes=19)
    assert found.counts.sum() == 2 * (target != labels).sum()
    return spent(lambda: error_types(target, labels, num_classes=19), rounds, ERRORS_NEED_S)


def spent(call: Callable[[], object], rounds: int, needs_s: float) -> dict[str, Any]:
    """Seconds of the processor and by the clock, the best and the median of some rounds."""
    busy, wall = [], []
    for _ in range(rounds):
        start, clock = time.process_time(), time.perf_counter()
        call()
        busy.append(time.process_time() - start)
        wall.append(time.perf_counter() - clock)
    return {
        "processor_s": {"best": min(busy), "median": float(np.median(busy))},
        "clock_s": {"best": min(wall), "median": float(np.median(wall))},
        "needs_s": needs_s,
        "met": float(np.median(busy)) <= needs_s,
    }


def score_slices(rows: list[CaseRow], spec: ClassSpec, config: MetricsConfig) -> dict[str, Any]:
    """The slices of rows in memory, laying them out included."""
    run = lay_out_run(rows, spec, class_regions(spec, config.groups))
    return summarise_slices(build_scoreboards({"run": run}, spec, config)[0]["run"])


def time_slices(classes: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Score cases of some classes slice by slice."""
    rng = np.random.default_rng(classes)
    rows, names = make_rows(classes, rng), make_table(folder / "table.csv", rng)
    spec = ClassSpec(
        task="binary" if classes == 2 else "multiclass",
        names=tuple(f"class {k}" for k in range(classes)),
        colours=((0, 0, 0),) * classes,
    )
    config = MetricsConfig(slices=str(folder / "table.csv"), slice_by=("scanner",))
    check(score_slices(rows, spec, config), rows, names)
    size = {"classes": classes, "cases": CASES, "slices": SLICES, "resamples": config.bootstrap}
    return size | spent(lambda: score_slices(rows, spec, config), rounds, NEEDS_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    found = {"types of errors": time_errors(5 * rounds)}
    with tempfile.TemporaryDirectory() as folder:
        for classes in CLASSES:
            found[f"slices, {classes} classes"] = time_slices(classes, rounds, Path(folder))
    for name, row in found.items():
        times = f"{row['processor_s']['median']:.3f} s of the processor, {row['clock_s']['median']:.3f} s by the clock"
        print(f"{name}: {times}, aim {row['needs_s']:g} s")
    write_record(RESULTS / "diagnosis.json", {**circumstances(), "rounds": rounds, "work": found})


if __name__ == "__main__":
    main()
