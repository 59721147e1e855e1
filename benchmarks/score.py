"""How long `segmeter score` takes, against decoding the same PNGs alone: in threads, and in processes for comparison.

Runs are interleaved, so that a busy machine slows all alike; medians are reported, with the best and the CPU time of
all threads and processes beside them. Decoding alone is Pillow's, in the same number of threads; processes include
their start. Scoring is the whole of `evaluation.score`: reading with every check, hashing,
counting, rows, summary with 10000 resamples, and all files written. Its parts are timed one by one, in one thread.

    python benchmarks/score.py [pairs] [rounds]      writes benchmarks/results/score.json
"""

import hashlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from record import circumstances, write_record
from segmeter.classes import ClassSpec
from segmeter.data.config import default_colours
from segmeter.data.files.images import decode_mask, read_file
from segmeter.evaluation.pairing import MaskPair, pair_masks
from segmeter.evaluation.score import Scoring, score
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.pixels.confusion import count_case
from segmeter.parallel import count_cores, map_in_processes, map_in_threads

K, SIDE = 19, 1024
HELD = 40  # files whose maps are kept in memory, to time what comes after reading
RESULT = Path(__file__).parent / "results" / "score.json"
SPEC = ClassSpec(
    task="multiclass", names=tuple(f"class_{k}" for k in range(K)), colours=default_colours(K), ignore_index=255
)


def write_pairs(root: Path, count: int) -> None:
    """Smooth regions with an ignored rim on one side; predictions a few pixels off, with specks."""
    rng = np.random.default_rng(0)
    for role in ("references", "predictions"):
        (root / role).mkdir()
    for i in range(count):
        target = np.kron(rng.integers(0, K, (16, 16)), np.ones((SIDE // 16, SIDE // 16), int)).astype(np.uint8)
        labels = np.roll(target, 3, axis=1)
        specks = rng.random(labels.shape) < 0.002
        labels[specks] = rng.integers(0, K, specks.sum())
        target[:8] = 255
        Image.fromarray(target).save(root / "references" / f"{i:06}.png")
        Image.fromarray(labels).save(root / "predictions" / f"{i:06}.png")


def decode_all(job: Scoring) -> None:
    for _ in map_in_threads(decode, job.pairing.pairs, threads=count_cores()):
        pass


def decode(pair: MaskPair) -> None:
    for path in (*pair.references, *pair.predictions):
        with Image.open(path) as picture:
            np.asarray(picture)


def count_all(job: Scoring, *, processes: int) -> None:
    pairs = job.pairing.pairs
    threads = map_in_threads(job.scorer(), pairs, threads=count_cores())
    for _ in map_in_processes(job.scorer(), pairs, processes=processes, describe=str) if processes else threads:
        pass


def measure(work: dict[str, Callable[[], object]], rounds: int) -> dict[str, dict[str, float]]:
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, call in work.items():
            start, cpu = time.perf_counter(), cpu_seconds()
            call()
            seconds[name].append((time.perf_counter() - start, cpu_seconds() - cpu))
    return {
        name: {
            "median_s": statistics.median(wall for wall, _ in took),
            "best_s": min(wall for wall, _ in took),
            "cpu_median_s": statistics.median(cpu for _, cpu in took),
        }
        for name, took in seconds.items()
    }


def cpu_seconds() -> float:
    """Of this process and of those that it has waited for: what it costs, however busy the machine is."""
    return sum(os.times()[:4])


def time_parts(job: Scoring, rounds: int) -> dict[str, float]:
    """CPU seconds of the parts of scoring, each the best of some rounds."""
    paths = [path for pair in job.pairing.pairs for path in (*pair.references, *pair.predictions)]
    scorer = job.scorer()
    files = [read_file(path, max_pixels=job.max_pixels) for path in paths[:HELD]]
    maps = [decode_mask(file, label_map={}) for file in files]
    share = len(paths) / len(files)
    parts = {
        "open, check the header, read": best_cpu(lambda: [read_file(path) and None for path in paths], rounds),
        "hash": share * best_cpu(lambda: [hashlib.sha256(file.content) and None for file in files], rounds),
        "decode": share * best_cpu(lambda: [decode_mask(file, label_map={}) is None for file in files], rounds),
        "count": share
        * best_cpu(
            lambda: [count_case(a, b, SPEC) is None for a, b in zip(maps[::2], maps[1::2], strict=True)], rounds
        ),
    }
    pair = best_cpu(lambda: [scorer(pair) is None for pair in job.pairing.pairs], rounds)
    whole = best_cpu(lambda: score(job), rounds)
    parts["pairing of maps, rows"] = pair - sum(parts.values())
    return parts | {"threads, journal, summary, tables": whole - pair, "whole": whole}


def best_cpu(work: Callable[[], object], rounds: int) -> float:
    took = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        took.append(time.process_time() - start)
    return min(took)


def main(count: int = 60, rounds: int = 5) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_pairs(root, count)
        job = Scoring(
            pairing=pair_masks(root / "predictions", root / "references", spec=SPEC),
            spec=SPEC,
            label_map={},
            max_pixels=SIDE * SIDE,
            metrics=MetricsConfig(),
            folder=root,
        )
        work: dict[str, Callable[[], object]] = {
            "decoding alone": partial(decode_all, job),
            "reading and counting, threads": partial(count_all, job, processes=0),
            "reading and counting, processes": partial(count_all, job, processes=count_cores()),
            "score, whole": partial(score, job),
        }
        job.scorer()(job.pairing.pairs[0])  # compiled loops are no part of what is measured
        times = measure(work, rounds)
        parts = time_parts(job, rounds)
    alone = times["decoding alone"]
    for name, took in times.items():
        ratios = ", ".join(f"{what} x{took[what] / alone[what]:.2f}" for what in took)
        print(f"{name:<34} {1000 * took['median_s'] / count:7.2f} ms a pair: {ratios}")
    for name, seconds in parts.items():
        print(f"  {name:<32} {1000 * seconds / count:7.3f} CPU ms a pair")
    shape = {"pairs": count, "rounds": rounds, "side": SIDE, "classes": K}
    write_record(RESULT, circumstances() | shape | {"times": times, "parts_cpu_s": parts})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
