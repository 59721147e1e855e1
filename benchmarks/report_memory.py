"""CPU time and memory of the report of many cases, in a process of its own.

    python benchmarks/report_memory.py [cases, 100000]

The rows are those of `scale.py`. What a case costs is the difference of the peaks of so many cases and of 1000.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import RESULTS, circumstances, write_record
from scale import SPEC, peak_mb, store
from segmeter.files import write_json
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.summarise import summarise
from segmeter.report.html import write_report

FEW = 1000


def build(folder: Path, count: int) -> None:
    """What scoring leaves of so many cases, as far as the report reads it."""
    folder.mkdir()
    rows = store(range(count))
    write_cases(folder, rows, SPEC)
    write_json(folder / "metrics.json", summarise(rows, SPEC, MetricsConfig(bootstrap=0)))


def measure(folder: Path) -> dict[str, float]:
    """Write the page; what loading modules takes is the same for any number of cases."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
    start = time.process_time()
    page = write_report(folder)
    seconds = time.process_time() - start
    return {
        "seconds": round(seconds, 2),
        "peak_mb": round(peak_mb(), 1),
        "page_mb": round(page.stat().st_size / 2**20, 2),
    }


def main(most: int) -> None:
    found = {}
    with tempfile.TemporaryDirectory() as place:
        for count in (FEW, most):
            for step in ("--build", "--measure"):
                command = [sys.executable, __file__, step, f"{place}/{count}", str(count)]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found[count] = json.loads(done.stdout)
            print(count, found[count], flush=True)
    growth = round(1024 * (found[most]["peak_mb"] - found[FEW]["peak_mb"]) / (most - FEW), 2)
    print(f"{growth} KB per case")
    write_record(RESULTS / "report_memory.json", circumstances() | {"cases": found, "kb_per_case": growth})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--build"]:
        build(Path(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(Path(sys.argv[2]))))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
