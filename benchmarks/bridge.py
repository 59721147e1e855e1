"""Compares the bridge with what people write instead: `python benchmarks/bridge.py`.

Medians by the clock are compared, as a transfer is mostly waiting. Rows that need a GPU say so if there is none.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harness import Row, compare, demand, publish, race
from record import RESULTS, circumstances
from segmeter import HostCopier, labels_to_numpy, to_numpy

NO_GPU = "no CUDA device was at hand"
MIB = 2**20


def pair(rounds: int, work: str, against: str, least: float, *calls: Callable[[], object], note: str = "") -> Row:
    """Compare our call with theirs, by the clock."""
    times = race(dict(zip(("segmeter", against), calls, strict=True)), rounds)
    return compare(work, times, {against: least}, clock="wall_ms", note=note)[0]


def cpu_labels(num_classes: int, least: float, rounds: int) -> list[Row]:
    """Contiguous, as most write it, and in channels_last, as models here run."""
    logits = torch.randn(1, num_classes, 1024, 1024, generator=torch.Generator().manual_seed(num_classes))
    work = f"logits (1, {num_classes}, 1024, 1024) -> uint8 labels, CPU, NaN and infinity refused"
    note = "against NumPy's argmax, which must not lose either"
    rows = []
    for layout, given in (
        ("contiguous", logits),
        ("channels_last", logits.contiguous(memory_format=torch.channels_last)),
        ("channels_last bfloat16", logits.bfloat16().contiguous(memory_format=torch.channels_last)),
    ):
        ours = partial(labels_to_numpy, given, task="multiclass", num_classes=num_classes)
        needed = least if layout == "contiguous" else 1.0
        against = 'logits.argmax(1).numpy().astype("uint8")'
        rows.append(pair(rounds, f"{work}, {layout}", against, needed, ours, partial(torch_labels, given)))
    ours = partial(labels_to_numpy, logits, task="multiclass", num_classes=num_classes)
    numpys = lambda: logits.numpy().argmax(1).astype("uint8")  # noqa: E731
    against = 'logits.numpy().argmax(1).astype("uint8")'
    return [*rows, pair(rounds, f"{work}, contiguous", against, 1.0, ours, numpys, note=note)]


def torch_labels(logits: torch.Tensor) -> NDArray[Any]:
    labels: NDArray[Any] = logits.argmax(1).numpy().astype("uint8")
    return labels


def check_equal(device: str) -> None:
    """Labels must be the same before their speed means anything."""
    logits = torch.randn(2, 19, 200, 300, generator=torch.Generator().manual_seed(0))
    for dtype in (torch.float32, torch.bfloat16):
        for layout in (torch.contiguous_format, torch.channels_last):
            given = logits.to(device, dtype).contiguous(memory_format=layout)
            ours = labels_to_numpy(given, task="multiclass", num_classes=19)
            same = np.array_equal(ours, torch_labels(given.cpu()))
            demand(same, f"labels of {dtype} in {layout} differ from torch's")


def cpu_overhead(rounds: int) -> Row:
    """Microseconds per call on one element, in batches, as one call is too short for the clock."""
    tensor, calls = torch.ones(1), 2000

    def repeat(call: Callable[[], object]) -> None:
        for _ in range(calls):
            call()

    times = race(
        {
            "segmeter": lambda: repeat(lambda: to_numpy(tensor)),
            "torch": lambda: repeat(lambda: tensor.detach().numpy()),
        },
        rounds,
    )
    per_call_us = [1000 * times[name].wall_ms / calls for name in ("segmeter", "torch")]
    return Row(
        work=f"to_numpy of 1 element, CPU, {calls} calls",
        against="tensor.detach().numpy()",
        needs="under 10 us per call",
        met=per_call_us[0] < 10,
        ratio=per_call_us[1] / per_call_us[0],
        ours=times["segmeter"],
        theirs=times["torch"],
        note=f"{per_call_us[0]:.2f} us against {per_call_us[1]:.2f} us",
    )


def gpu_labels(rounds: int) -> list[Row]:
    """Decode on the device, against moving logits or int64 labels."""
    logits = torch.randn(16, 19, 1024, 1024, device="cuda")
    work = "logits (16, 19, 1024, 1024) -> uint8 labels on the host, GPU"
    ours = partial(labels_to_numpy, logits, task="multiclass", num_classes=19)
    on_host, on_device = (
        lambda: logits.cpu().numpy().argmax(1).astype("uint8"),
        lambda: logits.argmax(1).cpu().numpy().astype("uint8"),
    )
    return [
        pair(2, work, 'logits.cpu().numpy().argmax(1).astype("uint8")', 100, ours, on_host, note="2 rounds"),
        pair(rounds, work, 'logits.argmax(1).cpu().numpy().astype("uint8")', 3, ours, on_device),
    ]


def gpu_probs(rounds: int) -> list[Row]:
    """Repeated 256 MiB: pinned results against pageable copies, and the bare pinned copy as the link's limit."""
    probs = torch.rand(4, 16, 1024, 1024, device="cuda")
    nbytes, repeats = probs.numel() * 4, 4
    pinned = torch.empty(probs.shape, pin_memory=True)
    copier = HostCopier(device="cuda")

    def submit_ahead() -> None:
        waiting = [copier.submit(probs, case_id="0")]
        for number in range(1, repeats):
            waiting.append(copier.submit(probs, case_id=str(number)))
            waiting.pop(0).result()
        waiting.pop(0).result()

    pageable, limit = ".cpu().numpy()", "80 % of the link's pinned limit"
    times = race(
        {
            "segmeter": submit_ahead,
            pageable: lambda: [probs.cpu().numpy() for _ in range(repeats)],
            limit: lambda: [copy_pinned(pinned, probs) for _ in range(repeats)],
        },
        rounds,
    )
    ours, link = (repeats * nbytes / times[name].wall_ms / 1e6 for name in ("segmeter", limit))
    work = "float32 probabilities, repeated 256 MiB, GPU"
    needs = {pageable: 3.0, limit: 0.8}
    return compare(work, times, needs, clock="wall_ms", note=f"{ours:.1f} of {link:.1f} GB/s")


