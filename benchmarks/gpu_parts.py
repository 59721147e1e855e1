"""The parts of `benchmarks/gpu.py`, each run in a process of its own; a row is written as soon as it is known."""

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpu_jobs import NO_GPU, Context, demo, main_job, recipe, resume, tests

HERE = Path(__file__).parent


def benchmark(script: str) -> Callable[[Context], None]:
    """Return a part that runs one benchmark and takes over its rows."""

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
    from segmeter.models.segmenter import build_segmenter
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
    from segmeter.models.segmenter import build_segmenter
    from segmeter.training.data.augment import Augment
    from segmeter.training.data.augment_config import AugmentConfig
    from segmeter.training.data.batches import Batches
    from training import CASES, QUICK_CASE, Repeated, card_of, our_step

    case, device = QUICK_CASE if context.quick else CASES[0], torch.device(context.device)
    card = card_of(case.encoder)
    augment = Augment(AugmentConfig(rotate=10, blur=1.0, noise=0.05), card.spec)
    step = our_step(build_segmenter(card).train().to(device), device=device, augment=augment)
    random_numbers = partial(augment.draw, seed=0)
    steps = 3 if context.quick else 500
    with Batches(
        Repeated(case), first=0, progress=lambda _: 0.0, workers=2, device=device, random_numbers=random_numbers
    ) as batches:
        for _ in range(3):  # compiles kernels, and fills the allocators
            step(batches.next_batch())
        if context.cuda:
            torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(steps):
                loss = step(batches.next_batch())
        finally:
            if context.cuda:
                torch.cuda.set_sync_debug_mode("default")
    done, on = bool(loss.isfinite()), "" if context.cuda else f"on a CPU, which has no such mode: {NO_GPU}"
    work = "training steps under set_sync_debug_mode('error'), batches uploaded"
    context.row(work, needs="none waits", measured=f"{steps} steps", met=done, note=on)


def memory(context: Context) -> None:
    if context.needs_gpu("memory left after a run of predictions"):
        return
    predictor = build_predictor(context)
    predict_cases(context, cases=8, predictor=predictor)
    before = torch.cuda.memory_allocated()
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


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part: its purpose, and the most seconds it may take in a stage.

    `stop_s`: of these, the seconds in which it is asked to stop, so that the next stage goes on from there; 0 for a
    part that is run whole.
    """

    shows: str
    limit_s: float
    run: Callable[[Context], None]
    stop_s: float = 0

    @property
    def goes_on(self) -> bool:
        return self.stop_s > 0

    @property
    def least_s(self) -> float:
        """The fewest seconds that are worth beginning it; a part that is run whole needs all, lest it be lost."""
        return 2 * self.stop_s if self.goes_on else self.limit_s


PARTS = {  # in order of worth; the limits are 40 minutes together, and each fits a stage of nine
    "tests": Part(shows="the tests that need a GPU", limit_s=300, run=tests, stop_s=5),
    "main-job": Part(shows="train and evaluate, against the CPU", limit_s=300, run=main_job, stop_s=45),
    "memory": Part(shows="nothing is left after a run", limit_s=60, run=memory),
    "bridge": Part(shows="device to NumPy, against what people write", limit_s=150, run=benchmark("bridge")),
    "focal": Part(shows="focal losses against their peers", limit_s=180, run=benchmark("focal")),
    "training": Part(shows="a training step against the plain loop", limit_s=210, run=benchmark("training")),
    "inference": Part(shows="inference against its peers", limit_s=210, run=inference),
    "overlap": Part(shows="copies beside kernels, steps that never wait", limit_s=100, run=overlap),
    "recipe": Part(shows="CamVid's full recipe", limit_s=600, run=recipe, stop_s=45),
    "resume": Part(shows="kill -9 and resume, bit-equal", limit_s=180, run=resume),
    "demo": Part(shows="the demo", limit_s=110, run=demo),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--device", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--camvid", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    arguments = vars(parser.parse_args())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the end of the stage
    PARTS[arguments.pop("part")].run(Context(**arguments))


if __name__ == "__main__":
    main()
