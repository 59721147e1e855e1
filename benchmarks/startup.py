"""Times a second start on a large data set: finding, pairing and checking its files against the cache of verified ones.

    python benchmarks/startup.py [cases, 100000]

Makes that many images and masks of 32 x 32 in a temporary folder (8 KB of disk a case). Then it opens the splits
"train" and "val" as a training does, each time in a new process. The first time reads every file; five more follow.
CPU seconds of all threads, without the imports. Writes benchmarks/results/startup.json.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from record import RESULTS, circumstances, write_record
from segmeter.data.config import FolderConfig
from segmeter.data.verification.report import open_splits

CASES, STARTS, SIDE = 100_000, 5, 32
BAR = 5.0  # CPU seconds of a second start


def make(root: Path, cases: int) -> None:
    """Write images and masks of random values, with a fixed seed."""
    rng = np.random.default_rng(0)
    for folder in ("images", "masks"):
        (root / folder).mkdir()
    for number in range(cases):
        name = f"case{number:06d}.png"
        Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)).save(root / "images" / name)
        Image.fromarray(rng.integers(0, 3, (SIDE, SIDE), dtype=np.uint8)).save(root / "masks" / name)


def start(root: Path) -> float:
    """CPU seconds of opening the splits of a training and computing their fingerprints."""
    config = FolderConfig(root=str(root), classes=("background", "cell", "border"))
    before = time.process_time()
    datasets, _ = open_splits(config, ["train", "val"])
    for dataset in datasets:
        dataset.fingerprint()
    return time.process_time() - before


def start_anew(root: Path) -> float:
    command = [sys.executable, __file__, "--start", str(root)]
    environment = os.environ | {"SEGMETER_CACHE": str(root / "cache")}
    return float(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    if sys.argv[1:2] == ["--start"]:
        print(start(Path(sys.argv[2])))
        return
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else CASES
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), cases)
        first, *later = [start_anew(Path(folder)) for _ in range(1 + STARTS)]
    median = statistics.median(later)
    print(
        f"{cases} cases, CPU s: first start {first:.1f}, later {', '.join(f'{cpu:.2f}' for cpu in later)}; aim {BAR:g}"
    )
    figures = {"first_cpu_s": first, "later_cpu_s": later, "median_later_cpu_s": median, "aim_cpu_s": BAR}
    write_record(RESULTS / "startup.json", circumstances() | {"cases": cases} | figures)


if __name__ == "__main__":
    main()
