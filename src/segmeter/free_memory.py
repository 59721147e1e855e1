"""How much memory this process may still take, of the machine, its control groups and its own limit."""

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def free_bytes() -> int | None:
    """Bytes that this process may still take: of the machine, its control groups and its own limit.

    Cached pages of files that were not read lately count as free, as the system gives them back when memory runs short.
    None where the system does not say.
    """
    found = [_field(Path("/proc/meminfo"), "MemAvailable:", unit=1024), *_groups(), _limit()]
    return min((each for each in found if each is not None), default=None)


def _groups() -> Iterator[int]:
    """What each control group above this process leaves, as containers and schedulers set them (version 2)."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = next(line.removeprefix("0::/") for line in lines if line.startswith("0::"))
        for folder in (_CGROUPS / own, *(_CGROUPS / own).parents):
            with suppress(OSError, ValueError):  # "max" is no number
                limit, used = (int((folder / name).read_text()) for name in ("memory.max", "memory.current"))
                cached = _field(folder / "memory.stat", "inactive_file") or 0
                yield max(0, limit - used + cached)
            if folder == _CGROUPS:
                return


def _limit() -> int | None:
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return None
    with suppress(OSError, ValueError):
        return most - int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return None


def _field(path: Path, name: str, *, unit: int = 1) -> int | None:
    """A number of bytes in a file of the system's, by the word before it."""
    with suppress(OSError, StopIteration, ValueError, IndexError):
        words = next(line.split() for line in path.read_text().splitlines() if line.split()[:1] == [name])
        return int(words[1]) * unit
    return None
