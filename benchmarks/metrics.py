"""Times counts, surfaces, bands, error types, slices and the bootstrap against live tools (dependency group `peers`).

Everyone has one thread, and the processor's time of a call is compared. Short calls are repeated until they take 20 ms
together, so that each finds its data and memory where it left them. Rows that say "once a turn" are of single calls,
which the work of the others in between has cost their cache and their memory.

    python benchmarks/metrics.py [--rounds N]      writes benchmarks/results/metrics.json
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness import Row, Work, compare, demand, publish, race, with_one_thread
from record import RESULTS, circumstances
from segmeter.classes import ClassSpec
from segmeter.metrics.cases.run_columns import lay_out_run
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.pixels.error_types import error_types
from segmeter.metrics.pixels.overlap import ClassTotals, aggregate, class_totals
from segmeter.metrics.shapes import boundary_iou
from segmeter.metrics.statistics.bootstrap import bootstrap
from segmeter.metrics.summary.scoreboard import build_scoreboards
from segmeter.metrics.summary.slices import summarise_slices
from segmeter.metrics.summary.summarise import summarise
from segmeter.metrics.surfaces import TOLERANCES, SurfaceMetrics, surface_metrics, surface_metrics_by_class

Array = NDArray[np.uint8]

K, SIDE, VOID = 19, 1024, 255
SPACING = (2.0, 1.0, 1.0)
REPEAT_S = 0.02  # a call that is shorter is repeated
CASES, SLICES = 100_000, 20
PEERS = ("torchmetrics", "monai", "segmentation-models-pytorch", "scikit-learn", "surface-distance")


def times(calls: dict[str, Work], rounds: int, repeat_s: float = REPEAT_S) -> dict[str, Any]:
    """Race the calls; those over half a second have a third of the turns."""
    return race(calls, rounds, repeat_s=repeat_s, seldom_s=0.5)


def noise(rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw the worst case: no two neighbours are alike."""
    target, labels = rng.integers(0, K, (2, SIDE, SIDE), dtype=np.uint8)
    return target, labels


