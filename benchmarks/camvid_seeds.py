"""CamVid in 12 minutes on 2 CPU cores, once per seed: the mean of the test mIoU, and how far the seeds spread.

    python benchmarks/camvid_seeds.py --root PATH/camvid

Each seed is `segmeter train experiment=camvid_cpu seed=N` and `segmeter eval` of its best checkpoint on the test split.
A seed that is done is kept under --work and not run again with the same recipe; one that was stopped starts anew, as
its time budget follows the clock. For figures to publish the machine has to be quiet: the load before each seed is
recorded beside it.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from record import RESULTS, circumstances, write_record

RECIPE = "camvid_cpu"
DIGEST = sha256((RESULTS.parents[1] / "configs/experiment" / f"{RECIPE}.yaml").read_bytes()).hexdigest()


def run_seed(seed: int, root: Path, work: Path, more: list[str]) -> dict[str, Any]:
    """Train and evaluate with one seed; its result and the circumstances."""
    load, before, start = os.getloadavg()[0], _cpu_seconds(), time.monotonic()
    train = _segmeter("train", f"experiment={RECIPE}", f"seed={seed}", f"data.root={root}", f"run.root={work}", *more)
    trained = _cpu_seconds() - before, time.monotonic() - start
    evaluated = _segmeter("eval", f"checkpoint={train}", f"data.root={root}", f"run.root={work}", "data.split=test")
    record = json.loads((train / "run.json").read_bytes())
    summary = json.loads((evaluated / "metrics.json").read_bytes())
    return {
        "seed": seed,
        "mean_iou": summary["dataset"]["mean_iou"],
        "ci95": (summary.get("dataset_ci95") or {}).get("mean_iou"),
        "pixel_accuracy": summary["dataset"]["pixel_accuracy"],
        "per_class": {name: entry["iou"] for name, entry in summary["per_class"].items()},
        "steps": record["result"]["steps"],
        "seconds": round(trained[1], 1),
        "cpu_seconds": round(trained[0], 1),
        "load_before": round(load, 2),
        "overrides": more,
        "recipe_sha256": DIGEST,
        **circumstances("segmentation-models-pytorch"),
    }


def summarise(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean, and of several seeds the standard deviation of the sample, the least and the largest."""
    scores = [each["mean_iou"] for each in found]
    spread = round(statistics.stdev(scores), 4) if len(scores) > 1 else None
    ends = {"least": round(min(scores), 4), "largest": round(max(scores), 4)}
    return {"seeds": len(scores), "mean_iou": round(statistics.mean(scores), 4), "std": spread, **ends}


def _segmeter(command: str, *overrides: str) -> Path:
    """Run a command to its end; give the folder of its run."""
    root = next(Path(line.partition("=")[2]) for line in overrides if line.startswith("run.root="))
    before = set((root / command).glob("*"))
    subprocess.run([sys.executable, "-m", "segmeter", command, *overrides], check=True)
    (folder,) = set((root / command).glob("*")) - before
    return folder


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="CamVid's folder")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=Path("runs/camvid_seeds"), help="runs, and what is done")
    parser.add_argument("--output", type=Path, default=RESULTS / "camvid_seeds.json")
    parser.add_argument("overrides", nargs="*", help="further overrides of the training, such as optimizer.lr=0.03")
    given = parser.parse_args()
    found = []
    for seed in given.seeds:
        done = given.work / f"seed-{seed}.json"
        result = json.loads(done.read_bytes()) if done.is_file() else {}
        if (result.get("overrides"), result.get("recipe_sha256")) != (given.overrides, DIGEST):
            result = run_seed(seed, given.root.absolute(), given.work.absolute(), given.overrides)
            write_record(done, result)
        found.append(result)
        write_record(given.output, {"recipe": RECIPE, "summary": summarise(found), "runs": found})
        print(f"seed {seed}: {result['mean_iou']:.4f}; so far {json.dumps(summarise(found))}", flush=True)


if __name__ == "__main__":
    main()
