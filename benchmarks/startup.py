"""Times a second start on a large data set: finding, pairing and checking its files against the cache of verified ones.

    python benchmarks/startup.py [cases, 100000]
    python benchmarks/startup.py --commands      # only what short commands take, into the same record

Makes that many images and masks of 32 x 32 in a temporary folder (8 KB of disk a case). Then it opens the splits
"train" and "val" as a training does, each time in a new process. The first time reads every file; five more follow.
CPU seconds of all threads, without the imports. Writes benchmarks/results/startup.json.

The commands are an import, the help, and `score` of 8 pairs of 40 x 50 without its page. Each runs in a new process,
once to compile and read from the disk, and then nine times: CPU seconds of the process and of those that it starts.
"""

import json
import os
import resource
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
from segmeter.data.verification.splits import open_splits

CASES, STARTS, SIDE = 100_000, 5, 32
PAIRS, RUNS = 8, 9  # of `score`, and of each short command
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


def time_commands(root: Path) -> dict[str, dict[str, float]]:
    """CPU seconds of short commands, each warm and in a new process."""
    for seed, side in enumerate(("predictions", "references")):
        (root / side).mkdir()
        masks = np.random.default_rng(seed).integers(0, 3, (PAIRS, 40, 50), np.uint8)
        for number, mask in enumerate(masks):
            Image.fromarray(mask).save(root / side / f"{number}.png")
    masks_of = [f"{side}={root / side}" for side in ("predictions", "references")]
    scored = ["score", *masks_of, "data.num_classes=3", "report.html=false", f"run.root={root / 'runs'}"]
    timed = {
        "import segmeter": (["-c", "import segmeter"], 0.1),
        "segmeter --help": (["-m", "segmeter", "--help"], 0.1),
        f"segmeter score of {PAIRS} pairs": (["-m", "segmeter", *scored], 1.5),
    }
    found = {}
    for name, (arguments, bar) in timed.items():
        _, *seconds = [_cpu_of(arguments) for _ in range(1 + RUNS)]
        found[name] = {"median_cpu_s": statistics.median(seconds), "least_cpu_s": min(seconds), "aim_cpu_s": bar}
        print(f"{name}: CPU s, median {found[name]['median_cpu_s']:.3f}, least {min(seconds):.3f}; aim {bar:g}")
    return found


def _cpu_of(arguments: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    if sys.argv[1:2] == ["--start"]:
        print(start(Path(sys.argv[2])))
        return
    target = RESULTS / "startup.json"
    known = json.loads(target.read_text()) if target.is_file() else {}
    if sys.argv[1:2] == ["--commands"]:
        with tempfile.TemporaryDirectory() as folder:
            write_record(target, known | {"commands": circumstances() | time_commands(Path(folder))})
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
    kept = {key: value for key, value in known.items() if key == "commands"}
    write_record(target, circumstances() | {"cases": cases} | figures | kept)


if __name__ == "__main__":
    main()