def scene(rng: np.random.Generator) -> tuple[Array, Array]:
    """Objects of 32 pixels, borders 3 pixels off, 1 % specks: what masks look like."""
    target = np.kron(rng.integers(0, K, (SIDE // 32, SIDE // 32)), np.ones((32, 32), int)).astype(np.uint8)
    labels = np.roll(target, 3, axis=1)
    specks = rng.random(labels.shape) < 0.01
    labels[specks] = rng.integers(0, K, specks.sum())
    return target, labels


def scene_with_void(rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw a scene whose first rows the reference leaves undecided, as most data sets do somewhere."""
    target, labels = scene(rng)
    target[: SIDE // 16] = VOID
    return target, labels


def peer(module: str) -> ModuleType | None:
    try:
        return import_module(module)
    except ImportError:
        return None


def counters(target: Array, labels: Array, void: int | None) -> dict[str, Work]:
    """Everyone's confusion matrix of the same two maps, each from what its users hold."""
    work: dict[str, Work] = {
        "segmeter": lambda: confusion_matrix(target, labels, num_classes=K, ignore_index=void),
        "np.bincount on uint16": lambda: bincount(target, labels, void),
    }
    torch, classification = peer("torch"), peer("torchmetrics.functional.classification")
    if torch and classification:
        matrix = partial(classification.multiclass_confusion_matrix, num_classes=K, ignore_index=void)
        narrow = torch.from_numpy(labels), torch.from_numpy(target)
        wide = [one.long() for one in narrow]  # as argmax gives them, and losses want them
        work["torchmetrics, int64"] = lambda: matrix(*wide)
        work["torchmetrics, uint8"] = lambda: matrix(*narrow)
        work["torchmetrics, uint8, validate_args=False"] = lambda: matrix(*narrow, validate_args=False)
    if sklearn := peer("sklearn.metrics"):
        flat = target.ravel(), labels.ravel()
        work["scikit-learn"] = lambda: sklearn.confusion_matrix(*flat, labels=np.arange(K))  # leaves out the rest
    return work


def bincount(target: Array, labels: Array, void: int | None) -> NDArray[np.int64]:
    if void is not None:
        valid = target != void
        target, labels = target[valid], labels[valid]
    pairs = target.astype(np.uint16) * np.uint16(K) + labels
    return np.bincount(pairs.ravel(), minlength=K * K).reshape(K, K)


def tallies(target: Array, labels: Array) -> dict[str, Work]:
    """Tools that give true positives per class (K,), and no matrix."""
    torch, smp, monai = peer("torch"), peer("segmentation_models_pytorch.metrics"), peer("monai.metrics")
    work: dict[str, Work] = {}
    if torch and smp:
        wide = [torch.from_numpy(one[None].astype(np.int64)) for one in (labels, target)]
        work["segmentation-models-pytorch"] = lambda: smp.get_stats(*wide, mode="multiclass", num_classes=K)[0][0]
    if torch and monai:
        classes = np.arange(K)[:, None, None]
        planes = [torch.from_numpy((one == classes)[None].astype(np.float32)) for one in (labels, target)]
        work["MONAI, one-hot given"] = lambda: monai.get_confusion_matrix(*planes)[0, :, 0]
    return work


def count(rounds: int) -> list[Row]:
    rows = []
    for name, maps, void in (("noise", noise, None), ("scene", scene, None), ("scene", scene_with_void, VOID)):
        target, labels = maps(np.random.default_rng(0))
        matrices, diagonals = counters(target, labels, void), tallies(target, labels) if void is None else {}
        reference = np.asarray(matrices["np.bincount on uint16"]())
        for tool, call in matrices.items():
            demand(np.array_equal(np.asarray(call()), reference), f"{tool} counts differently")
        for tool, call in diagonals.items():
            demand(np.array_equal(np.asarray(call()), reference.diagonal()), f"{tool} counts differently")
        needs = {"torchmetrics, int64": 150.0, "torchmetrics, uint8": 150.0, "np.bincount on uint16": 3.0}
        work = f"confusion matrix, {name}{' with ignore_index' if void else ''}, {K} classes, 1 Mpx, uint8"
        rows += compare(work, times(matrices | diagonals, rounds), needs)
        rows += compare(f"{work}, once a turn", times(matrices, rounds, 0), needs)
    return rows


def resample(rounds: int) -> list[Row]:
    """Intervals of 500 cases of 19 classes, 10000 resamples, BCa: dataset mIoU alone, and the summary's 48."""
    rng = np.random.default_rng(0)
    spec = ClassSpec(task="multiclass", names=tuple(f"c{k}" for k in range(K)), colours=((0, 0, 0),) * K)
    hits = rng.integers(0, 50, (500, K, K)) + rng.integers(0, 5000, (500, K, 1)) * np.eye(K, dtype=np.int64)
    rows = [CaseRow(case_id=f"{i:03d}", height=1, width=1, counts=hits[i]) for i in range(500)]
    columns = class_totals(hits).columns()
    work: dict[str, Work] = {
        "interval of the dataset mIoU": lambda: bootstrap(columns, dataset_miou),
        "whole summary": lambda: summarise(rows, spec),
    }
    return [
        alone(f"{name}, N = 500, B = 10000, {K} classes", spent, 500) for name, spent in times(work, rounds).items()
    ]


def alone(work: str, spent: Any, at_most_ms: float) -> Row:
    """Return a row without anyone to compare with."""
    needs = f"under {at_most_ms / 1000:g} s"
    return Row(work=work, needs=needs, met=spent.cpu_ms < at_most_ms, ours=spent)


def dataset_miou(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    margins = ClassTotals.from_columns(sums)
    classes = range(margins.tp.shape[-1])
    return aggregate("mean_iou", margins, task="multiclass", classes=classes)[:, None]


def ball(radius: int, centre: tuple[int, int, int], side: int = 192) -> NDArray[np.bool_]:
    z, y, x = np.ogrid[:side, :side, :side]
    return (z - centre[0]) ** 2 + (y - centre[1]) ** 2 + (x - centre[2]) ** 2 <= radius**2


def balls(radius: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    return ball(radius, (96, 96, 96)), ball(radius, (98, 93, 97))


def monai_surfaces(planes: list[Any], spacing: tuple[float, ...]) -> dict[str, NDArray[np.float64]]:
    """HD, HD95, ASSD, both directed means (for the MASD) and NSD per class, one call each, as MONAI offers them."""
    metrics = import_module("monai.metrics")
    options = {"include_background": True, "spacing": spacing}
    tolerated = {"class_thresholds": None} | options
    found = {
        "hd": metrics.compute_hausdorff_distance(*planes, **options),
        "hd95": metrics.compute_hausdorff_distance(*planes, percentile=95, **options),
        "assd": metrics.compute_average_surface_distance(*planes, symmetric=True, **options),
        "mean_from_mask": metrics.compute_average_surface_distance(*planes, **options),
        "mean_from_target": metrics.compute_average_surface_distance(*planes[::-1], **options),
    }
    for tolerance in TOLERANCES:
        tolerated["class_thresholds"] = [tolerance] * planes[0].shape[1]
        found[f"nsd {tolerance}"] = metrics.compute_surface_dice(*planes, **tolerated)
    return {name: value[0].double().numpy() for name, value in found.items()}


def check_surfaces(ours: tuple[SurfaceMetrics, ...], theirs: dict[str, NDArray[np.float64]]) -> None:
    """Stop unless the two agree; MONAI rounds to float32."""
    for name, values in theirs.items():
        if name.startswith("nsd"):
            found = [one.nsd[TOLERANCES.index(float(name[4:]))] for one in ours]
        else:
            found = [getattr(one, name) for one in ours]
        demand(np.allclose(found, values, rtol=1e-5, atol=1e-6), f"{name}: {found} and MONAI's {values}")


def surfaces(rounds: int) -> list[Row]:
    """Every surface metric: of balls in 192 x 192 x 192, and of a map of 19 classes."""
    rows = []
    for radius, least in ((20, 20.0), (60, 8.0)):
        pair = balls(radius)
        work = f"HD, HD95, ASSD, MASD, NSD at 5 tolerances, 192^3, ball of radius {radius}"
        planes = [one[None, None] for one in pair[::-1]]
        rows += against_monai(work, partial(measure_ball, *pair), planes, SPACING, rounds, least)
    target, labels = scene(np.random.default_rng(0))
    by_class = partial(surface_metrics_by_class, target, labels, num_classes=K, spacing=(1.0, 1.0))
    planes = [(one == np.arange(K)[:, None, None])[None] for one in (labels, target)]
    work = f"the same, {SIDE} x {SIDE}, {K} classes, all classes"
    return rows + against_monai(work, by_class, planes, (1.0, 1.0), rounds, 10.0)


def measure_ball(target: NDArray[np.bool_], mask: NDArray[np.bool_]) -> tuple[SurfaceMetrics, ...]:
    return (surface_metrics(target, mask, spacing=SPACING),)


def against_monai(
    work: str,
    ours: Callable[[], tuple[SurfaceMetrics, ...]],
    planes: list[NDArray[np.bool_]],
    spacing: tuple[float, ...],
    rounds: int,
    least: float,
) -> list[Row]:
    name = "MONAI, 10 calls"
    calls: dict[str, Work] = {"segmeter": ours}
    if peer("monai.metrics") and (torch := peer("torch")):
        given = [torch.from_numpy(one) for one in planes]
        check_surfaces(ours(), monai_surfaces(given, spacing))
        calls[name] = lambda: monai_surfaces(given, spacing)
    return compare(work, times(calls, rounds), {name: least})


def elements(rounds: int) -> list[Row]:
    """Marching cubes against the tool that it is of."""
    rows = []
    for radius in (20, 60):
        pair = balls(radius)
        ours = partial(surface_metrics, *pair, spacing=SPACING, surface="marching_cubes")
        calls: dict[str, Work] = {"segmeter": ours}
        if tool := peer("surface_distance"):
            theirs = partial(deepmind_surfaces, tool, *pair)
            found = ours()
            expected = [found.hd, found.hd95, found.mean_from_target, found.mean_from_mask, *found.nsd]
            demand(np.allclose(theirs(), expected, rtol=1e-6), f"surface-distance: {theirs()} and ours {expected}")
            calls["surface-distance"] = theirs
        rows += compare(f"marching cubes, the same metrics, ball of radius {radius}", times(calls, rounds), {})
    return rows


def deepmind_surfaces(tool: ModuleType, target: NDArray[np.bool_], mask: NDArray[np.bool_]) -> list[float]:
    found = tool.compute_surface_distances(target, mask, SPACING)
    hausdorff = [tool.compute_robust_hausdorff(found, percent) for percent in (100, 95)]
    means = tool.compute_average_surface_distance(found)
    dice = [tool.compute_surface_dice_at_tolerance(found, tolerance) for tolerance in TOLERANCES]
    return [*hausdorff, *means, *dice]


def boundaries(rounds: int) -> list[Row]:
    """Boundary IoU of 19 classes, against the published recipe with SciPy's separable minimum filter."""
    target, labels = scene(np.random.default_rng(0))
    found = boundary_iou(target, labels, num_classes=K)
    name = "published recipe per class"
    demand(np.array_equal(found.iou, published_boundary(target, labels, found.width)), f"{name} gives another value")
    calls: dict[str, Work] = {
        "segmeter": lambda: boundary_iou(target, labels, num_classes=K),
        name: lambda: published_boundary(target, labels, found.width),
    }
    note = "erosion by a minimum filter, whose time does not grow with the width as that of repeated erosions does"
    return compare(f"boundary IoU, {SIDE} x {SIDE}, {K} classes", times(calls, rounds), {name: 10.0}, note=note)


def published_boundary(target: Array, labels: Array, width: int) -> NDArray[np.float64]:
    from scipy.ndimage import minimum_filter

    scores = []
    for k in range(K):
        masks = (target == k).view(np.uint8), (labels == k).view(np.uint8)
        first, second = (one > minimum_filter(one, 2 * width + 1, mode="constant") for one in masks)
        scores.append(np.count_nonzero(first & second) / np.count_nonzero(first | second))
    return np.array(scores)


def diagnose(rounds: int) -> Iterator[Row]:
    """Sort wrong pixels by type, and score 100,000 cases in 20 slices of a table, with intervals and tests."""
    target, labels = scene(np.random.default_rng(0))
    found = error_types(target, labels, num_classes=K)
    demand(found.counts.sum() == 2 * (target != labels).sum(), "the types do not add up to the wrong pixels")
    spent = times({"segmeter": lambda: error_types(target, labels, num_classes=K)}, rounds)["segmeter"]
    yield alone(f"types of errors, {SIDE} x {SIDE}, {K} classes", spent, 50)
    for classes in (2, K):
        with tempfile.TemporaryDirectory() as folder:
            rows, names, call = sliced(classes, Path(folder) / "table.csv")
            check_slices(call(), rows, names)
            spent = race({"segmeter": call}, max(3, rounds // 2))["segmeter"]
        yield alone(f"{CASES:,} cases in {SLICES} slices of a table, B = 10000, {classes} classes", spent, 2000)


def sliced(classes: int, table: Path) -> tuple[list[CaseRow], list[str], Callable[[], dict[str, Any]]]:
    """Rows of cases, each half right, the scanner of each, and all that a run does to score them slice by slice."""
    rng = np.random.default_rng(classes)
    counts = rng.integers(0, 40, (CASES, classes, classes))
    counts[:, range(classes), range(classes)] *= 20
    rows = [CaseRow(case_id=f"c{i:06d}", height=64, width=64, counts=one) for i, one in enumerate(counts)]
    names = [f"scanner {k:02d}" for k in rng.integers(0, SLICES, CASES)]
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([("case_id", "scanner"), *((f"c{i:06d}", name) for i, name in enumerate(names))])
    spec = ClassSpec(
        task="binary" if classes == 2 else "multiclass",
        names=tuple(f"class {k}" for k in range(classes)),
        colours=((0, 0, 0),) * classes,
    )
    config = MetricsConfig(slices=str(table), slice_by=("scanner",))

    def call() -> dict[str, Any]:
        run = lay_out_run(rows, spec, config.groups)
        return summarise_slices(build_scoreboards({"run": run}, spec, config)[0]["run"])

    return rows, names, call


def check_slices(found: dict[str, Any], rows: list[CaseRow], names: list[str]) -> None:
    """Stop unless each slice has the score of its cases' counts."""
    for name, each in found["by"]["scanner"].items():
        total = sum(row.counts for row, own in zip(rows, names, strict=True) if own == name)
        tp = np.diag(total)
        iou = tp / (total.sum(0) + total.sum(1) - tp)
        wanted = iou[1] if len(iou) == 2 else iou.mean()
        demand(np.isclose(each["scores"][found["headline"]]["value"], wanted, rtol=1e-12), f"{name} scores differently")
        demand(each["n"] == names.count(name), f"{name} has other cases")


def start_up() -> dict[str, float]:
    """Seconds of the first count of many pixels in a process: with an empty compilation cache, and a filled one."""
    code = (
        "import time; import numpy as np;"
        "from segmeter.metrics.pixels.confusion import PLAIN_PIXELS, confusion_matrix;"
        "maps = np.zeros((2, PLAIN_PIXELS + 1), np.uint8); start = time.process_time();"
        "confusion_matrix(*maps, num_classes=2); print(time.process_time() - start)"
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        first, second = (
            float(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout)
            for _ in range(2)
        )
    return {"first count, compiling": first, "first count, from the cache": second}


def main() -> None:
    with_one_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="turns of each call; a third for those over 0.5 s")
    parser.add_argument("--output", type=Path, default=RESULTS / "metrics.json", help="where the JSON goes")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", module="monai")
    before = circumstances(*PEERS)
    parts = (count, surfaces, elements, boundaries, resample, diagnose)
    rows = (row for part in parts for row in part(arguments.rounds))
    publish(arguments.output, before, rows, rounds=arguments.rounds, threads=1, start_s=start_up())


if __name__ == "__main__":
    main()
