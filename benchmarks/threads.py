"""Ways for threads to wait, on a quiet machine and beside a program that takes a core: `python benchmarks/threads.py`.

Seconds of a training, an evaluation, a prediction, a scoring, and of training steps on frames of CamVid's size. The
policies take turns, quiet and beside the other program. "sleeping" is what segmeter chooses; "spinning" is GNU OpenMP's
own default. Two threads beside a third one on two cores can't all have a core. So a fair share is given too: the least
that a slowdown can be if the scheduler treats all threads alike. Run it on two otherwise idle cores.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from record import RESULTS, circumstances, write_record
from segmeter.threads import count_cores

POLICIES = {"sleeping": {}, "spinning": {"GOMP_SPINCOUNT": "300000"}, "one thread": {"OMP_NUM_THREADS": "1"}}
DECIDING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
PLACES = ("quiet", "beside")
ENCODERS = ("resnet18", "resnet34")
MOST_BESIDE, MOST_QUIET = 1.15, 1.05  # of sleeping: of its own quiet time, and of the quiet time of spinning
Spent = tuple[float, float]  # seconds by the clock, and how many cores were busy meanwhile


def environment(policy: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in DECIDING}
    return kept | POLICIES[policy]


@contextmanager
def other_program(place: str) -> Iterator[None]:
    """Keep one core busy while the block runs, where the place is beside another program."""
    if place == "quiet":
        yield
        return
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        time.sleep(1)
        try:
            yield
        finally:
            busy.kill()


def run(root: Path, arguments: Sequence[str], policy: str) -> Spent:
    """A command in a process of its own; the clock's seconds are those of the run, without imports."""
    runs = root / "runs" / arguments[0]
    before, used, began = set(runs.glob("*")), resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "segmeter", *arguments, f"run.root={root / 'runs'}"]
    done = subprocess.run(command, cwd=root, env=environment(policy), check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    after, whole = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
    (folder,) = set(runs.glob("*")) - before
    record = json.loads((folder / "run.json").read_text())
    start, end = (np.datetime64(record[key].partition("+")[0]) for key in ("start", "end"))
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return float((end - start) / np.timedelta64(1, "s")), cpu / whole


def serve_steps(encoder: str, height: int, width: int) -> None:
    """Take as many training steps as each line of the standard input asks for, and answer with their seconds."""
    import torch

    from segmeter.inference.memory import keep_freed_memory
    from segmeter.models.build import build_segmenter
    from segmeter.training.data.batches import Batch
    from training import Case, blobs, card_of, our_step

    keep_freed_memory()
    case = Case(encoder=encoder, batch=4, height=height, width=width, least=0)
    image, target = blobs(case)
    batch = Batch(image=image, target=target, indices=np.arange(len(image)), epoch=0)
    step = our_step(build_segmenter(card_of(encoder)).train(), device=torch.device("cpu"))
    step(batch)
    print("ready", flush=True)
    for line in sys.stdin:
        start, used = time.perf_counter(), time.process_time()
        for _ in range(int(line)):
            step(batch)
        clock, cpu = time.perf_counter() - start, time.process_time() - used
        print(clock / int(line), cpu / clock, flush=True)


@contextmanager
def stepper(policy: str, *options: object) -> Iterator[Any]:
    """A process that takes steps when it is asked to; it sleeps otherwise."""
    command = [sys.executable, __file__, "--serve", *map(str, options)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment(policy), **pipes) as process:
        assert process.stdout.readline() == "ready\n"

        def take(steps: int) -> Spent:
            process.stdin.write(f"{steps}\n")
            process.stdin.flush()
            clock, busy = map(float, process.stdout.readline().split())
            return clock, busy

        yield take


def draw_masks(root: Path, cases: int, side: int) -> None:
    """Pairs of label maps for `score`, which agree in most pixels."""
    rng = np.random.default_rng(0)
    for number in range(cases):
        target = rng.integers(0, 5, (side // 16, side // 16), dtype=np.uint8).repeat(16, 0).repeat(16, 1)
        for folder, labels in (("references", target), ("predictions", np.roll(target, 3, axis=1))):
            (root / folder).mkdir(exist_ok=True)
            Image.fromarray(labels).save(root / folder / f"{number:04d}.png")


def commands(root: Path, *, quick: bool) -> dict[str, list[str]]:
    """The commands to time; a checkpoint and the files that they read are made first."""
    data = ["data=cells", *(["data.train_cases=9", "data.size=64", "data.val_cases=2"] if quick else [])]
    tests = f"data.test_cases={2 if quick else 96}"
    run(root, ["train", *data, tests, "training.steps=1", "run.name=first"], "sleeping")
    (trained,) = (root / "runs" / "train").glob("*_first")
    (images,) = (root / "data").glob("cells-*/images")
    draw_masks(root, *((3, 64) if quick else (200, 1024)))
    masks = ["predictions=predictions", "references=references", "data.classes=[a,b,c,d,e]"]
    return {
        "train": ["train", *data, tests, f"training.steps={2 if quick else 40}"],
        "eval": ["eval", f"checkpoint={trained}", "data.split=test"],
        "predict": ["predict", f"checkpoint={trained}", f"input={images}"],
        "score": ["score", *masks, "metrics.measures=[surface]"],
    }


def judge(name: str, spent: dict[tuple[str, str], list[Spent]]) -> dict[str, Any]:
    """Medians of the seconds, how they compare, and whether they meet the bars."""
    seconds = {key: statistics.median(clock for clock, _ in each) for key, each in spent.items()}
    busy, cores = statistics.median(busy for _, busy in spent["sleeping", "quiet"]), count_cores()
    slowdowns = {policy: seconds[policy, "beside"] / seconds[policy, "quiet"] for policy in POLICIES}
    dearer = seconds["sleeping", "quiet"] / seconds["spinning", "quiet"]
    return {
        "work": name,
        "seconds": {policy: {place: round(seconds[policy, place], 3) for place in PLACES} for policy in POLICIES},
        "slowdown_beside": {policy: round(value, 3) for policy, value in slowdowns.items()},
        "cores_busy_quiet": round(busy, 2),
        "fair_share": round(max(1.0, busy * (cores + 1) / cores**2), 3),
        "sleeping_to_spinning_quiet": round(dearer, 3),
        "met_beside": slowdowns["sleeping"] <= MOST_BESIDE,
        "met_quiet": dearer <= MOST_QUIET,
    }


def measure(root: Path, *, rounds: int, quick: bool, only: Sequence[str]) -> list[dict[str, Any]]:
    made = commands(root, quick=quick)
    size, steps = ((64, 64), 1) if quick else ((384, 480), 3)
    found = []
    with ExitStack() as processes:
        for name in only or (*made, *ENCODERS):
            takes = {
                policy: partial(run, root, made[name], policy)
                if name in made
                else partial(processes.enter_context(stepper(policy, name, *size)), steps)
                for policy in POLICIES
            }
            spent: dict[tuple[str, str], list[Spent]] = {}
            for _ in range(rounds):
                for place in PLACES:
                    with other_program(place):
                        for policy, take in takes.items():
                            spent.setdefault((policy, place), []).append(take())
            found.append(judge(name if name in made else f"{name} step, {size[0]} x {size[1]}, batch 4", spent))
            print(json.dumps(found[-1], indent=1), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each policy, quiet and beside; medians count")
    parser.add_argument("--only", nargs="*", default=[], help="train, eval, predict, score, resnet18, resnet34")
    parser.add_argument("--quick", action="store_true", help="tiny data, 1 round: shows that it runs")
    parser.add_argument("--output", type=Path, default=RESULTS / "threads.json", help="where the JSON goes")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve_steps(arguments.serve[0], *map(int, arguments.serve[1:]))
        return
    before, rounds = circumstances(), 1 if arguments.quick else arguments.rounds
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), rounds=rounds, quick=arguments.quick, only=arguments.only)
    bars = {"beside": MOST_BESIDE, "quiet": MOST_QUIET}
    write_record(arguments.output, before | {"rounds": rounds, "bars": bars, "rows": found})


if __name__ == "__main__":
    main()
