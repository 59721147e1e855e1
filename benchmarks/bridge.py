"""The bridge against what people write instead: `python benchmarks/bridge.py --output benchmarks/results/bridge.json`.

Ours and theirs take turns in one run, and medians are compared. Rows that need a GPU say so where there is none.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from record import RESULTS, circumstances, write_record
from segmeter import HostCopier, labels_to_numpy, to_numpy

NO_GPU = "no CUDA device was at hand"
MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table; `ratio` is theirs / ours unless the work says otherwise, None where not measured."""

    work: str
    against: str
    needs: str
    met: bool | None = None
    ratio: float | None = None
    ours_ms: float | None = None
    theirs_ms: float | None = None
    note: str = ""


def interleave(rounds: int, *calls: Callable[[], object]) -> list[float]:
    """Median milliseconds of each call; the calls take turns, after one turn that does not count."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(rounds + 1):
        for spent, call in zip(times, calls, strict=True):
            start = time.perf_counter()
            call()
            if turn:
                spent.append(1000 * (time.perf_counter() - start))
    return [statistics.median(spent) for spent in times]


def compare(work: str, against: str, least: float, ours_ms: float, theirs_ms: float, note: str = "") -> Row:
    ratio = theirs_ms / ours_ms
    needs = f"at least {least:g}x"
    return Row(
        work=work,
        against=against,
        needs=needs,
        met=ratio >= least,
        ratio=ratio,
        ours_ms=ours_ms,
        theirs_ms=theirs_ms,
        note=note,
    )


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
        ours, theirs = interleave(
            rounds,
            partial(labels_to_numpy, given, task="multiclass", num_classes=num_classes),
            partial(torch_labels, given),
        )
        needed = least if layout == "contiguous" else 1.0
        rows.append(compare(f"{work}, {layout}", 'logits.argmax(1).numpy().astype("uint8")', needed, ours, theirs))
    ours, numpys = interleave(
        rounds,
        lambda: labels_to_numpy(logits, task="multiclass", num_classes=num_classes),
        lambda: logits.numpy().argmax(1).astype("uint8"),
    )
    return [*rows, compare(f"{work}, contiguous", 'logits.numpy().argmax(1).astype("uint8")', 1.0, ours, numpys, note)]


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
            if not np.array_equal(ours, torch_labels(given.cpu())):
                raise SystemExit(f"labels of {dtype} in {layout} differ from torch's")


def cpu_overhead(rounds: int) -> Row:
    """Microseconds per call on one element, in batches, as one call is too short for the clock."""
    tensor, calls = torch.ones(1), 2000

    def repeat(call: Callable[[], object]) -> None:
        for _ in range(calls):
            call()

    ours, theirs = interleave(
        rounds, lambda: repeat(lambda: to_numpy(tensor)), lambda: repeat(lambda: tensor.detach().numpy())
    )
    per_call_us = [1000 * spent / calls for spent in (ours, theirs)]
    return Row(
        work="to_numpy of 1 element, CPU",
        against="tensor.detach().numpy()",
        needs="under 10 us per call",
        met=per_call_us[0] < 10,
        ratio=per_call_us[1] / per_call_us[0],
        ours_ms=per_call_us[0] / 1000,
        theirs_ms=per_call_us[1] / 1000,
        note=f"{per_call_us[0]:.2f} us against {per_call_us[1]:.2f} us",
    )


def gpu_labels(rounds: int) -> list[Row]:
    logits = torch.randn(16, 19, 1024, 1024, device="cuda")
    ours, device = interleave(
        rounds,
        lambda: labels_to_numpy(logits, task="multiclass", num_classes=19),
        lambda: logits.argmax(1).cpu().numpy().astype("uint8"),
    )
    (host,) = interleave(2, lambda: logits.cpu().numpy().argmax(1).astype("uint8"))
    work = "logits (16, 19, 1024, 1024) -> uint8 labels on the host, GPU"
    return [
        compare(work, 'logits.cpu().numpy().argmax(1).astype("uint8")', 100, ours, host, "theirs: 2 rounds"),
        compare(work, 'logits.argmax(1).cpu().numpy().astype("uint8")', 3, ours, device),
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

    ours, theirs, link = interleave(
        rounds,
        submit_ahead,
        lambda: [probs.cpu().numpy() for _ in range(repeats)],
        lambda: [copy_pinned(pinned, probs) for _ in range(repeats)],
    )
    work = "float32 probabilities, repeated 256 MiB, GPU"
    speed = f"{repeats * nbytes / ours / 1e6:.1f} of {repeats * nbytes / link / 1e6:.1f} GB/s"
    return [
        compare(work, ".cpu().numpy()", 3, ours, theirs),
        compare(work, "80 % of the link's pinned limit", 0.8, ours, link, speed),
    ]


def copy_pinned(pinned: torch.Tensor, source: torch.Tensor) -> None:
    pinned.copy_(source, non_blocking=True)
    torch.cuda.current_stream().synchronize()


def gpu_ring(rounds: int) -> Row:
    """One result ahead of a consumer that takes as long as the copy; both sides copy to pinned memory."""
    source = torch.rand(16 * MIB, device="cuda")
    pinned, repeats = torch.empty(source.shape, pin_memory=True), 20
    (copy_ms,) = interleave(rounds, lambda: copy_pinned(pinned, source))
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

    ours, theirs = interleave(rounds, ahead, synchronous)
    return compare("one result ahead of a consumer as long as the copy, GPU", "synchronous copies", 1.8, ours, theirs)


def gpu_checks(rounds: int) -> Row:
    """Labels with the record of every check, against the same labels without one."""
    logits = torch.randn(16, 19, 1024, 1024, device="cuda")
    copier = HostCopier(device="cuda")

    def checked() -> None:
        copier.submit_labels(logits, case_id="a", task="multiclass", num_classes=19).result()

    def unchecked() -> None:
        copier.submit(logits.max(dim=1)[1].to(torch.uint8), case_id="a").result()

    ours, theirs = interleave(rounds, checked, unchecked)
    overhead = ours / theirs - 1
    return Row(
        work="overhead of every check together, GPU",
        against="the same transfer unchecked",
        needs="at most 5 %",
        met=overhead <= 0.05,
        ratio=theirs / ours,
        ours_ms=ours,
        theirs_ms=theirs,
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
        ("two slots under a consumer as long as the copy, GPU", "synchronous copies", "at least 1.8x"),
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
    before = circumstances()
    rows = measure(2 if arguments.quick else arguments.rounds, arguments.device)
    for row in rows:
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}x"
        times = "" if row.ours_ms is None else f"{row.ours_ms:.3f} ms against {row.theirs_ms:.3f} ms"
        verdict = {None: "", True: "met", False: "NOT MET"}[row.met]
        print(f"{row.work}\n  against {row.against}: {ratio} ({row.needs}) {verdict} {times} {row.note}".rstrip())
    print(f"load average after: {os.getloadavg()[0]:.2f}; over 1 beside this job, times mean little", file=sys.stderr)
    write_record(arguments.output, before | {"rounds": arguments.rounds, "rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()
