"""How fast counts, surfaces, bands and the bootstrap are, against NumPy and (where installed) torchmetrics,
scikit-learn and MONAI.

Every competitor must give the same values first. Runs are interleaved, so that a busy machine slows all alike, and
medians are reported, with the best beside them: on a loaded machine long calls are interrupted more often than short
ones, which flatters the short ones' medians.

    python benchmarks/metrics.py [rounds]      writes benchmarks/results/metrics.json
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segmeter.metrics.bootstrap import bootstrap
from segmeter.metrics.boundary import boundary_iou
from segmeter.metrics.counts import confusion_matrix
from segmeter.metrics.overlap import Margins, compute_margins, score_margins
from segmeter.metrics.rows import CaseRow
from segmeter.metrics.summary import summarise
from segmeter.metrics.surface import TOLERANCES, SurfaceMetrics, surface_metrics, surface_metrics_by_class
from segmeter.vocabulary import ClassSpec

Array = NDArray[np.uint8]
Work = Callable[[], object]

K, SIDE = 19, 1024
RESULT = Path(__file__).parent / "results" / "metrics.json"


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


def counters(target: Array, labels: Array) -> dict[str, Work]:
    """Everyone's confusion matrix of the same two maps."""
    work: dict[str, Work] = {
        "segmeter": lambda: confusion_matrix(target, labels, num_classes=K),
        "segmeter, with ignore_index": lambda: confusion_matrix(target, labels, num_classes=K, ignore_index=255),
        "np.bincount on uint16": lambda: np.bincount(
            (target.astype(np.uint16) * np.uint16(K) + labels).ravel(), minlength=K * K
        ).reshape(K, K),
    }
    try:
        import torch
        from torchmetrics.functional.classification import multiclass_confusion_matrix

        tensors = torch.from_numpy(labels), torch.from_numpy(target)
        work["torchmetrics"] = lambda: multiclass_confusion_matrix(*tensors, num_classes=K)
    except ImportError:
        pass
    try:
        from sklearn import metrics

        flat = target.ravel(), labels.ravel()
        work["scikit-learn"] = lambda: metrics.confusion_matrix(*flat, labels=np.arange(K))
    except ImportError:
        pass
    return work


def interleave(work: dict[str, Work], rounds: int) -> dict[str, dict[str, float]]:
    """Median and best seconds of each, one after the other in every round; the slow take part in a third of them."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for index in range(rounds):
        for name, call in work.items():
            if index % 3 and times[name][0] > 0.05:
                continue
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: {"median": statistics.median(seconds), "best": min(seconds)} for name, seconds in times.items()}


def count(rounds: int) -> dict[str, object]:
    rng = np.random.default_rng(0)
    table = {}
    for maps, make in (("noise", noise), ("scene", scene)):
        work = counters(*make(rng))
        reference = np.asarray(work["np.bincount on uint16"]())
        for name, call in work.items():
            if not np.array_equal(np.asarray(call()), reference):
                raise SystemExit(f"{name} counts differently")
        seconds = interleave(work, rounds)
        table[maps] = {
            name: {
                kind: {"Mpx_per_s": SIDE**2 / 1e6 / spent[kind], "slower": spent[kind] / seconds["segmeter"][kind]}
                for kind in ("median", "best")
            }
            for name, spent in seconds.items()
        }
    return table


def resample(rounds: int) -> dict[str, dict[str, float]]:
    """Seconds for 500 cases of 19 classes, 10000 resamples, BCa: dataset mIoU alone, and the summary's 48 intervals."""
    rng = np.random.default_rng(0)
    spec = ClassSpec(task="multiclass", names=tuple(f"c{k}" for k in range(K)), colours=((0, 0, 0),) * K)
    hits = rng.integers(0, 50, (500, K, K)) + rng.integers(0, 5000, (500, K, 1)) * np.eye(K, dtype=np.int64)
    rows = [CaseRow(case_id=f"{i:03d}", height=1, width=1, counts=hits[i]) for i in range(500)]
    columns = compute_margins(hits).columns()
    work: dict[str, Work] = {
        "dataset mIoU": lambda: bootstrap(columns, dataset_miou),
        "whole summary": lambda: summarise(rows, spec),
    }
    return interleave(work, rounds)


