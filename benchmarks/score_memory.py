"""Memory of `score` by its parts, of many cases without their pictures, each number in a process of its own.

    python benchmarks/score_memory.py [cases, 1000000] [slices]

Pairs, rows, journal, summary and tables are those of a run; only counting is left out: counts of 19 classes are drawn,
about 120 of the 361 above 0, which hardly compress. With `slices`, cases are sliced by their names and by what their
references show. What a case costs is the difference of the peaks of so many cases and of 1000.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from record import RESULTS, circumstances, write_record
from scale import peak_mb
from segmeter.classes import ClassSpec
from segmeter.data.masks.options import Reading
from segmeter.evaluation import cases, score
from segmeter.evaluation.manifest import Entry
from segmeter.evaluation.pairing import MaskPair, Pairing, Pairs
from segmeter.evaluation.spacings import UNKNOWN_SPACING
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig

FEW, K = 1000, 19
DRAWN = 997  # matrices, each of many cases
SPEC = ClassSpec(task="multiclass", names=tuple(f"class_{k}" for k in range(K)), colours=((0, 0, 0),) * K)
SLICES = {"slice_by": ("^([^_]+)_", "share/class_3", "share/class_7")}
PARTS = {"_measure": "rows", "summarise": "summary", "write_cases": "tables"}


def draw() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        rng.integers(0, 3000, (K, K)) * (rng.random((K, K)) < 0.3) + np.diag(rng.integers(0, 10**6, K))
        for _ in range(DRAWN)
    ]


def scorer(matrices: list[np.ndarray]) -> Callable[[Any, MaskPair], Entry]:
    """What takes the place of reading and counting masks of 1024 x 2048."""

    def score_one(pair: MaskPair) -> Entry:
        number = int(pair.stem.rpartition("_")[2])
        counts = matrices[number % DRAWN].copy()
        counts[number % K, number % K] += number
        row = CaseRow(case_id=pair.case_id, height=1024, width=2048, counts=counts, target_crc32=number)
        record = UNKNOWN_SPACING.record()
        return Entry(case_id=pair.case_id, row=row, sha256=f"{number * 7919:064x}", record=record)

    return lambda _, pair: score_one(pair)


def pair(folder: Path, count: int) -> Pairing:
    names = sorted(f"ward{number % 20:02}_{number:07}" for number in range(count))
    sides = (folder / "references", folder / "predictions")
    pairs = ((name, [side / f"{name}.png" for side in sides]) for name in names)
    return Pairing(
        pairs=Pairs(
            MaskPair(case_id=name, stem=name, references=(target,), predictions=(predicted,))
            for name, (target, predicted) in pairs
        ),
        extra=(),
    )


def measure(count: int, *, slices: bool) -> dict[str, dict[str, float]]:
    """CPU seconds and peak memory of each part; what loading modules takes is the same for any number of cases."""
    found: dict[str, dict[str, float]] = {}

    def timed(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def part(*given: Any) -> Any:
            Path("/proc/self/clear_refs").write_text("5")  # the peak of this part alone
            start = time.process_time()
            result = work(*given)
            found[name] = {"seconds": round(time.process_time() - start, 1), "peak_mb": round(peak_mb(), 1)}
            print(f"  {count} {name}: {found[name]}", file=sys.stderr, flush=True)
            return result

        return part

    cases.CaseScorer.__call__ = scorer(draw())  # type: ignore[method-assign]
    for name, part in PARTS.items():
        setattr(score, name, timed(part, getattr(score, name)))
    with tempfile.TemporaryDirectory() as place:
        job = score.Scoring(
            pairing=timed("pairs", pair)(Path(place), count),
            reading=Reading(spec=SPEC, label_map={}, max_pixels=1),
            metrics=MetricsConfig(**(SLICES if slices else {})),
            folder=Path(place) / "run",
        )
        score.score(job)
    return found


def main(most: int, *, slices: bool) -> None:
    found = {}
    for count in (FEW, most):
        command = [sys.executable, __file__, "--one", str(count), *(["slices"] if slices else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found[count] = json.loads(done.stdout)
        print(count, found[count], flush=True)
    peaks = {count: max(part["peak_mb"] for part in parts.values()) for count, parts in found.items()}
    growth = round(1024 * (peaks[most] - peaks[FEW]) / (most - FEW), 2)
    print(f"{growth} KB per case")
    name = "score_memory_slices" if slices else "score_memory"
    write_record(RESULTS / f"{name}.json", circumstances() | {"classes": K, "cases": found, "kb_per_case": growth})


if __name__ == "__main__":
    sliced = "slices" in sys.argv
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(int(sys.argv[2]), slices=sliced)))
    else:
        main(int(sys.argv[1]) if sys.argv[1:2] and sys.argv[1] != "slices" else 1_000_000, slices=sliced)
