"""The parts of `benchmarks/gpu.py`, each run in a process of its own; a row is written as soon as it is known."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

HERE = Path(__file__).parent
ROOT = HERE.parent
NO_GPU = "needs a CUDA device"


@dataclass(frozen=True, kw_only=True)
class Context:
    """Where a part runs, how long it may take, and where its rows go."""

    device: str
    quick: bool
    seconds: float
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
    subprocess.run([sys.executable, "-m", "segmeter", *arguments], check=True)
    return time.monotonic() - start


def newest(folder: Path) -> Path:
    """The run that started last."""
    return max(folder.iterdir(), key=lambda run: json.loads((run / "run.json").read_text(encoding="utf-8"))["start"])


def train_data(context: Context) -> list[str]:
    """CamVid's recipe where its files are, else the built-in data."""
    if context.camvid.is_dir() and not context.quick:
        return ["experiment=camvid", f"data.root={context.camvid}"]
    return ["experiment=demo", f"data.root={context.folder / 'cells'}"]


# --- 1: tests


def tests(context: Context) -> None:
    """Of the files that have such tests alone, and with warnings let through: others may need packages that are not
    here, and other versions warn of other things.
    """
    report = context.folder / "tests.xml"
    marked = [path for path in sorted(ROOT.glob("tests/**/test_*.py")) if "mark.gpu" in path.read_text("utf-8")]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-W", "default", "-p", "no:cacheprovider"]
    command += [f"--junitxml={report}", *(str(path) for path in marked)]
    subprocess.run(command, cwd=ROOT, check=False)
    suite = next(ET.parse(report).getroot().iter("testsuite"))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    skipped, total = int(suite.get("skipped", 0)), int(suite.get("tests", 0))
    broken = [
        case for case in suite.iter("testcase") if case.find("failure") is not None or case.find("error") is not None
    ]
    names = [case.get("name", "") for case in broken]
    context.row(
        "pytest -m gpu",
        needs="none fails" + (", none is skipped" if context.cuda else ""),
        measured=f"{total - failed - skipped} passed, {failed} failed, {skipped} skipped",
        met=not failed and not skipped if context.cuda else None,
        note=", ".join(names[:10]) if context.cuda else NO_GPU,
    )


# --- 2: the main job


def main_job(context: Context) -> None:
    runs = context.folder / "runs"
    if not context.quick:
        seconds = segmeter("demo", str(runs))
        iou = read_metrics(newest(next(runs.glob("demo-*/eval"))))["dataset"]["mean_iou"]
        context.row("demo", needs="mean IoU at least 0.8", measured=f"{iou:.3f} in {seconds:.0f} s", met=iou >= 0.8)
    limit = ["training.steps=3"] if context.quick else ["training.epochs=null", "training.time_budget=5m"]
    segmeter("train", *train_data(context), f"device={context.device}", *limit, f"run.root={runs}")
    checkpoint = newest(runs / "train")
    report_training(context, checkpoint)

    def evaluate(device: str, precision: str, turn: str = "") -> Path:
        root = runs / f"{device}-{precision}{turn}"
        chosen = (f"device={device}", f"inference.precision={precision}")
        segmeter("eval", f"checkpoint={checkpoint}", *chosen, f"run.root={root}")
        return newest(root / "eval")

    reference, float32 = evaluate("cpu", "float32"), evaluate(context.device, "float32", "-first")
    compare_runs(context, evaluate(context.device, "auto"), reference, "auto")
    compare_runs(context, float32, reference, "float32")
    again = evaluate(context.device, "float32", "-second")
    counts = [read_metrics(run)["confusion_matrix"] for run in (float32, again)]
    same = counts[0] == counts[1]
    work = f"counts of the same cases, evaluated twice on {context.device} in float32"
    context.row(work, needs="identical", measured="identical" if same else "different", met=same)


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


# --- 3: benchmarks


def benchmark(script: str) -> Callable[[Context], None]:
    """A part that runs one benchmark and takes over its rows."""

    def run(context: Context) -> None:
        if not context.cuda and not context.quick:
            context.row(f"benchmarks/{script}.py", measured="skipped", note=f"on a CPU: results/{script}.json")
            return
        output = context.folder / f"{script}.json"
        command = [sys.executable, str(HERE / f"{script}.py"), "--output", str(output), "--device", context.device]
        subprocess.run([*command, *(["--quick"] if context.quick else [])], check=True)
        record = json.loads(output.read_text(encoding="utf-8"))
        for row in record.get("targets", record["rows"]):
            take_over(context, row)

    return run


