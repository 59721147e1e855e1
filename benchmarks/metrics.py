"""How fast counts, surfaces, bands and the bootstrap are, against the live tools (dependency group `peers`).

Every competitor must give the same values first. Everyone has one thread, runs take turns, and what is compared is the
processor time of a call: on a machine that others use too, the clock on the wall mostly measures the others. Short
calls are repeated until they take 20 ms together, so that each finds its data and memory where it left them; rows that
say "once a turn" are of single calls, which the work of the others in between has cost their cache and their memory.

    python benchmarks/metrics.py [--rounds N]      writes benchmarks/results/metrics.json
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from record import RESULTS, circumstances, write_record
from segmeter.classes import ClassSpec
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.pixels.confusion import confusion_matrix
from segmeter.metrics.pixels.overlap import ClassTotals, class_totals, score_totals
from segmeter.metrics.statistics.bootstrap import bootstrap
from segmeter.metrics.summary.summarise import summarise
from segmeter.metrics.surfaces.shape import boundary_iou
from segmeter.metrics.surfaces.surface import TOLERANCES, SurfaceMetrics, surface_metrics, surface_metrics_by_class

Array = NDArray[np.uint8]
Work = Callable[[], object]

K, SIDE, VOID = 19, 1024, 255
SPACING = (2.0, 1.0, 1.0)
LEAST_S = 0.02  # a call that is shorter is repeated
PEERS = ("torchmetrics", "monai", "segmentation-models-pytorch", "scikit-learn", "surface-distance")


@dataclass(frozen=True, kw_only=True)
class Time:
    """Milliseconds of one call: of the processor (median over rounds, and best), and by the clock (median)."""

    processor: float
    processor_best: float
    wall: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table; `ratio` is theirs / ours in processor time, None where not installed."""

    work: str
    against: str
    needs: str = ""
    met: bool | None = None
    ratio: float | None = None
    ours_ms: Time | None = None
    theirs_ms: Time | None = None
    note: str = ""


def interleave(work: dict[str, Work], rounds: int, least_s: float = LEAST_S) -> dict[str, Time]:
    """Time each call in turns, after one turn that counts only to see how long it takes; the slow have fewer turns."""
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    repeats = {name: max(1, round(least_s / max(measure(call, 1)[0], 1e-6))) for name, call in work.items()}
    for turn in range(rounds):
        for name, call in work.items():
            if turn % 3 and spent[name][0][0] > 0.5:
                continue
            spent[name].append(measure(call, repeats[name]))
    return {
        name: Time(
            processor=1000 * statistics.median(one[0] for one in times),
            processor_best=1000 * min(one[0] for one in times),
            wall=1000 * statistics.median(one[1] for one in times),
        )
        for name, times in spent.items()
    }


def measure(call: Work, repeats: int) -> tuple[float, float]:
    """Seconds of one call, of the processor and by the clock."""
    busy, start = time.process_time(), time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.process_time() - busy) / repeats, (time.perf_counter() - start) / repeats


def compare(
    work: str,
    calls: dict[str, Work],
    rounds: int,
    needs: dict[str, float],
    note: str = "",
    least_s: float = LEAST_S,
) -> list[Row]:
    """Rows of "segmeter" against everyone else in `calls`; those in `needs` that are missing are said to be."""
    times = interleave(calls, rounds, least_s)
    ours = times.pop("segmeter")
    rows = []
    for name in [*times, *(name for name in needs if name not in times)]:
        theirs, least = times.get(name), needs.get(name)
        ratio = theirs.processor / ours.processor if theirs else None
        rows.append(
            Row(
                work=work,
                against=name,
                needs=f"at least {least:g}x" if least else "",
                met=None if least is None or ratio is None else ratio >= least,
                ratio=ratio,
                ours_ms=ours,
                theirs_ms=theirs,
                note=note if theirs else "not installed",
            )
        )
    return rows


def noise(rng: np.random.Generator) -> tuple[Array, Array]:
    """The worst case: no two neighbours are alike."""
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
    """A scene whose first rows the reference leaves undecided, as most data sets do somewhere."""
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
        rows += compare(work, matrices | diagonals, rounds, needs)
        rows += compare(f"{work}, once a turn", matrices, rounds, needs, least_s=0)
    return rows


def demand(condition: bool, message: str) -> None:
    if not condition:
        raise SystemExit(message)


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
        Row(
            work=f"{name}, N = 500, B = 10000, {K} classes",
            against="-",
            needs="under 0.5 s",
            met=spent.processor < 500,
            ours_ms=spent,
        )
        for name, spent in interleave(work, rounds).items()
    ]


def dataset_miou(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return score_totals(ClassTotals.from_columns(sums)).mean_iou[:, None]


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
    """Every surface figure: of balls in 192 x 192 x 192, and of a map of 19 classes."""
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
    return compare(work, calls, rounds, {name: least})


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
        rows += compare(f"marching cubes, the same metrics, ball of radius {radius}", calls, rounds, {})
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
    return compare(f"boundary IoU, {SIDE} x {SIDE}, {K} classes", calls, rounds, {name: 10.0}, note)


def published_boundary(target: Array, labels: Array, width: int) -> NDArray[np.float64]:
    from scipy.ndimage import minimum_filter

    scores = []
    for k in range(K):
        masks = (target == k).view(np.uint8), (labels == k).view(np.uint8)
        first, second = (one > minimum_filter(one, 2 * width + 1, mode="constant") for one in masks)
        scores.append(np.count_nonzero(first & second) / np.count_nonzero(first | second))
    return np.array(scores)


def start_up() -> dict[str, float]:
    """Seconds of the first count in a fresh process: with an empty compilation cache, and with a filled one."""
    code = (
        "import time; import numpy as np; from segmeter.metrics.pixels.confusion import confusion_matrix;"
        "maps = np.zeros((2, 9), np.uint8); start = time.process_time();"
        "confusion_matrix(*maps, num_classes=2); print(time.process_time() - start)"
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        first, second = (
            float(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout)
            for _ in range(2)
        )
    return {"first count, compiling": first, "first count, from the cache": second}


def show(row: Row) -> None:
    ratio = "" if row.ratio is None else f"{row.ratio:.1f}x"
    verdict = {None: "", True: "met", False: "NOT MET"}[row.met]
    times = [f"{one.processor:.3f} ms" for one in (row.ours_ms, row.theirs_ms) if one]
    print(f"{row.work}\n  against {row.against}: {ratio} {row.needs} {verdict} {' and '.join(times)}", flush=True)


def with_one_thread() -> None:
    """Start again with the environment that libraries read when they are loaded."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    if any(os.environ.get(name) != "1" for name in names):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | dict.fromkeys(names, "1"))


def main() -> None:
    with_one_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="turns of each call; a third for those over 0.5 s")
    parser.add_argument("--output", type=Path, default=RESULTS / "metrics.json", help="where the JSON goes")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", module="monai")
    before = circumstances(*PEERS)
    rows: list[Row] = []
    for part in (count, surfaces, elements, boundaries, resample):
        for row in part(arguments.rounds):
            rows.append(row)
            show(row)
    content = {"rounds": arguments.rounds, "threads": 1, "rows": [asdict(row) for row in rows], "start_s": start_up()}
    write_record(arguments.output, before | content)


if __name__ == "__main__":
    main()
