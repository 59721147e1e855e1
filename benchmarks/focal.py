"""Compares focal losses: `python benchmarks/focal.py --output benchmarks/results/focal.json`.

First the value that each library gives on one input, with the factor to ours; then forward and backward, all in turns;
then peak extra memory and saved tensors. A table in Markdown goes beside the JSON.
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
from segmentation_models_pytorch.losses import FocalLoss as SmpFocalLoss
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.profiler import ProfilerActivity, profile
from torchvision.ops import sigmoid_focal_loss

from harness import race
from record import RESULTS, circumstances, write_record
from segmeter import FocalLoss

MONAI = find_spec("monai") is not None
Loss = Callable[[torch.Tensor], torch.Tensor]
NCHW, NHWC = torch.contiguous_format, torch.channels_last


@dataclass(frozen=True, kw_only=True)
class Row:
    """One loss on one input; milliseconds are medians, memory is in units of the logits' size."""

    work: str
    loss: str
    wall_ms: float
    cold_wall_ms: float
    cpu_ms: float | None
    peak_memory: float
    saved: float


@dataclass(frozen=True, kw_only=True)
class Target:
    """A promise, and how this run meets it."""

    promise: str
    needs: str
    measured: float
    met: bool


class Work(NamedTuple):
    name: str
    logits: torch.Tensor
    losses: dict[str, Loss]


