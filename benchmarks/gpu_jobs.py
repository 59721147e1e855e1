"""The parts of `benchmarks/gpu.py` that run segmeter's own commands and tests, and what all parts write."""

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[1]
NO_GPU = "needs a CUDA device"
QUICK_STEPS = 40  # of the recipe: enough to be cut short on the way
MOST_S = 200  # of one file's tests


@dataclass(frozen=True, kw_only=True)
class Context:
    """Where a part runs, and where its rows go."""

    device: str
    quick: bool
    folder: Path
    camvid: Path

    @property
    def cuda(self) -> bool:
        return self.device == "cuda"

    def row(self, work: str, *, needs: str = "", measured: str, met: bool | None = None, note: str = "") -> None:
        line = {"work": work, "needs": needs, "measured": measured, "met": met, "note": note}
        with (self.folder / "rows.jsonl").open("a", encoding="utf-8") as rows:
            rows.write(json.dumps(line) + "\n")
        print(line, flush=True)

    def needs_gpu(self, work: str) -> bool:
        """Write that `work` needs a GPU, where there is none."""
        if not self.cuda:
            self.row(work, measured="skipped", note=NO_GPU)
        return not self.cuda


def segmeter(*arguments: str) -> float:
    """Run the command line, which must end well; return the seconds it took."""
    start = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "segmeter", *arguments])
    try:
        code = process.wait()
    finally:
        process.wait()  # the end of a stage is told to a training too, which then saves a checkpoint
    if code:
        raise SystemExit(f"segmeter {' '.join(arguments)}: exit code {code}")
    return time.monotonic() - start


def finished(command: str, *arguments: str, root: Path) -> Path:
    """Run a command to its end, from where an earlier stage was cut short; a run that is done is not made again."""
    runs = root / command
    if next(runs.glob("*/run.json"), None) is None or read_run(newest(runs))["state"] != "done":
        segmeter(command, *arguments, f"run.root={root}", "resume=auto")
    return newest(runs)


def read_run(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "run.json").read_text(encoding="utf-8")))


def newest(folder: Path) -> Path:
    """Return the run that started last; one that was killed at once has no record yet."""
    return max((path.parent for path in folder.glob("*/run.json")), key=lambda run: read_run(run)["start"])


def train_data(context: Context) -> list[str]:
    """CamVid's recipe where its files are, else the built-in data."""
    if context.camvid.is_dir() and not context.quick:
        return ["experiment=camvid", f"data.root={context.camvid}"]
    return ["experiment=demo", f"data.root={context.folder / 'cells'}"]


def tests(context: Context) -> None:
    """Run the files that have such tests alone, and let warnings through.

    Other files may need packages that are not here, and other versions warn of other things. What became of a file is
    kept for the next stage, a crash and a test that hangs included.
    """
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        if "mark.gpu" not in path.read_text("utf-8"):
            continue
        name = path.relative_to(ROOT).as_posix()
        report, ended = (context.folder / f"{name.replace('/', '-')}.{kind}" for kind in ("xml", "txt"))
        if not report.exists() and not ended.exists():
            end = run_tests(name, report, seconds=None if context.quick else MOST_S)
            if not report.exists():
                ended.write_text(end, encoding="utf-8")
        if report.exists():
            report_tests(context, name, next(ET.parse(report).getroot().iter("testsuite")))
        else:
            context.row(f"pytest -m gpu {name}", needs="none fails", measured=ended.read_text("utf-8"), met=False)


