"""CPU time and memory of comparing two runs of many cases: the function, and the command with its page.

    python benchmarks/compare_memory.py [cases, 1000000]

The rows of the first run are those of `scale.py`; the second has the same references, and gets more pixels wrong. Both
are measured in processes of their own. What a case costs is the difference of the peaks of so many cases and of 1000.
"""

import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import numpy as np

from record import RESULTS, circumstances, write_record
from scale import CLASSES, SPEC, draw_rows, peak_mb
from segmeter.cli.main import main as segmeter
from segmeter.evaluation.finished.compare import compare
from segmeter.files import write_json
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig

FEW = 1000


def worsen(rows: Iterable[CaseRow]) -> Iterator[CaseRow]:
    """Give a share of each class's right pixels, another one in each case, to the next class."""
    rng, own = np.random.default_rng(1), np.arange(CLASSES)
    for row in rows:
        counts = row.counts.copy()
        lost = (counts[own, own] * rng.uniform(0, 0.02)).astype(np.int64)
        counts[own, own] -= lost
        counts[own, (own + 1) % CLASSES] += lost
        yield replace(row, counts=counts)


def build(place: Path, count: int) -> None:
    """What scoring leaves of two runs, as far as a comparison reads it."""
    rows = list(draw_rows(range(count)))
    worse = list(worsen(rows))
    config = MetricsConfig()
    for name, held in (("good", rows), ("worse", worse)):
        folder = place / name
        folder.mkdir(parents=True)
        write_cases(folder, held, SPEC)
        write_json(folder / "metrics.json", {"convention": config.convention, "bootstrap": {"cluster": None}})


def measure(place: Path) -> dict[str, float]:
    """Compare the runs; what loading modules takes is the same for any number of cases."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
    start = time.process_time()
    found = compare([place / "good", place / "worse"], MetricsConfig())
    assert found["order"] == ["good", "worse"]
    return {"seconds": round(time.process_time() - start, 2), "peak_mb": round(peak_mb(), 1)}


def measure_command(place: Path) -> dict[str, float]:
    """The same by `segmeter compare`, which writes its files too; modules are loaded meanwhile."""
    Path("/proc/self/clear_refs").write_text("5")
    start = time.process_time()
    with redirect_stdout(io.StringIO()):
        segmeter(["compare", f"runs=[{place / 'good'},{place / 'worse'}]", f"run.root={place}"])
    seconds = time.process_time() - start
    page = next(place.rglob("compare.html"))
    return {
        "seconds": round(seconds, 2),
        "peak_mb": round(peak_mb(), 1),
        "page_mb": round(page.stat().st_size / 2**20, 2),
    }


STEPS = {"--build": build, "--measure": measure, "--command": measure_command}


def main(most: int) -> None:
    found: dict[str, dict[int, dict[str, float]]] = {"--measure": {}, "--command": {}}
    with tempfile.TemporaryDirectory() as place:
        for count in (FEW, most):
            for step in STEPS:
                command = [sys.executable, __file__, step, f"{place}/{count}", str(count)]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                if step in found:
                    found[step][count] = json.loads(done.stdout)
                    print(step, count, found[step][count], flush=True)
    shape: dict[str, object] = {"runs": 2, "classes": CLASSES}
    for step, name in (("--measure", "compare"), ("--command", "command")):
        peaks = {count: each["peak_mb"] for count, each in found[step].items()}
        growth = round(1024 * (peaks[most] - peaks[FEW]) / (most - FEW), 2)
        print(f"{name}: {growth} KB per case")
        shape[name] = {"cases": found[step], "kb_per_case": growth}
    write_record(RESULTS / "compare_memory.json", circumstances() | shape)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--build"]:
        build(Path(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1:2] and sys.argv[1] in STEPS:
        print(json.dumps((measure if sys.argv[1] == "--measure" else measure_command)(Path(sys.argv[2]))))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
