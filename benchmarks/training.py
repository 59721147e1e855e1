"""A training step against the plain loop: `python benchmarks/training.py --output benchmarks/results/training.json`.

Ours is the step that `segmeter train` takes with its defaults: channels_last, bfloat16 where the CPU has it, the
decoder folded, softmax focal loss, fused AdamW, clipping, uint8 images. Theirs is segmentation-models-pytorch as its
examples use it: its own focal loss, Adam, float32, NCHW. Same network, same first weights, same images. On the CPU
ours also runs with the decoder as the library has it, which shows what folding saves. Each contender has a process of
its own, as ours keeps freed memory and theirs, as users run it, does not. They take turns, and the others wait idle.
"""

import argparse
import copy
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import segmentation_models_pytorch as smp
import torch
from segmentation_models_pytorch.decoders.unet.decoder import UnetDecoderBlock
from torch import Tensor, nn

from record import RESULTS, circumstances, write_record
from segmeter.classes import ClassSpec
from segmeter.inference.allocator import keep_freed_memory
from segmeter.losses.focal import FocalLoss
from segmeter.models.build import build_segmenter
from segmeter.models.card import ModelCard
from segmeter.models.layers import FoldedBlock
from segmeter.models.segmenter import Segmenter
from segmeter.training.config import AdamWConfig, TrainingConfig
from segmeter.training.data.batches import Batch, Windows
from segmeter.training.data.windows import Resizing
from segmeter.training.job import Augmentation
from segmeter.training.learner import Parts
from segmeter.training.optimizers import build_adamw
from segmeter.training.trainer import update

CLASSES, VOID = 11, 11
LEARNING_STEPS = 12  # enough that both losses have clearly fallen
KINDS = ("ours", "the plain loop", "ours, unfolded")
Step = Callable[[], Tensor]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One network and one size of batch, and how many times faster ours has to be."""

    encoder: str
    batch: int
    height: int
    width: int
    least: float
    device: str = "cpu"


CASES = (
    Case(encoder="resnet18", batch=8, height=256, width=256, least=3.5),
    Case(encoder="resnet34", batch=8, height=256, width=256, least=3.0),
    Case(encoder="resnet18", batch=4, height=384, width=480, least=3.5),  # whole frames of CamVid
)
QUICK_CASE = Case(encoder="resnet18", batch=4, height=64, width=64, least=0.0)
GPU_CASES = (Case(encoder="resnet34", batch=16, height=512, width=512, least=3.0, device="cuda"),)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One network; times are milliseconds per image and step, `ratio` is theirs / ours of the medians.

    `unfolded_ms` is ours with the library's own decoder blocks, and `folding_saves` the share of it that folding saves.
    """

    work: str
    against: str
    needs: str
    met: bool
    ratio: float
    ratio_of_fastest: float
    ours_ms: float
    theirs_ms: float
    ours_fastest_ms: float
    theirs_fastest_ms: float
    unfolded_ms: float
    folding_saves: float
    loss_ours: tuple[float, float]
    loss_theirs: tuple[float, float]


def blobs(case: Case) -> tuple[Tensor, Tensor]:
    """Images whose colours tell the classes apart, with a void frame, so that a loss can fall."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, CLASSES, (case.batch, case.height // 32, case.width // 32))
    target = coarse.repeat(32, axis=1).repeat(32, axis=2).astype(np.uint8)
    colours = rng.integers(0, 256, (CLASSES, 3))
    noisy = colours[target] + rng.normal(0, 20, (*target.shape, 3))
    target[:, :4] = VOID
    image = torch.from_numpy(noisy.clip(0, 255).astype(np.uint8)).permute(0, 3, 1, 2)
    return image, torch.from_numpy(target)


def card_of(encoder: str) -> ModelCard:
    names = tuple(f"class{label}" for label in range(CLASSES))
    spec = ClassSpec(task="multiclass", names=names, colours=((0, 0, 0),) * CLASSES, ignore_index=VOID)
    return ModelCard(
        model={"name": "unet", "encoder": encoder}, spec=spec, in_channels=3, mean=(0.5,) * 3, std=(0.25,) * 3
    )


def plain_network(encoder: str, segmenter: Segmenter) -> nn.Module:
    """The library's own network, as its users build it, with the same first weights."""
    network = smp.Unet(encoder, encoder_weights=None, classes=CLASSES)
    network.load_state_dict(segmenter.network.state_dict())
    return network


@dataclass(frozen=True)
class Repeated:
    """A source of one batch over and over, of windows that the device has yet to resize."""

    case: Case

    def __len__(self) -> int:
        return 1000

    def batch(self, epoch: int, index: int, progress: float) -> Windows:
        image, target = blobs(self.case)
        size = self.case.height, self.case.width
        window = size[0] - 16, size[1] - 16
        numbers = np.arange(self.case.batch)
        resizing = Resizing((window,) * self.case.batch, size)
        return Windows(image.permute(0, 2, 3, 1).numpy(), target.numpy(), numbers, resizing)


def our_step(
    segmenter: Segmenter, *, device: torch.device, augment: Augmentation | None = None
) -> Callable[[Batch], Tensor]:
    """One step over a batch that is on the device, as `segmeter train` takes it."""
    segmenter = segmenter.to(memory_format=torch.channels_last)
    parts = Parts(
        forward=segmenter,
        loss=FocalLoss("multiclass", gamma=2.0, ignore_index=VOID).to(device),
        optimizer=build_adamw(AdamWConfig(), model=segmenter),
        scaler=None,
        augment=augment,
        config=TrainingConfig(),
        device=device,
    )
    return lambda batch: update(parts, [batch])[0]