def multiclass(device: str, *, dtype: torch.dtype, layout: torch.memory_format, size: tuple[int, ...]) -> Work:
    """Ours takes uint8 labels, the others int64; 255 is ignored, by MONAI and the second line of SMP not at all."""
    rng = torch.Generator().manual_seed(0)
    logits = (torch.randn(size, generator=rng) * 3).to(device, dtype).contiguous(memory_format=layout)
    labels = torch.randint(0, size[1], (size[0], *size[2:]), generator=rng)
    labels[:, : size[2] // 16] = 255
    small, target = labels.to(device, torch.uint8), labels.to(device)
    plain = torch.where(target == 255, 0, target)
    ours = FocalLoss("multiclass", gamma=2.0, ignore_index=255).to(device)
    in_torch = FocalLoss("multiclass", gamma=2.0, ignore_index=255, backend="torch").to(device)
    losses: dict[str, Loss] = {
        "segmeter": lambda x: ours(x, small),
        "segmeter, closed form in plain torch": lambda x: in_torch(x, small),
        # Autocast computes cross-entropy in float32, and so do we.
        "F.cross_entropy (no focal loss)": lambda x: cross_entropy(x.float(), target, ignore_index=255),
    }
    if dtype == torch.float32 and layout == NCHW:
        smp = SmpFocalLoss("multiclass", gamma=2.0, ignore_index=255)
        smp_plain = SmpFocalLoss("multiclass", gamma=2.0)
        losses["SMP, ignore_index"] = lambda x: smp(x, target)
        losses["SMP"] = lambda x: smp_plain(x, plain)
        if MONAI:
            from monai.losses import FocalLoss as MonaiFocalLoss

            monai = MonaiFocalLoss(gamma=2.0, use_softmax=True, to_onehot_y=True)
            losses["MONAI, softmax"] = lambda x: monai(x, plain.unsqueeze(1))
    name = f"multiclass {'x'.join(map(str, size))} {str(dtype).removeprefix('torch.')}"
    return Work(f"{name} {'channels_last' if layout == NHWC else 'contiguous'}", logits, losses)


def binary(device: str, size: tuple[int, ...]) -> Work:
    rng = torch.Generator().manual_seed(0)
    logits = (torch.randn(size, generator=rng) * 3).to(device)
    labels = torch.randint(0, 2, (size[0], *size[2:]), generator=rng)
    small, floats = labels.to(device, torch.uint8), labels.unsqueeze(1).float().to(device)
    ours = FocalLoss("binary", gamma=2.0).to(device)
    in_torch = FocalLoss("binary", gamma=2.0, backend="torch").to(device)
    smp = SmpFocalLoss("binary", gamma=2.0)
    losses: dict[str, Loss] = {
        "segmeter": lambda x: ours(x, small),
        "segmeter, closed form in plain torch": lambda x: in_torch(x, small),
        "F.binary_cross_entropy_with_logits (no focal loss)": lambda x: binary_cross_entropy_with_logits(x, floats),
        "torchvision": lambda x: sigmoid_focal_loss(x, floats, alpha=-1, gamma=2.0, reduction="mean"),
        "SMP": lambda x: smp(x, floats),
    }
    if MONAI:
        from monai.losses import FocalLoss as MonaiFocalLoss

        monai = MonaiFocalLoss(gamma=2.0)
        losses["MONAI"] = lambda x: monai(x, floats)
    return Work(f"binary {'x'.join(map(str, size))} float32", logits, losses)


def forward_backward(loss: Loss, logits: torch.Tensor) -> None:
    leaf = logits.detach().requires_grad_()
    loss(leaf).backward()
    if logits.is_cuda:
        torch.cuda.synchronize()


def peak_memory(loss: Loss, logits: torch.Tensor) -> float:
    """Most bytes alive at once beyond those before the call, gradient included, over the logits' bytes."""
    if logits.is_cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        forward_backward(loss, logits)
        return (torch.cuda.max_memory_allocated() - before) / logits.nbytes
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        forward_backward(loss, logits)
    events = profiler.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    alive = peak = 0
    for _, nbytes in changes:
        alive += nbytes
        peak = max(peak, alive)
    return peak / logits.nbytes


def saved_tensors(loss: Loss, logits: torch.Tensor) -> float:
    """Bytes kept for the backward pass, the logits and everything that was there before left out, over the logits'."""
    leaf = logits.detach().requires_grad_()
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        value = loss(leaf)
    kept.pop(leaf.untyped_storage().data_ptr(), None)
    value.backward()
    return sum(kept.values()) / logits.nbytes


def measure(work: Work, rounds: int) -> list[Row]:
    times = race({name: partial(forward_backward, loss, work.logits) for name, loss in work.losses.items()}, rounds)
    return [
        Row(
            work=work.name,
            loss=name,
            wall_ms=times[name].wall_ms,
            cold_wall_ms=times[name].cold_wall_ms,
            cpu_ms=None if work.logits.is_cuda else times[name].cpu_ms,
            peak_memory=peak_memory(loss, work.logits),
            saved=saved_tensors(loss, work.logits),
        )
        for name, loss in work.losses.items()
    ]


def print_values() -> list[dict[str, object]]:
    """Return the value of each library on the same input, and what to multiply it with to get ours."""
    found = []
    for work in (
        multiclass("cpu", dtype=torch.float32, layout=NCHW, size=(2, 5, 32, 32)),
        binary("cpu", (2, 1, 32, 32)),
    ):
        ours = float(work.losses["segmeter"](work.logits))
        print(f"\n{work.name}, gamma 2: the same input, the value, the factor to ours")
        for name, loss in work.losses.items():
            value = float(loss(work.logits))
            found.append({"work": work.name, "loss": name, "value": value, "factor_to_ours": ours / value})
            print(f"  {value:10.6f}  x {ours / value:8.4f}  {name}")
    return found


def three_passes(logits: torch.Tensor, rounds: int) -> float:
    """Milliseconds to read the logits once, then read and write them once: what the memory allows."""
    other = torch.empty_like(logits)

    def passes() -> None:
        logits.sum()
        other.copy_(logits)
        torch.cuda.synchronize()

    return race({"passes": passes}, rounds)["passes"].wall_ms


def check_targets(rows: list[Row], device: str) -> list[Target]:
    def ratio(promise: str, *, work: str, against: str, least: float) -> Target:
        times = {row.loss: row.wall_ms for row in rows if row.work.startswith(work)}
        measured = times[against] / times["segmeter"]
        return Target(promise=promise, needs=f"at least {least:g}x", measured=measured, met=measured >= least)

    first = next(row.work for row in rows)
    second = next(row.work for row in rows if row.work.startswith("binary"))
    cpu = device == "cpu"
    targets = [
        ratio("multiclass against SMP", work=first, against="SMP, ignore_index", least=20 if cpu else 8),
        ratio("binary against torchvision", work=second, against="torchvision", least=2 if cpu else 5),
    ]
    for work in dict.fromkeys(row.work for row in rows if row.work.startswith("multiclass")):
        against = "F.cross_entropy (no focal loss)"
        targets.append(ratio(f"against cross-entropy, {work}", work=work, against=against, least=1))
    for row in rows:
        if row.loss == "segmeter":
            met = row.peak_memory <= 1.001
            needs = "at most 1x the logits"
            targets.append(
                Target(promise=f"peak extra memory, {row.work}", needs=needs, measured=row.peak_memory, met=met)
            )
    return targets


def table(rows: list[Row]) -> str:
    lines = []
    for work in dict.fromkeys(row.work for row in rows):
        chosen = [row for row in rows if row.work == work]
        ours = chosen[0].wall_ms
        lines += ["", f"### {work}", "", "| loss | ms | first ms | CPU ms | against ours | peak extra memory | saved |"]
        lines += ["|---|---:|---:|---:|---:|---:|---:|"]
        for row in chosen:
            cpu = "" if row.cpu_ms is None else f"{row.cpu_ms:.1f}"
            times = f"{row.wall_ms:.2f} | {row.cold_wall_ms:.2f} | {cpu} | {row.wall_ms / ours:.2f}x"
            lines.append(f"| {row.loss} | {times} | {row.peak_memory:.2f}x | {row.saved:.2f}x |")
    return "\n".join(lines).strip() + "\n"


def works(device: str, *, quick: bool) -> list[Work]:
    batch = 2 if quick else 8 if device == "cpu" else 32
    size = (batch, 19, 64, 64) if quick else (batch, 19, 256, 256) if device == "cpu" else (batch, 19, 512, 512)
    kinds = [(torch.float32, NCHW), (torch.float32, NHWC), (torch.bfloat16, NCHW), (torch.bfloat16, NHWC)]
    losses = [multiclass(device, dtype=dtype, layout=layout, size=size) for dtype, layout in kinds]
    return [*losses, binary(device, (batch, 1, 64, 64) if quick else (batch, 1, 512, 512))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="turns per row; medians are compared")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--quick", action="store_true", help="small inputs, 2 rounds: shows that it runs")
    parser.add_argument(
        "--output", type=Path, default=RESULTS / "focal.json", help="the JSON; its table goes beside it"
    )
    arguments = parser.parse_args()
    packages = ("torchvision", "segmentation-models-pytorch", "monai")
    before, values = circumstances(*packages), print_values()
    if arguments.quick:
        arguments.rounds = 2
    jobs = works(arguments.device, quick=arguments.quick)
    rows = [row for work in jobs for row in measure(work, arguments.rounds)]
    targets = check_targets(rows, arguments.device)
    if arguments.device == "cuda":
        for work in (jobs[0], jobs[-1]):
            limit = three_passes(work.logits, arguments.rounds)
            share = limit / next(row.wall_ms for row in rows if row.work == work.name)
            promise = f"share of the 3-pass memory limit, {work.name}"
            targets.append(Target(promise=promise, needs="at least 0.8", measured=share, met=share >= 0.8))
    print("\n" + table(rows))
    for target in targets:
        verdict = "met" if target.met else "NOT MET"
        print(f"{target.measured:8.2f}  ({target.needs}) {verdict:7s}  {target.promise}")
    found = {"rows": [asdict(row) for row in rows], "targets": [asdict(target) for target in targets]}
    write_record(arguments.output, before | {"rounds": arguments.rounds, "values": values} | found)
    arguments.output.with_suffix(".md").write_text(table(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
