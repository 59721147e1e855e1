"""Decides how numba compiles this package's kernels, and when a kernel on disk is out of date.

Every kernel is compiled on its first call, runs without the GIL, and divides as IEEE 754 says (by 0 gives infinity or
NaN, no exception). Import kernels where they are first used, because numba takes a moment to load.
"""

import logging
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from mmap import mmap
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher

_LOG = logging.getLogger(__name__)
Function = TypeVar("Function", bound=Callable[..., Any])

# a * b + c may be rounded once, and -0 may become 0. NaN and infinity keep their meaning.
FUSED = frozenset({"contract", "nsz"})
# Sums may also be added up in vector lanes, in an order that is fixed but not one by one.
FUSED_SUMS = FUSED | {"reassoc"}


def _decorator(*, on_disk: bool = False, **options: Any) -> Callable[[Function], Function]:
    """Make a decorator that compiles with options of numba, and keeps the result on disk if `on_disk`."""

    def decorate(function: Function) -> Function:
        compiled = numba.njit(nogil=True, error_model="numpy", **options)(function)
        if on_disk:
            try:
                compiled._cache = _StampedCache(function)
            except RuntimeError:  # a read-only install and home
                _warn_of_no_cache()
        return cast(Function, compiled)

    return decorate


# Kernels are kept on disk. A part is kept with the kernels that call it, which lie in the same folder.
kernel = _decorator(on_disk=True)  # Float arithmetic is exact.
fused_kernel = _decorator(on_disk=True, fastmath=set(FUSED))
fused_part = _decorator(fastmath=set(FUSED))
fused_sums_part = _decorator(fastmath=set(FUSED_SUMS))
# Exact, and compiled into its callers, so that constant arguments stay constants.
inlined_part = _decorator(inline="always")
# Exact, for parts that neither make nor return an array. References to their arrays are not counted. In a function of
# few branches, counting would take longer than the work on a line of pixels.
borrowing_part = _decorator(_nrt=False)

_SAID = mmap(-1, 1)  # Threads and forked processes share it, so that only one of them prints the message.


def _say_compiling() -> None:
    if not _SAID[0]:
        _SAID[0] = 1
        _LOG.info("compiling loops for this machine, which takes seconds; later runs find them.", extra={"shown": True})


@cache
def _warn_of_no_cache() -> None:
    _LOG.warning(
        "no folder can keep compiled loops: every run compiles them anew. Set NUMBA_CACHE_DIR to such a folder."
    )


class _StampedCache(FunctionCache):  # type: ignore[misc]
    """numba's cache on disk, extended to notice new options and changes in other files."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            overload = super().load_overload(sig, target_context)
        except (AttributeError, ImportError):  # The index holds arguments of a class that has since been renamed.
            self.flush()
            overload = None
        if overload is None:
            _say_compiling()
        return overload

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        parts = _parts(self._py_func)
        folders = {Path(part.__code__.co_filename).parent for part in parts}
        return (*super()._index_key(sig, codegen), *map(_stamp, sorted(folders)), _hash_values(parts))


def _parts(function: Callable[..., Any]) -> set[Callable[..., Any]]:
    """Return a kernel and all compiled functions that it calls, directly or not."""
    parts = set[Callable[..., Any]]()
    waiting = [function]
    while waiting:
        part = waiting.pop()
        parts.add(part)
        values = map(part.__globals__.get, part.__code__.co_names)
        waiting += [value.py_func for value in values if isinstance(value, Dispatcher) and value.py_func not in parts]
    return parts


def _hash_values(parts: set[Callable[..., Any]]) -> str:
    """Return the sha256 of the global values that the parts use, which the compiler takes as constants."""
    lines = {
        f"{part.__module__}.{name} {_describe(part.__globals__.get(name))}"
        for part in parts
        for name in part.__code__.co_names
    }
    return sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, tuple):
        return str([_describe(item) for item in value])
    return f"{type(value)} {value!r}" if isinstance(value, (int, float, str, np.generic)) else ""


@cache
def _stamp(folder: Path) -> str:
    """Return the sha256 of a folder's modules and of this one."""
    sources = [*sorted(folder.glob("*.py")), Path(__file__)]
    return sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
