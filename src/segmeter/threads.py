"""Decides how many threads compute and how they wait for each other.

By default OpenMP's threads spin while they wait. Beside another program they then occupy the cores that working threads
need: a training on two cores took four times as long.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from math import ceil
from pathlib import Path

# The OpenMP libraries of GNU, LLVM and Intel read these.
_POLICIES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")


def sleep_while_waiting() -> None:
    """Let the threads of torch and of NumPy's BLAS sleep while they wait, unless the environment decides otherwise.

    Both read the environment once, when they are loaded, so call this first. It has no effect on a torch that is loaded
    already.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in _POLICIES):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # 2**4 ticks of the processor's clock; by default 2**26


def describe_waiting() -> str:
    """Describe how OpenMP's threads wait: the environment variables that decide it."""
    settings = [f"{name}={os.environ[name]}" for name in _POLICIES if name in os.environ]
    return ", ".join(settings) or "they spin, as torch was loaded before segmeter"


def count_cores() -> int:
    """Count the cores that this process may use, >= 1. CPU affinity and control groups may allow fewer than there are.

    A quota of 1.5 cores counts as 2, because one thread would leave a third of it unused.
    """
    counts = [_count_allowed()]
    for folder in control_groups("cpu"):
        with suppress(OSError, ValueError):  # version 2: "max" is not a number
            quota, period = map(int, (folder / "cpu.max").read_text().split())
            counts.append(ceil(quota / period))
        with suppress(OSError):  # version 1: -1 means no limit
            quota, period = (int((folder / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
            counts += [ceil(quota / period)] if quota > 0 else []
    return min(counts)


def share_cores(processes: int = 1) -> None:
    """Let torch, which has to be loaded, compute with this process's part of the cores.

    OMP_NUM_THREADS and MKL_NUM_THREADS override it. Processes that train together share the cores, because with more
    threads than cores the threads would wait for each other. Shards don't share: on a CPU the last bits depend on the
    number of threads, and shards must produce the same bytes as one process.

    Parameters
    ----------
    processes
        The number of processes that share the cores, >= 1.
    """
    part = max(1, count_cores() // processes)
    if part < _count_allowed() and not count_is_set():
        torch = sys.modules["torch"]  # scoring counts cores too, and must not import torch
        torch.set_num_threads(min(part, torch.get_num_threads()))


def count_is_set() -> bool:
    """Tell whether the environment decides how many threads compute."""
    return any(name in os.environ for name in _COUNTS)


def control_groups(kind: str) -> Iterator[Path]:
    """Find the folders of the control groups that this process is in, from the innermost to the outermost.

    Parameters
    ----------
    kind
        The controller, such as "cpu". Version 1 has a tree for each controller, version 2 has one tree for all.
    """
    with suppress(OSError, ValueError):
        for line in _OWN_CGROUPS.read_text("utf-8", "replace").splitlines():
            _, kinds, own_path = line.split(":", 2)
            top = _CGROUPS / kinds
            folder = top / own_path.lstrip("/")
            if kind in kinds.split(",") or not kinds:
                yield from (group for group in (folder, *folder.parents) if group.is_relative_to(top))


def _count_allowed() -> int:
    import psutil  # takes a moment, and importing this package should be quick

    process = psutil.Process()
    return len(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else psutil.cpu_count() or 1  # not on macOS