def plain_step(network: nn.Module, image: Tensor, target: Tensor) -> Step:
    loss_function = smp.losses.FocalLoss("multiclass", ignore_index=VOID)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    device = next(network.parameters()).device
    pixels, labels = ((image.float() / 255 - 0.5) / 0.25).contiguous().to(device), target.long().to(device)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = loss_function(network(pixels), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def check_same(segmenter: Segmenter, network: nn.Module, image: Tensor) -> None:
    """Both start from the same function of the same images."""
    pixels = image[:2, :, :64, :64].double() / 255
    with torch.no_grad():
        ours = copy.deepcopy(segmenter).double().eval()(pixels)
        theirs = network.double().eval()((pixels - 0.5) / 0.25)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def check_learns(name: str, step: Step) -> tuple[float, float]:
    """Loss of the first and of a later step; a step that does not learn must not be timed."""
    losses = [float(step()) for _ in range(LEARNING_STEPS)]
    if not losses[-1] < 0.7 * losses[0]:
        raise SystemExit(f"{name} does not learn: loss {losses[0]:.4f}, then {losses[-1]:.4f}")
    return losses[0], losses[-1]


def serve(kind: str, case: Case, pipe: Connection) -> None:
    """A contender in its own process: check that it learns, then take a step each time the parent asks for one."""
    torch.manual_seed(0)
    device = torch.device(case.device)
    segmenter = build_segmenter(card_of(case.encoder)).train()
    image, target = blobs(case)
    if kind != "the plain loop":
        keep_freed_memory()
        for block in (each for each in segmenter.modules() if isinstance(each, FoldedBlock) and kind != "ours"):
            block.__class__ = UnetDecoderBlock  # it has the same parts
        batch = Batch(image=image.to(device), target=target.to(device), indices=np.arange(len(image)), epoch=0)
        step = partial(our_step(segmenter.to(device), device=device), batch)
    else:
        step = plain_step(plain_network(case.encoder, segmenter).to(device), image, target)
    pipe.send(check_learns(kind, step))
    while pipe.recv():
        start = time.perf_counter()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        pipe.send(1000 * (time.perf_counter() - start) / case.batch)


def interleave(rounds: int, pipes: Sequence[Connection]) -> list[list[float]]:
    """Milliseconds per image of each contender; they take turns, and the first turn does not count."""
    times: list[list[float]] = [[] for _ in pipes]
    for turn in range(rounds + 1):
        for spent, pipe in zip(times, pipes, strict=True):
            pipe.send(True)
            milliseconds = pipe.recv()
            if turn:
                spent.append(milliseconds)
    return times


def race(case: Case, rounds: int) -> tuple[list[tuple[float, float]], list[list[float]]]:
    """First and later loss of each contender, and its times."""
    context = multiprocessing.get_context("spawn")
    ends = [context.Pipe() for _ in KINDS]
    workers = [
        context.Process(target=serve, args=(kind, case, end[1]), daemon=True)
        for kind, end in zip(KINDS, ends, strict=True)
    ]
    losses = []
    for worker, (pipe, _) in zip(workers, ends, strict=True):
        worker.start()
        losses.append(pipe.recv())
    times = interleave(rounds, [pipe for pipe, _ in ends])
    for worker, (pipe, _) in zip(workers, ends, strict=True):
        pipe.send(False)
        worker.join()
    return losses, times


def measure(case: Case, rounds: int) -> Row:
    torch.manual_seed(0)
    segmenter = build_segmenter(card_of(case.encoder)).train()
    check_same(segmenter, plain_network(case.encoder, segmenter), blobs(case)[0])
    losses, times = race(case, rounds)
    medians, fastest = [statistics.median(spent) for spent in times], [min(spent) for spent in times]
    return Row(
        work=f"training step, U-Net {case.encoder}, {case.height} x {case.width}, batch {case.batch}, {case.device}",
        against="the plain loop: SMP FocalLoss with ignore_index, Adam, float32, NCHW",
        needs=f"at least {case.least:g}x",
        met=medians[1] / medians[0] >= case.least,
        ratio=medians[1] / medians[0],
        ratio_of_fastest=fastest[1] / fastest[0],
        ours_ms=medians[0],
        theirs_ms=medians[1],
        ours_fastest_ms=fastest[0],
        theirs_fastest_ms=fastest[1],
        unfolded_ms=medians[2],
        folding_saves=1 - medians[0] / medians[2],
        loss_ours=losses[0],
        loss_theirs=losses[1],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="turns per network; medians are compared")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--quick", action="store_true", help="one small network, 2 rounds: shows that it runs")
    parser.add_argument("--output", type=Path, default=RESULTS / "training.json", help="where the JSON goes")
    arguments = parser.parse_args()
    before = circumstances()
    cases = CASES if arguments.device == "cpu" else GPU_CASES
    if arguments.quick:
        cases, arguments.rounds = (replace(QUICK_CASE, device=arguments.device),), 2
    rows = [measure(case, arguments.rounds) for case in cases]
    for row in rows:
        verdict = "met" if row.met else "NOT MET"
        print(f"{row.work}\n  against {row.against}\n  {row.ratio:.2f}x ({row.needs}) {verdict}:", end=" ")
        times = f"{row.ours_ms:.0f} against {row.theirs_ms:.0f} ms per image, fastest {row.ratio_of_fastest:.2f}x"
        print(f"{times}; folding saves {row.folding_saves:.0%}")
    print(f"load average after: {os.getloadavg()[0]:.2f}; over 1 beside this job, times mean little", file=sys.stderr)
    write_record(arguments.output, before | {"rounds": arguments.rounds, "rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()