def take_over(context: Context, row: dict[str, Any]) -> None:
    ratio = row.get("ratio", row.get("measured"))
    against = f" against {row['against']}" if row.get("against") else ""
    context.row(
        row.get("work", row.get("promise", "")) + against,
        needs=row.get("needs", ""),
        measured="not measured" if ratio is None else f"{ratio:.2f}x",
        met=None if context.quick else row.get("met"),
        note=row.get("note", ""),
    )


def inference(context: Context) -> None:
    """On a GPU two ways to lay out a batch round differently, so a few labels of a random network may differ."""
    output, least = context.folder / "inference.json", 1.5
    output.unlink(missing_ok=True)
    parts = "window,eval" if find_spec("monai") else "eval"
    command = [sys.executable, str(HERE / "inference.py"), "--device", context.device, "--parts", parts]
    size = ["--side", "768", "--cases", "4", "--rounds", "1"] if context.quick else ["--cases", "64", "--rounds", "3"]
    subprocess.run([*command, *size, "--output", str(output)], check=True)
    record = json.loads(output.read_text(encoding="utf-8"))
    if "window" not in record:
        context.row("tiles of one image against MONAI", measured="not measured", note="monai is not installed")
    for name, found in record.get("window", {"times_as_fast": {}})["times_as_fast"].items():
        differ, pixels = record["window"]["pixels_that_differ"][name], record["window"]["side"] ** 2
        work, needs = f"tiles of one image against {name}", f"at least {least:g}x, 99.99 % of labels equal"
        met = None if context.quick else found["wall"] >= least and differ <= 1e-4 * pixels
        context.row(work, needs=needs, measured=f"{found['wall']:.2f}x", met=met, note=f"{differ} pixels differ")
    share = record["eval"]["throughput_of_forward_alone"]["wall"]
    work = "eval with labels and metrics, against the forward passes alone"
    met = None if context.quick else share >= 0.95
    context.row(work, needs="at least 0.95x throughput", measured=f"{share:.2f}x", met=met)


# --- 4: overlap


def overlap(context: Context) -> None:
    steps_without_a_wait(context)
    if context.needs_gpu("copies beside kernels in a prediction"):
        return
    from torch.profiler import ProfilerActivity, profile

    predictor = build_predictor(context)
    predict_cases(context, cases=8, predictor=predictor)  # the weights are copied, kernels are chosen
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        predict_cases(context, cases=64, predictor=predictor)
    events = [event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    copies = spans(event for event in events if "Memcpy HtoD" in event.name or "Memcpy DtoH" in event.name)
    kernels = spans(event for event in events if "Mem" not in event.name)
    hidden, total = shared_time(copies, kernels), sum(end - start for start, end in copies)
    if not total:
        raise SystemExit(f"the profile of a prediction has no copies among its {len(events)} events on the device")
    context.row(
        "copies of a prediction that run beside kernels",
        needs="at least half of their time",
        measured=f"{100 * hidden / total:.0f} % of {total / 1000:.1f} ms",
        met=hidden >= total / 2,
    )


def spans(events: Iterable[Any]) -> list[tuple[float, float]]:
    """Start and end of each event, in microseconds, overlapping ones joined."""
    joined: list[tuple[float, float]] = []
    for start, end in sorted((event.time_range.start, event.time_range.end) for event in events):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def shared_time(left: Sequence[tuple[float, float]], right: Sequence[tuple[float, float]]) -> float:
    return sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in left for b in right)


def build_predictor(context: Context) -> Any:
    from segmeter.inference.config import InferenceConfig
    from segmeter.inference.predictor import Predictor
    from segmeter.models.build import build_segmenter
    from training import card_of

    torch.manual_seed(0)
    encoder = "resnet18" if context.quick else "resnet34"
    return Predictor(build_segmenter(card_of(encoder)), InferenceConfig(batch_size=4), torch.device(context.device))


def predict_cases(context: Context, *, cases: int, predictor: Any = None) -> None:
    from segmeter.data.sample import Sample

    size = 64 if context.quick else 512
    image = np.random.default_rng(0).integers(0, 256, (size, size, 3), np.uint8)
    samples = [Sample(case_id=str(number), image=image, target=None) for number in range(cases)]
    for _ in (predictor or build_predictor(context)).predict(samples):
        pass


