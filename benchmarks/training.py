"""Compares a training step with the plain loop: `python benchmarks/training.py`.

Ours is the step that `segmeter train` takes with its defaults: channels_last, bfloat16 where the CPU has it, the
decoder folded, softmax focal loss, fused AdamW, clipping, uint8 images. Theirs is segmentation-models-pytorch as its
examples use it: its own focal loss, Adam, float32, NCHW. Network, first weights and images are the same. Ours also runs
with the decoder as the library has it, which shows what folding saves. Each contender has a process of its own, as ours
keeps freed memory and theirs, as users run it, does not.
"""

import argparse
import copy
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import segmentation_models_pytorch as smp
import torch
from segmentation_models_pytorch.decoders.unet.decoder import UnetDecoderBlock
from torch import Tensor, nn

from harness import Row, Spent, Time, compare, demand, publish, race
from record import RESULTS, circumstances
from segmeter.classes import ClassSpec
from segmeter.distributed.ranks import ALONE, ParallelModel
from segmeter.inference.device import keep_freed_memory, pick_training_dtype
from segmeter.losses.focal import FocalLoss
from segmeter.models.config import ModelCard
from segmeter.models.layers import FoldedBlock
from segmeter.models.segmenter import Segmenter, build_segmenter
from segmeter.training.config import AdamWConfig, TrainingConfig
from segmeter.training.data.batches import Augmentation, Batch, Samples
from segmeter.training.data.windows import Resizing
from segmeter.training.optimizers import build_adamw
from segmeter.training.step import update_from_batches

CLASSES, VOID = 11, 11
LEARNING_STEPS = 12  # enough that both losses have clearly fallen
PLAIN = "the plain loop: SMP FocalLoss with ignore_index, Adam, float32, NCHW"
UNFOLDED = "segmeter with the library's decoder"
KINDS = ("segmeter", PLAIN, UNFOLDED)
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
    """Return the library's own network, as its users build it, with the same first weights."""
    network = smp.Unet(encoder, encoder_weights=None, classes=CLASSES)
    network.load_state_dict(segmenter.network.state_dict())
    return network


@dataclass(frozen=True)
class Repeated:
    """A source of one batch over and over, of windows that the device has yet to resize."""

    case: Case

    @property
    def batch_size(self) -> int:
        return self.case.batch

    def __len__(self) -> int:
        return 1000

    def batch(self, epoch: int, index: int, progress: float) -> Samples:
        image, target = blobs(self.case)
        size = self.case.height, self.case.width
        window = size[0] - 16, size[1] - 16
        numbers = np.arange(self.case.batch)
        resizing = Resizing((window,) * self.case.batch, size)
        return Samples(image.permute(0, 2, 3, 1).numpy(), target.numpy(), numbers, resizing)


def our_step(
    segmenter: Segmenter, *, device: torch.device, augment: Augmentation | None = None
) -> Callable[[Batch], Tensor]:
    """One step over a batch that is on the device, as `segmeter train` takes it."""
    segmenter = segmenter.to(memory_format=torch.channels_last)
    learner = SimpleNamespace(
        forward=ParallelModel(segmenter, ALONE),
        world=ALONE,
        loss=FocalLoss("multiclass", gamma=2.0, ignore_index=VOID).to(device),
        optimizer=build_adamw(AdamWConfig(), model=segmenter),
        scaler=None,
        augment=augment,
        config=TrainingConfig(),
        device=device,
        dtype=pick_training_dtype(device, "auto"),
    )
    return lambda batch: update_from_batches(learner, [batch])[0]


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
    demand(losses[-1] < 0.7 * losses[0], f"{name} does not learn: loss {losses[0]:.4f}, then {losses[-1]:.4f}")
    return losses[0], losses[-1]


def serve(kind: str, case: Case, pipe: Connection) -> None:
    """Run a contender in its own process: check that it learns, then take a step each time the parent asks for one."""
    torch.manual_seed(0)
    device = torch.device(case.device)
    segmenter = build_segmenter(card_of(case.encoder)).train()
    image, target = blobs(case)
    if kind != PLAIN:
        keep_freed_memory()
        for block in (each for each in segmenter.modules() if isinstance(each, FoldedBlock) and kind == UNFOLDED):
            block.__class__ = UnetDecoderBlock  # it has the same parts
        batch = Batch(image=image.to(device), target=target.to(device), indices=np.arange(len(image)))
        step = partial(our_step(segmenter.to(device), device=device), batch)
    else:
        step = plain_step(plain_network(case.encoder, segmenter).to(device), image, target)
    pipe.send(check_learns(kind, step))
    while pipe.recv():
        cpu, wall = time.process_time(), time.perf_counter()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        pipe.send(Spent((time.process_time() - cpu) / case.batch, (time.perf_counter() - wall) / case.batch))


def ask(pipe: Connection) -> Spent:
    """Let a contender take a step."""
    pipe.send(True)
    spent: Spent = pipe.recv()
    return spent


def run_contenders(case: Case, rounds: int) -> tuple[dict[str, tuple[float, float]], dict[str, Time]]:
    """First and later loss of each contender, and its times per image; the one that waits does nothing."""
    context = multiprocessing.get_context("spawn")
    ends = {kind: context.Pipe() for kind in KINDS}
    workers = [context.Process(target=serve, args=(kind, case, ends[kind][1]), daemon=True) for kind in KINDS]
    losses = {}
    for kind, worker in zip(KINDS, workers, strict=True):
        worker.start()
        losses[kind] = ends[kind][0].recv()
    times = race({kind: partial(ask, ends[kind][0]) for kind in KINDS}, rounds)
    for kind, worker in zip(KINDS, workers, strict=True):
        ends[kind][0].send(False)
        worker.join()
    return losses, times


def measure(case: Case, rounds: int) -> list[Row]:
    torch.manual_seed(0)
    segmenter = build_segmenter(card_of(case.encoder)).train()
    check_same(segmenter, plain_network(case.encoder, segmenter), blobs(case)[0])
    losses, times = run_contenders(case, rounds)
    fastest = times[PLAIN].wall_best_ms / times["segmeter"].wall_best_ms
    fell = ", ".join(f"{first:.3f} to {last:.3f}" for first, last in losses.values())
    size = f"{case.height} x {case.width}, batch {case.batch}, {case.device}"
    work, note = f"training step per image, U-Net {case.encoder}, {size}", f"of the fastest {fastest:.2f}x; loss {fell}"
    return compare(work, times, {PLAIN: case.least}, clock="wall_ms", note=note)


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
    rows = (row for case in cases for row in measure(case, arguments.rounds))
    publish(arguments.output, before, rows, rounds=arguments.rounds)


if __name__ == "__main__":
    main()
