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

_POLICIES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")  # of GNU's, LLVM's, Intel's OpenMP
_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_CGROUPS, _OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def sleep_while_waiting() -> None:
    """Let the threads of torch and of NumPy's BLAS sleep while they wait, unless the environment sets it.

    Both read the environment once, when they are loaded, so this must come before. It has no effect on a torch that is
    loaded already.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in _POLICIES):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # 2**4 ticks of the processor's clock; by default 2**26


def describe_waiting() -> str:
    """Describe how OpenMP's threads wait: the environment variables that decide it."""
    given = [f"{name}={os.environ[name]}" for name in _POLICIES if name in os.environ]
    return ", ".join(given) or "they spin, as torch was loaded before segmeter"


def count_cores() -> int:
    """Count the cores that this process may use, >= 1: CPU affinity and control groups may allow fewer than there are.

    A quota of 1.5 cores counts as 2, as one thread would leave a third of it unused.
    """
    counts = [_count_allowed()]
    for folder in control_groups("cpu"):
        with suppress(OSError, ValueError):  # version 2: "max" is no number
            quota, period = map(int, (folder / "cpu.max").read_text().split())
            counts.append(ceil(quota / period))
        with suppress(OSError):  # version 1: -1 is no limit
            quota, period = (int((folder / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
            counts += [ceil(quota / period)] if quota > 0 else []
    return min(counts)


def share_cores(processes: int = 1) -> None:
    """Let torch, which has to be loaded, compute with this process's part of the cores.

    OMP_NUM_THREADS and MKL_NUM_THREADS override it. Processes that train together share the cores, because
    threads would wait for each other if there were more of them than cores. Shards don't: on a CPU the last bits depend
    on the number of threads, and shards must give the bytes of one process.

    Parameters
    ----------
    processes
        How many share the cores, >= 1.
    """
    part = max(1, count_cores() // processes)
    if part < _count_allowed() and not count_is_set():
        torch = sys.modules["torch"]  # scoring, which needs the number of cores too, must not import it
        torch.set_num_threads(min(part, torch.get_num_threads()))


def count_is_set() -> bool:
    """Tell whether the environment decides how many threads compute."""
    return any(name in os.environ for name in _COUNTS)


def control_groups(kind: str) -> Iterator[Path]:
    """Find the folders of the control groups that this process is in, from the innermost to the outermost.

    Parameters
    ----------
    kind
        The controller, such as "cpu": version 1 has a tree for each, version 2 has one for all.
    """
    with suppress(OSError, ValueError):
        for line in _OWN_CGROUPS.read_text("utf-8", "replace").splitlines():
            _, kinds, own = line.split(":", 2)
            top = _CGROUPS / kinds
            folder = top / own.lstrip("/")
            if kind in kinds.split(",") or not kinds:
                yield from (each for each in (folder, *folder.parents) if each.is_relative_to(top))


def _count_allowed() -> int:
    import psutil  # takes a moment, for which importing this package must not wait

    process = psutil.Process()
    return len(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else psutil.cpu_count() or 1  # not on macOS