def steps_without_a_wait(context: Context) -> None:
    """Take each batch from the host, resize, augment, learn: torch raises where anything of it waits for the device."""
    from segmeter.models.build import build_segmenter
    from segmeter.training.data.augment import Augment
    from segmeter.training.data.augment_config import AugmentConfig
    from segmeter.training.data.batches import Batches
    from training import CASES, QUICK_CASE, Repeated, card_of, our_step

    case, device = QUICK_CASE if context.quick else CASES[0], torch.device(context.device)
    card = card_of(case.encoder)
    augment = Augment(AugmentConfig(rotate=10, blur=1.0, noise=0.05), card.spec)
    step = our_step(build_segmenter(card).train().to(device), device=device, augment=augment)
    draw = partial(augment.draw, seed=0)
    steps = 3 if context.quick else 500
    with Batches(Repeated(case), first=0, progress=lambda _: 0.0, workers=2, device=device, draw=draw) as batches:
        for _ in range(3):  # compiles kernels, and fills the allocators
            step(batches.take())
        if context.cuda:
            torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(steps):
                loss = step(batches.take())
        finally:
            if context.cuda:
                torch.cuda.set_sync_debug_mode("default")
    done, on = bool(loss.isfinite()), "" if context.cuda else f"on a CPU, which has no such mode: {NO_GPU}"
    work = "training steps under set_sync_debug_mode('error'), batches uploaded"
    context.row(work, needs="none waits", measured=f"{steps} steps", met=done, note=on)


# --- 5: resume


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


# --- 6: memory


def memory(context: Context) -> None:
    if context.needs_gpu("peak of a pass against its prediction, memory left after a run of predictions"):
        return
    predictor = build_predictor(context)
    plan = predictor.plan_memory()
    if plan is None:
        raise SystemExit("the predictor found no figure of free memory")
    predict_cases(context, cases=8, predictor=predictor)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    images = [np.zeros((512, 512, 3), np.uint8)] * 4
    predictor.logits(images)
    used, planned = torch.cuda.max_memory_allocated() - before, plan["bytes_per_pixel"] * 4 * 512**2
    context.row(
        "peak of a pass over 4 images of 512 x 512, against its prediction from one of 256 x 256",
        needs="at most the prediction",
        measured=f"{used / 2**20:.0f} of {planned / 2**20:.0f} MiB",
        met=used <= planned,
    )
    torch.cuda.reset_peak_memory_stats()
    predict_cases(context, cases=128, predictor=predictor)
    peak, after = torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()
    context.row(
        "device memory held after 128 more cases",
        needs="none",
        measured=f"{after - before} bytes",
        met=after <= before,
        note=f"peak {peak / 2**20:.0f} MiB",
    )


# --- 7: the full recipe


def recipe(context: Context) -> None:
    if context.needs_gpu("CamVid's full recipe"):
        return
    if not context.camvid.is_dir():
        raise SystemExit(f"CamVid's full recipe: {context.camvid} is not a folder; name it with --camvid")
    runs, budget = context.folder / "runs", int(context.seconds - 120)
    segmeter("train", *train_data(context), f"training.time_budget={budget}", f"run.root={runs}", "device=cuda")
    segmeter("eval", f"checkpoint={newest(runs / 'train')}", f"run.root={runs}", "device=cuda")
    iou = read_metrics(newest(runs / "eval"))["dataset"]["mean_iou"]
    context.row(
        "CamVid test mean IoU, 11 classes, from scratch",
        needs="0.60 in an hour, aim 0.67",
        measured=f"{iou:.4f}",
        met=iou >= 0.60,
        note=f"in at most {budget} s",
    )


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a part shows, the most seconds it may take, and the fewest that are worth beginning it."""

    shows: str
    limit_s: float
    run: Callable[[Context], None]
    least_s: float = 5


PARTS = {
    "tests": Part(shows="the tests that need a GPU", limit_s=420, run=tests),
    "main-job": Part(shows="train and evaluate, against the CPU", limit_s=600, run=main_job),
    "bridge": Part(shows="device to NumPy, against what people write", limit_s=180, run=benchmark("bridge")),
    "focal": Part(shows="focal losses against their peers", limit_s=240, run=benchmark("focal")),
    "training": Part(shows="a training step against the plain loop", limit_s=240, run=benchmark("training")),
    "inference": Part(shows="inference against its peers", limit_s=240, run=inference),
    "overlap": Part(shows="copies beside kernels, steps that never wait", limit_s=120, run=overlap),
    "resume": Part(shows="kill -9 and resume, bit-equal", limit_s=240, run=resume),
    "memory": Part(shows="nothing is left after a run", limit_s=90, run=memory),
    "recipe": Part(shows="CamVid in full, as far as the time allows", limit_s=3600, run=recipe, least_s=300),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--device", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--camvid", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    arguments = vars(parser.parse_args())
    PARTS[arguments.pop("part")].run(Context(**arguments))


if __name__ == "__main__":
    main()
