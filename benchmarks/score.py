"""Times `segmeter score` against decoding the same PNGs alone, in threads and in processes.

Decoding alone is Pillow's, in the same number of threads; processes include their start. Scoring is the whole of
`evaluation.score`: reading with every check, hashing, counting, rows, summary with 10000 resamples, and all files. The
same in one thread shows what the other cores add. The parts are timed where they run, in one thread.

    OMP_NUM_THREADS=1 python benchmarks/score.py [pairs] [rounds]      writes benchmarks/results/score.json
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial, wraps
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image

from harness import race, whole_cpu
from record import circumstances, write_record
from segmeter.classes import ClassSpec
from segmeter.data.classes_config import default_colours
from segmeter.data.sample import Reading
from segmeter.evaluation import drive
from segmeter.evaluation import score as scoring
from segmeter.evaluation.case_scorer import CaseScorer
from segmeter.evaluation.manifest import Manifest
from segmeter.evaluation.mask_pairs import MaskPair, find_pairs
from segmeter.evaluation.pair_maps import PairLoader
from segmeter.evaluation.score import Scoring, score
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures import row
from segmeter.metrics.summary import scoreboard
from segmeter.parallel import map_in_processes, map_in_threads
from segmeter.threads import count_cores

K, SIDE = 19, 1024
DISTINCT = 60  # pairs that differ; the others are links to their files
RESULT = Path(__file__).parent / "results" / "score.json"
SPEC = ClassSpec(
    task="multiclass", names=tuple(f"class_{k}" for k in range(K)), colours=default_colours(K), ignore_index=255
)


def write_pairs(root: Path, count: int) -> None:
    """Smooth regions with an ignored rim on one side; predictions a few pixels off, with specks."""
    rng = np.random.default_rng(0)
    roles = root / "references", root / "predictions"
    for folder in roles:
        folder.mkdir(parents=True)
    for i in range(count):
        if i >= DISTINCT:
            for folder in roles:
                os.link(folder / f"{i % DISTINCT:06}.png", folder / f"{i:06}.png")
            continue
        target = np.kron(rng.integers(0, K, (16, 16)), np.ones((SIDE // 16, SIDE // 16), int)).astype(np.uint8)
        labels = np.roll(target, 3, axis=1)
        specks = rng.random(labels.shape) < 0.002
        labels[specks] = rng.integers(0, K, specks.sum())
        target[:8] = 255
        for folder, map_ in zip(roles, (target, labels), strict=True):
            Image.fromarray(map_).save(folder / f"{i:06}.png")


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


def score_on_one_core(job: Scoring) -> None:
    """Everything that asks for the cores sees one; BLAS does not ask (OMP_NUM_THREADS=1)."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        score(job)
    finally:
        os.sched_setaffinity(0, allowed)


PARTS = (  # where a part's time is spent: module or class, function
    ("read a pair", PairLoader, "load"),
    ("count it", row, "count_case_and_hidden"),
    ("the rest of a case", CaseScorer, "__call__"),
    ("journal", Manifest, "add"),
    ("manifest", Manifest, "finish"),
    ("bootstrap", scoreboard, "bootstrap_columns"),
    ("the rest of the summary", drive, "summarise"),
    ("cases.parquet, cases.csv", drive, "write_cases"),
    ("rows, sums, the rest", scoring, "score"),
)


class Stopwatch:
    """Adds up CPU time by part; a part inside another one counts for itself alone."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys((name for name, _, _ in PARTS), 0.0)
        self._running: list[str] = []
        self._last = time.thread_time()

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*given: Any, **named: Any) -> Any:
            self._turn()
            self._running.append(name)
            try:
                return function(*given, **named)
            finally:
                self._turn()
                self._running.pop()

        return timed

    def _turn(self) -> None:
        now = time.thread_time()
        if self._running:
            self.spent[self._running[-1]] += now - self._last
        self._last = now


def in_turn(work: Callable[[Any], Any], items: Iterable[Any], **_: Any) -> Iterator[Any]:
    """Map in the thread that asks, as `map_in_threads` does in several."""
    for item in items:
        yield work(item)


def time_parts(job: Scoring, rounds: int) -> dict[str, float]:
    """CPU seconds of the parts of a run in one thread, each the best of some rounds; together they are the whole.

    Each is timed where it runs: alone and repeated, with everything still in the caches, it takes half as long.
    """
    took: list[dict[str, float]] = []
    for _ in range(rounds):
        watch = Stopwatch()
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(scoring, "map_in_threads", in_turn))
            for name, place, function in PARTS:
                timed = watch.around(name, getattr(place, function))
                stack.enter_context(mock.patch.object(place, function, timed))
            scoring.score(job)
        took.append(watch.spent)
    return {name: min(each[name] for each in took) for name in took[0]}


def time_command(root: Path, *options: str) -> float:
    """CPU seconds of the whole command in a process of its own; the second time, when its modules are compiled."""
    folders = (f"predictions={root / 'predictions'}", f"references={root / 'references'}", f"run.root={root / 'runs'}")
    classes = (f"data.num_classes={K}", "data.ignore_index=255")
    command = [sys.executable, "-m", "segmeter", "score", *folders, *classes, *options]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(root.parent / "bytecode")
    for _ in range(2):
        start = whole_cpu()
        subprocess.run(command, check=True, capture_output=True, env=environment)
    return whole_cpu() - start


def main(count: int = 300, rounds: int = 5) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "pairs"
        write_pairs(root, count)
        job = Scoring(
            pairing=find_pairs(root / "predictions", root / "references", spec=SPEC),
            reading=Reading(spec=SPEC, label_map={}, max_pixels=SIDE * SIDE),
            metrics=MetricsConfig(),
            folder=root,
        )
        work: dict[str, Callable[[], object]] = {
            "decoding alone": partial(decode_all, job),
            "reading and counting, threads": partial(count_all, job, processes=0),
            "reading and counting, processes": partial(count_all, job, processes=count_cores()),
            "score, whole": partial(score, job),
            "score, whole, one core": partial(score_on_one_core, job),
        }
        job.scorer()(job.pairing.pairs[0])  # compile loops first
        times = race(work, rounds, cpu=whole_cpu)
        parts = time_parts(job, rounds)
        commands = {
            "the whole command": time_command(root),
            "the whole command, without the report": time_command(root, "report.html=false"),
        }
        write_pairs(root / "few", 2)
        commands["the whole command, 2 pairs"] = time_command(root / "few")
    alone = times["decoding alone"]
    for name, took in times.items():
        ratios = f"{took.wall_ms / alone.wall_ms:.2f}x by the clock, {took.cpu_ms / alone.cpu_ms:.2f}x CPU"
        print(f"{name:<34} {took.wall_ms / count:7.2f} ms a pair: {ratios}")
    speedup = times["score, whole, one core"].wall_best_ms / times["score, whole"].wall_best_ms
    print(f"{count_cores()} threads against one, best of {rounds} by the clock of a quiet machine: {speedup:.2f}x")
    for name, seconds in parts.items():
        print(f"  {name:<36} {1000 * seconds / count:7.3f} CPU ms a pair")
    for name, seconds in commands.items():
        print(f"{name:<38} {seconds:7.2f} CPU s")
    shape = {"pairs": count, "rounds": rounds, "side": SIDE, "classes": K}
    plain = {name: asdict(each) for name, each in times.items()}
    found = {"times": plain, "threads_speedup": speedup, "parts_cpu_s": parts, "commands_cpu_s": commands}
    write_record(RESULT, circumstances() | shape | found)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