def copy_pinned(pinned: torch.Tensor, source: torch.Tensor) -> None:
    pinned.copy_(source, non_blocking=True)
    torch.cuda.current_stream().synchronize()


def gpu_ring(rounds: int) -> Row:
    """One result ahead of a consumer that takes as long as the copy; both sides copy to pinned memory."""
    source = torch.rand(16 * MIB, device="cuda")
    pinned, repeats = torch.empty(source.shape, pin_memory=True), 20
    copy_ms = race({"copy": lambda: copy_pinned(pinned, source)}, rounds)["copy"].wall_ms
    copier = HostCopier(device="cuda")

    def consume() -> None:
        end = time.perf_counter() + copy_ms / 1000
        while time.perf_counter() < end:
            time.sleep(0)

    def ahead() -> None:
        pending = copier.submit(source, case_id="0")
        for number in range(1, repeats + 1):
            following = copier.submit(source, case_id=str(number)) if number < repeats else pending
            pending.result()
            consume()
            pending = following

    def synchronous() -> None:
        for _ in range(repeats):
            copy_pinned(pinned, source)
            consume()

    work = "one result ahead of a consumer as long as the copy, GPU"
    return pair(rounds, work, "synchronous copies", 1.8, ahead, synchronous)


def gpu_checks(rounds: int) -> Row:
    """Labels with the record of every check, against the same labels without one."""
    logits = torch.randn(16, 19, 1024, 1024, device="cuda")
    copier = HostCopier(device="cuda")

    def checked() -> None:
        copier.submit_labels(logits, case_id="a", task="multiclass", num_classes=19).result()

    def unchecked() -> None:
        copier.submit(logits.max(dim=1)[1].to(torch.uint8), case_id="a").result()

    times = race({"checked": checked, "unchecked": unchecked}, rounds)
    overhead = times["checked"].wall_ms / times["unchecked"].wall_ms - 1
    return Row(
        work="overhead of every check together, GPU",
        against="the same transfer unchecked",
        needs="at most 5 %",
        met=overhead <= 0.05,
        ratio=1 / (1 + overhead),
        ours=times["checked"],
        theirs=times["unchecked"],
        note=f"overhead {100 * overhead:.1f} %",
    )


def without_gpu() -> list[Row]:
    labels = "logits (16, 19, 1024, 1024) -> uint8 labels on the host, GPU"
    probs = "float32 probabilities, repeated 256 MiB, GPU"
    rows = (
        (labels, 'logits.cpu().numpy().argmax(1).astype("uint8")', "at least 100x"),
        (labels, 'logits.argmax(1).cpu().numpy().astype("uint8")', "at least 3x"),
        (probs, ".cpu().numpy()", "at least 3x"),
        (probs, "80 % of the link's pinned limit", "at least 0.8x"),
        ("one result ahead of a consumer as long as the copy, GPU", "synchronous copies", "at least 1.8x"),
        ("overhead of every check together, GPU", "the same transfer unchecked", "at most 5 %"),
    )
    return [Row(work=work, against=against, needs=needs, note=NO_GPU) for work, against, needs in rows]


def measure(rounds: int, device: str) -> list[Row]:
    for place in dict.fromkeys(("cpu", device)):
        check_equal(place)
    rows = [*cpu_labels(19, 4.0, rounds), *cpu_labels(2, 1.0, rounds), cpu_overhead(rounds)]
    if device == "cpu":
        return rows + without_gpu()
    return [*rows, *gpu_labels(rounds), *gpu_probs(rounds), gpu_ring(rounds), gpu_checks(rounds)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="turns per row; medians are compared")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--quick", action="store_true", help="2 rounds: shows that it runs")
    parser.add_argument("--output", type=Path, default=RESULTS / "bridge.json", help="where the JSON goes")
    arguments = parser.parse_args()
    rounds = 2 if arguments.quick else arguments.rounds
    publish(arguments.output, circumstances(), measure(rounds, arguments.device), rounds=rounds)


if __name__ == "__main__":
    main()
