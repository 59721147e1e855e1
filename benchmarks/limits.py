"""Times the largest jobs that have limits, each in a process of its own: CPU seconds and peak memory.

    OMP_NUM_THREADS=1 python benchmarks/limits.py [job ...]      writes benchmarks/results/limits.json

One job is `compare` of two runs of 100,000 cases. Two are the summary of closed journals, of 10^6 cases with 19 classes
and of 20,000 cases with 150. The last is the command `score` on tiny pairs, without its page. Rows are drawn.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from record import RESULTS, circumstances, update_record
from scale import RECORD, peak_mb
from segmeter.classes import ClassSpec
from segmeter.cli.main import main as segmeter_main
from segmeter.data.classes_config import default_colours
from segmeter.evaluation.compare import compare
from segmeter.evaluation.manifest import Entry, Manifest
from segmeter.files import write_json
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.summarise import summarise

PAIRS, EDGE = 100_000, 16  # tiny pairs, and the edge of one in pixels
DISTINCT = 1000  # rows whose counts differ, and masks; the files of other masks are links to theirs
Result = dict[str, float]


def name_classes(count: int) -> ClassSpec:
    return ClassSpec(
        task="multiclass",
        names=tuple(f"class{k}" for k in range(count)),
        colours=default_colours(count),
        ignore_index=255,
    )


def draw_rows(spec: ClassSpec, count: int, seed: int = 0) -> Iterator[CaseRow]:
    """Draw counts of masks, most of whose pixels are right, again after 1000; the target is the same for every seed."""
    every, shape = np.arange(spec.num_classes), (DISTINCT, *spec.counts_shape)
    target = np.random.default_rng(0).integers(1000, 60_000, shape[:2])
    wrong = np.random.default_rng(seed + 1).integers(0, 900 // spec.num_classes, shape)
    wrong[:, every, every] = 0
    wrong[:, every, every] = target - wrong.sum(axis=2)
    for number in range(count):
        counts = wrong[number % DISTINCT]
        yield CaseRow(case_id=f"case{number:07d}", height=512, width=512, counts=counts, target_crc32=number)


def measure(job: Callable[[], object]) -> Result:
    Path("/proc/self/clear_refs").write_text("5")  # the peak of this stage alone
    start = time.process_time()
    job()
    return {"cpu_s": round(time.process_time() - start, 2), "peak_mb": round(peak_mb())}


def time_compare(folder: Path) -> Result:
    spec = name_classes(19)
    for seed, name in enumerate(("base", "new")):
        (folder / name).mkdir()
        write_cases(folder / name, list(draw_rows(spec, 100_000, seed)), spec)
        summary: dict[str, Any] = {"schema": 1, "convention": "segmeter", "bootstrap": {"cluster": None}}
        write_json(folder / name / "metrics.json", summary)
    return measure(lambda: compare([folder / "base", folder / "new"], MetricsConfig()))


def time_journal(folder: Path, classes: int, cases: int) -> Result:
    spec = name_classes(classes)
    manifest = Manifest.begin(folder, {}, [f"case{number:07d}" for number in range(cases)])
    for row in draw_rows(spec, cases):
        manifest.add(Entry(case_id=row.case_id, row=row, sha256="0" * 64, resume_facts=RECORD))
    manifest.close()
    return measure(lambda: write_json(folder / "metrics.json", summarise(manifest.table(spec), spec, MetricsConfig())))


def time_pairs(folder: Path) -> Result:
    rng = np.random.default_rng(0)
    roles = folder / "predictions", folder / "references"
    for role in roles:
        role.mkdir()
        for number in range(DISTINCT):
            Image.fromarray(rng.integers(0, 2, (EDGE, EDGE), np.uint8)).save(role / f"{number:06}.png")
        for number in range(DISTINCT, PAIRS):
            os.link(role / f"{number % DISTINCT:06}.png", role / f"{number:06}.png")
    given = [f"{name}={role}" for name, role in zip(("predictions", "references"), roles, strict=True)]
    settings = ["data.num_classes=2", "report.html=false", f"run.root={folder / 'runs'}"]
    with redirect_stdout(sys.stderr):
        found = measure(lambda: segmeter_main(["score", *given, *settings]))
    return found | {"cpu_ms_per_pair": round(1e3 * found["cpu_s"] / PAIRS, 3)}


JOBS: dict[str, tuple[Callable[[Path], Result], int, dict[str, float]]] = {  # with rounds and limits
    "compare 2 runs of 100000": (time_compare, 1, {"cpu_s": 15}),
    "journal of 1000000, 19 classes": (
        lambda folder: time_journal(folder, 19, 1_000_000),
        1,
        {"cpu_s": 60, "peak_mb": 2500},
    ),
    "journal of 20000, 150 classes": (lambda folder: time_journal(folder, 150, 20_000), 1, {"peak_mb": 1000}),
    "score of tiny pairs": (time_pairs, 1, {"cpu_ms_per_pair": 0.45}),
}


def main(names: list[str]) -> None:
    for name in names or JOBS:
        _, rounds, limits = JOBS[name]
        command = [sys.executable, __file__, "--one", name]
        runs = [json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout) for _ in range(rounds)]
        found = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        met = all(found[key] <= most for key, most in limits.items())
        print(f"{name}: {found}, at most {limits}: {'met' if met else 'missed'}", flush=True)
        update_record(RESULTS / "limits.json", name, {**found, "limits": limits, "met": met, **circumstances()})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        with tempfile.TemporaryDirectory() as place:
            print(json.dumps(JOBS[sys.argv[2]][0](Path(place))))
    else:
        main(sys.argv[1:])
