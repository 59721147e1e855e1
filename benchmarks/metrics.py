"""How fast counting and the bootstrap are, against NumPy and (where installed) torchmetrics and scikit-learn.

Every competitor must give the same counts first. Runs are interleaved, so that a busy machine slows all alike, and
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
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segmeter.metrics.bootstrap import bootstrap
from segmeter.metrics.counts import confusion_matrix
from segmeter.metrics.overlap import Margins, compute_margins, score_margins
from segmeter.metrics.rows import CaseRow
from segmeter.metrics.summary import summarise
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
    names = ("numpy", "numba", "scipy", "torch", "torchmetrics", "scikit-learn")
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
        "start, seconds": start_up(),
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