def dataset_miou(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return score_margins(Margins.from_columns(sums)).mean_iou[:, None]


def ball(radius: int, centre: tuple[int, int, int], side: int = 192) -> NDArray[np.bool_]:
    z, y, x = np.ogrid[:side, :side, :side]
    return (z - centre[0]) ** 2 + (y - centre[1]) ** 2 + (x - centre[2]) ** 2 <= radius**2


def monai_surfaces(target: Array, labels: Array, spacing: tuple[float, ...]) -> dict[str, NDArray[np.float64]]:
    """HD, HD95, ASSD, directed mean and NSD per class, one call each, as MONAI offers them."""
    import torch
    from monai.metrics import compute_average_surface_distance, compute_hausdorff_distance, compute_surface_dice

    classes = np.arange(target.ndim == 3, target.max() + 1)  # of the balls, only the object
    pair = [torch.from_numpy((one == classes.reshape(-1, *[1] * one.ndim))[None]) for one in (labels, target)]
    options = {"include_background": True, "spacing": spacing}
    found = {
        "hd": compute_hausdorff_distance(*pair, **options),
        "hd95": compute_hausdorff_distance(*pair, percentile=95, **options),
        "assd": compute_average_surface_distance(*pair, symmetric=True, **options),
        "mean_from_mask": compute_average_surface_distance(*pair, **options),
    }
    for tolerance in TOLERANCES:
        found[f"nsd {tolerance}"] = compute_surface_dice(*pair, class_thresholds=[tolerance] * len(classes), **options)
    return {name: value[0].double().numpy() for name, value in found.items()}


def check_surfaces(ours: tuple[SurfaceMetrics, ...], theirs: dict[str, NDArray[np.float64]]) -> None:
    """Stop unless the two agree; MONAI rounds to float32."""
    for name, values in theirs.items():
        if name.startswith("nsd"):
            found = [one.nsd[TOLERANCES.index(float(name[4:]))] for one in ours]
        else:
            found = [getattr(one, name) for one in ours]
        if not np.allclose(found, values, rtol=1e-5, atol=1e-6):
            raise SystemExit(f"{name}: {found} and MONAI's {values}")


def surfaces(rounds: int) -> dict[str, object]:
    """Seconds of every surface figure: two balls in 192 x 192 x 192, and a map of 19 classes."""
    target, labels = scene(np.random.default_rng(0))
    flat = (1.0, 1.0)
    table: dict[str, object] = {}
    by_class = partial(surface_metrics_by_class, target, labels, num_classes=K, spacing=flat)
    table["19 classes, 1024 x 1024"] = against_monai(by_class, (target, labels, flat), rounds)
    for radius in (20, 60):
        pair = ball(radius, (96, 96, 96)), ball(radius, (98, 93, 97))
        spacing = (2.0, 1.0, 1.0)
        maps = pair[0].view(np.uint8), pair[1].view(np.uint8), spacing
        table[f"ball of radius {radius}"] = against_monai(
            partial(measure_ball, *pair, spacing), rounds=rounds, maps=maps
        )
    return table


def measure_ball(
    target: NDArray[np.bool_], mask: NDArray[np.bool_], spacing: tuple[float, ...]
) -> tuple[SurfaceMetrics, ...]:
    return (surface_metrics(target, mask, spacing=spacing),)


def against_monai(
    ours: Callable[[], tuple[SurfaceMetrics, ...]], maps: tuple[Array, Array, tuple[float, ...]], rounds: int
) -> dict[str, dict[str, float]]:
    work = {"segmeter": ours}
    if installed("monai") and installed("torch"):
        check_surfaces(ours(), monai_surfaces(*maps))
        work["MONAI, 9 calls"] = lambda: monai_surfaces(*maps)
    return interleave(work, rounds)


def boundaries(rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of boundary IoU of 19 classes, against the published recipe with SciPy's separable minimum filter."""
    target, labels = scene(np.random.default_rng(0))
    width = boundary_iou(target, labels, num_classes=K).width
    if not np.array_equal(boundary_iou(target, labels, num_classes=K).iou, published_boundary(target, labels, width)):
        raise SystemExit("the published recipe gives another boundary IoU")
    work: dict[str, Work] = {
        "segmeter": lambda: boundary_iou(target, labels, num_classes=K),
        "published recipe per class": lambda: published_boundary(target, labels, width),
    }
    return interleave(work, rounds)


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
        "import time; import numpy as np; from segmeter.metrics.counts import confusion_matrix;"
        "maps = np.zeros((2, 9), np.uint8); start = time.perf_counter();"
        "confusion_matrix(*maps, num_classes=2); print(time.perf_counter() - start)"
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        first, second = (
            float(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout)
            for _ in range(2)
        )
    return {"first count, compiling": first, "first count, from the cache": second}


def machine() -> dict[str, object]:
    names = ("numpy", "numba", "scipy", "torch", "torchmetrics", "scikit-learn", "monai")
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {name: installed(name) for name in names},
    }


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    result = {
        "machine": machine(),
        "confusion matrix, 19 classes, 1024 x 1024, uint8": count(rounds),
        "bootstrap, N = 500, B = 10000, 19 classes, seconds": resample(rounds),
        "surface metrics at 5 tolerances, seconds": surfaces(rounds),
        "boundary IoU, 19 classes, 1024 x 1024, seconds": boundaries(rounds),
        "start, seconds": start_up(),
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