def run_tests(name: str, report: Path, *, seconds: float | None) -> str:
    """Run the GPU tests of a file; pytest writes its report once all of them have run."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-W", "default", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run([*command, f"--junitxml={report}", name], cwd=ROOT, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"not done after {seconds} s"
    return f"ended with exit code {done.returncode}"


def report_tests(context: Context, name: str, suite: ET.Element) -> None:
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    skipped, total = int(suite.get("skipped", 0)), int(suite.get("tests", 0))
    broken = [
        case for case in suite.iter("testcase") if case.find("failure") is not None or case.find("error") is not None
    ]
    names = [case.get("name", "") for case in broken]
    context.row(
        f"pytest -m gpu {name}",
        needs="none fails" + (", none is skipped" if context.cuda else ""),
        measured=f"{total - failed - skipped} passed, {failed} failed, {skipped} skipped",
        met=not failed and not skipped if context.cuda else None,
        note=", ".join(names[:10]) if context.cuda else NO_GPU,
    )


def main_job(context: Context) -> None:
    runs = context.folder / "runs"
    limit = ["training.steps=3"] if context.quick else ["training.epochs=null", "training.time_budget=2m"]
    checkpoint = finished("train", *train_data(context), f"device={context.device}", *limit, root=runs)
    report_training(context, checkpoint)

    def evaluate(device: str, precision: str, turn: str = "") -> Path:
        chosen = (f"device={device}", f"inference.precision={precision}")
        return finished("eval", f"checkpoint={checkpoint}", *chosen, root=runs / f"{device}-{precision}{turn}")

    float32, again = (evaluate(context.device, "float32", turn) for turn in ("-first", "-second"))
    counts = [read_metrics(run)["confusion_matrix"] for run in (float32, again)]
    same = counts[0] == counts[1]
    work = f"counts of the same cases, evaluated twice on {context.device} in float32"
    context.row(work, needs="identical", measured="identical" if same else "different", met=same)
    automatic, reference = evaluate(context.device, "auto"), evaluate("cpu", "float32")
    compare_runs(context, automatic, reference, "auto")
    compare_runs(context, float32, reference, "float32")


def demo(context: Context) -> None:
    if context.needs_gpu("demo"):
        return
    seconds = segmeter("demo", str(context.folder))
    iou = read_metrics(newest(next(context.folder.glob("demo-*/eval"))))["dataset"]["mean_iou"]
    context.row("demo", needs="mean IoU at least 0.8", measured=f"{iou:.3f} in {seconds:.0f} s", met=iou >= 0.8)


def read_metrics(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "metrics.json").read_text(encoding="utf-8")))


def report_training(context: Context, checkpoint: Path) -> None:
    rows = [json.loads(line) for line in (checkpoint / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = [row for row in rows if "data_wait" in row][1:]  # the first line holds the start
    if not steps:
        context.row("training", measured="too few steps for a rate")
        return
    wait, rate = (float(np.median([row[key] for row in steps])) for key in ("data_wait", "images_per_second"))
    context.row(
        "share of a training step that waits for data",
        needs="under 2 %",
        measured=f"{100 * wait:.2f} %, {rate:.0f} images/s",
        met=wait < 0.02 if context.cuda else None,
    )


def compare_runs(context: Context, ours: Path, reference: Path, precision: str) -> None:
    pairs = [(path, reference / path.relative_to(ours)) for path in sorted(ours.glob("predictions/labels/*.png"))]
    same = total = 0
    for left, right in pairs:
        a, b = (np.asarray(Image.open(path)) for path in (left, right))
        same, total = same + int((a == b).sum()), total + a.size
    agreement = same / total
    context.row(
        f"label maps of {len(pairs)} cases, {context.device} in {precision}, against the CPU in float32",
        needs="at least 99.9 % equal" if precision == "float32" else "",
        measured=f"{100 * agreement:.4f} %",
        met=agreement >= 0.999 if precision == "float32" else None,
    )
    ious = [read_metrics(run)["dataset"]["mean_iou"] for run in (ours, reference)]
    context.row(f"mean IoU of the same runs, {precision}", measured=f"{ious[0]:.5f}", note=f"on the CPU {ious[1]:.5f}")


def recipe(context: Context) -> None:
    """Train and evaluate; the budget is that of all stages, so a run that was cut short keeps its schedule."""
    work = "the recipe in its smallest form" if context.quick else "CamVid test mean IoU, 11 classes, from scratch"
    if not context.quick and context.needs_gpu(work):
        return
    if not context.quick and not context.camvid.is_dir():
        raise SystemExit(f"CamVid's full recipe: {context.camvid} is not a folder; name it with --camvid")
    runs = context.folder / "runs"
    limit = [f"training.steps={QUICK_STEPS}", "training.log_every=1"] if context.quick else ["training.time_budget=8m"]
    trained = finished("train", *train_data(context), *limit, f"device={context.device}", root=runs)
    evaluated = finished("eval", f"checkpoint={trained}", f"device={context.device}", root=runs)
    iou = read_metrics(evaluated)["dataset"]["mean_iou"]
    result = read_run(trained)["result"]
    context.row(
        work,
        needs="0.60 in an hour, aim 0.67",
        measured=f"{iou:.4f}",
        met=None if context.quick else iou >= 0.60,
        note=f"{result['steps']} steps in {result['seconds']:.0f} s of training",
    )


def resume(context: Context) -> None:
    """Kill a training with SIGKILL, go on, and compare weights and history with a run that nothing stopped."""
    steps = 12 if context.quick else 120
    given = ["experiment=demo", f"data.root={context.folder / 'cells'}", f"device={context.device}"]
    given += [f"training.steps={steps}", "training.epochs=null", "training.deterministic=true", "training.ema=0.99"]
    given += ["training.validate_unit=steps", f"training.validate_every={steps // 4}", "training.log_every=1"]
    whole, killed = context.folder / "whole", context.folder / "killed"
    segmeter("train", *given, f"run.root={whole}")
    command = [sys.executable, "-m", "segmeter", "train", *given, f"run.root={killed}"]
    kill_after(command, killed, line=steps * 2 // 3)
    segmeter("train", *given, f"run.root={killed}", "resume=auto")
    files = [newest(root / "train") / "checkpoints" / "last" / "model.safetensors" for root in (whole, killed)]
    equal = files[0].read_bytes() == files[1].read_bytes()
    context.row(
        f"weights after {steps} steps, killed and resumed, deterministic kernels",
        needs="bit-equal",
        measured="bit-equal" if equal else "different",
        met=equal,
    )


def kill_after(command: Sequence[str], root: Path, *, line: int) -> None:
    """Send SIGKILL once the run's history has `line` lines."""
    process = subprocess.Popen(command)
    while process.poll() is None:
        history = next(root.glob("train/*/history.jsonl"), None)
        if history is not None and len(history.read_bytes().splitlines()) >= line:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            return
        time.sleep(0.01)
    raise SystemExit(f"the run ended before line {line} of its history: nothing was killed")
