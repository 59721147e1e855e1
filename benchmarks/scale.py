"""How time and memory grow with the number of cases: rows, summary, tables, shards, merge and report, simulated.

    python benchmarks/scale.py [most cases, 1000000]

Each number of cases runs in a process of its own. Of each stage: CPU seconds, and the most memory that the process had
in it, which "per case" compares with that of the fewest cases. Rows go through the journal; their counts are drawn.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from record import RESULTS as FOLDER
from record import circumstances, write_record
from segmeter.classes import ClassSpec
from segmeter.distributed.shards import Shard, describe_shard
from segmeter.evaluation.drive import SUMMARY
from segmeter.evaluation.manifest import Entry, Manifest
from segmeter.evaluation.merge import Merge, merge
from segmeter.evaluation.pieces import read_pieces
from segmeter.files import write_json
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.summarise import summarise
from segmeter.report.html import write_report
from segmeter.schema import as_plain

CLASSES = 19
SHARDS = 4
BLOCK = 10_000
SIZES = (1_000, 10_000, 100_000, 1_000_000)
RECORD = {"unit": "pixels", "source": "none", "overridden": False, "warnings": []}
STAGES = ("rows", "summary", "tables", "shards", "merge", "report")
SPEC = ClassSpec(
    task="multiclass",
    names=tuple(f"class{k}" for k in range(CLASSES)),
    colours=((0, 0, 0),) * CLASSES,
    ignore_index=255,
)
CONFIG = MetricsConfig()


def simulate(block: int) -> np.ndarray:
    """Draw the counts of `BLOCK` masks of 512 x 512, most of whose pixels are right."""
    rng = np.random.default_rng(block)
    counts = rng.integers(0, 300, (BLOCK, CLASSES, CLASSES))
    counts[:, np.arange(CLASSES), np.arange(CLASSES)] = rng.integers(10_000, 60_000, (BLOCK, CLASSES))
    return counts


def draw_rows(numbers: range) -> Iterator[CaseRow]:
    for start in range(numbers.start - numbers.start % BLOCK, numbers.stop, BLOCK):
        counts = simulate(start // BLOCK)
        for number in range(start, min(start + BLOCK, numbers.stop)):
            if number in numbers:
                yield CaseRow(case_id=f"case{number:07d}", height=512, width=512, counts=counts[number - start])


def write_journal(folder: Path, rows: Iterable[CaseRow], identity: dict[str, Any], names: Sequence[str]) -> Manifest:
    """Write the journal that scoring keeps until it has counted the last case."""
    manifest = Manifest.begin(folder, identity, names)
    for row in rows:
        manifest.add(Entry(case_id=row.case_id, row=row, sha256="0" * 64, resume_facts=RECORD))
    manifest.close()
    return manifest


def write_shard(folder: Path, number: int, count: int) -> None:
    """Write the parts of a shard's folder that merging reads; its own summary is empty."""
    shard, names = Shard(number, SHARDS), [f"case{each:07d}" for each in range(count)]
    identity = {"metrics": as_plain(CONFIG), "extra_predictions": 0, "shard": describe_shard(shard, names)}
    manifest = write_journal(folder, draw_rows(range(count)[number - 1 :: SHARDS]), identity, shard.take(names))
    written = write_cases(folder, manifest.table(SPEC), SPEC)
    write_json(folder / "metrics.json", {})
    write_json(folder / "run.json", {"command": "score", "data": "simulated"})
    manifest.finish((SUMMARY, *written))


def peak_mb() -> float:
    """Return the most memory that this process had since that was reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def measure(count: int) -> dict[str, dict[str, float]]:
    """CPU seconds and peak memory of each stage for one number of cases."""
    found: dict[str, dict[str, float]] = {}

    def timed(stage: str, work: Callable[[], object]) -> object:
        start = time.process_time()
        Path("/proc/self/clear_refs").write_text("5")  # the peak of this stage alone
        result = work()
        peak = peak_mb()
        print(f"  {count} {stage}: {time.process_time() - start:.1f} s, {peak:.0f} MB", file=sys.stderr, flush=True)
        found[stage] = {"seconds": round(time.process_time() - start, 3), "peak_mb": round(peak)}
        return result

    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        names = [f"case{each:07d}" for each in range(count)]
        manifest = timed("rows", lambda: write_journal(root / "whole", draw_rows(range(count)), {}, names))
        assert isinstance(manifest, Manifest)
        rows = manifest.table(SPEC)
        summary = timed("summary", lambda: summarise(rows, SPEC, CONFIG))
        timed("tables", lambda: write_cases(root / "whole", rows, SPEC))
        folders = [root / f"shard{number}" for number in range(1, SHARDS + 1)]
        timed("shards", lambda: [write_shard(each, n, count) for n, each in enumerate(folders, start=1)])
        job = Merge(pieces=read_pieces(folders), kind="shards", metrics=CONFIG, folder=root / "merged")
        timed("merge", lambda: merge(job))
        merged = json.loads((root / "merged" / "metrics.json").read_bytes())
        assert isinstance(summary, dict)
        assert {key: merged[key] for key in summary} == json.loads(json.dumps(summary))
        for name in ("cases.parquet", "cases.csv"):
            assert (root / "merged" / name).read_bytes() == (root / "whole" / name).read_bytes()
        timed("report", lambda: write_report(root / "merged"))
    return found


def kb_per_case(table: dict[int, dict[str, dict[str, float]]]) -> dict[str, float]:
    """Compute the memory that each further case adds to a stage, between the fewest cases and the most."""
    least, most = min(table), max(table)
    return {
        stage: round(1e3 * (table[most][stage]["peak_mb"] - table[least][stage]["peak_mb"]) / (most - least), 2)
        for stage in (STAGES if most > least else ())
    }


def main(most: int) -> None:
    table: dict[int, dict[str, dict[str, float]]] = {}
    print(f"{'cases':>9} " + " ".join(f"{stage:>17}" for stage in STAGES))
    for count in (size for size in SIZES if size <= most):
        done = subprocess.run(
            [sys.executable, __file__, "--one", str(count)], stdout=subprocess.PIPE, text=True, check=True
        )
        table[count] = json.loads(done.stdout)
        found = [table[count][stage] for stage in STAGES]
        cells = (f"{each['seconds']:7.2f} s {each['peak_mb']:5.0f} MB" for each in found)
        print(f"{count:>9} {' '.join(cells)}", flush=True)
    growth = kb_per_case(table)
    print(" per case " + " ".join(f"{kb:14.2f} KB" for kb in growth.values()))
    shape = {"classes": CLASSES, "shards": SHARDS, "cases": table, "kb_per_case": growth}
    write_record(FOLDER / "scale.json", circumstances() | shape)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(int(sys.argv[2]))))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else SIZES[-1])
