"""Tensors that lie in memory in any way a view can, and guard zones around whatever an operation allocates."""

import math

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ZONE = 1 << 14  # bytes before and after an output
ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "clone"}


def draw_strides(shape, rng):
    """Strides of a crop: axes in any order in memory, with steps and margins, some of them expanded.

    One draw in ten has arbitrary strides, which may overlap.
    """
    if rng.random() < 0.1:
        return tuple(int(rng.integers(0, max(2, math.prod(shape)))) for _ in shape)
    order = [*range(len(shape))]
    if rng.random() < 0.5:
        order = [*order[:1], *order[2:], *order[1:2]] if rng.random() < 0.5 else rng.permutation(order)
    strides, unit = [0] * len(shape), 1
    for axis in reversed(order):
        if rng.random() < 0.05:
            continue  # expanded
        step = int(rng.choice([1, 1, 1, 2, 3]))
        strides[axis] = unit * step
        unit *= shape[axis] * step + int(rng.choice([0, 0, 1, 4]))
    return tuple(strides)


def laid_out(shape, rng, outside, inside, device="cpu"):
    """A view in a memory that is `outside` elsewhere; `inside` makes n values of it."""
    strides, before, after = draw_strides(shape, rng), 7, 5
    size = before + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) + 1 + after
    places = torch.arange(size).as_strided(shape, strides, before).unique()
    values = inside(len(places))
    memory = torch.full((size,), outside, dtype=values.dtype)
    memory[places] = values
    return memory.to(device).as_strided(shape, strides, before)


class GuardZones(TorchDispatchMode):
    """Puts each new tensor between two zones, filled with ones down to the last bit, which `check` finds untouched.

    The tensor itself is filled alike where it would be uninitialised: that is NaN, -1, or the largest label.
    """

    def __init__(self):
        super().__init__()
        self._kept = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        return self._guard(found, copied=name == "clone") if name in ALLOCATIONS else found

    def _guard(self, found, *, copied):
        if not found.numel():
            return found
        zone, count = ZONE // found.element_size(), found.untyped_storage().nbytes() // found.element_size()
        memory = torch.full((2 * ZONE + count * found.element_size(),), 255, dtype=torch.uint8, device=found.device)
        guarded = memory.view(found.dtype).as_strided(found.shape, found.stride(), zone)
        if copied:
            guarded.copy_(found)
        self._kept.append(memory)
        return guarded

    def check(self):
        """Fail where anything was written into a zone; give the number of tensors that were guarded."""
        for memory in self._kept:
            assert (memory[:ZONE] == 255).all(), "written before an output"
            assert (memory[-ZONE:] == 255).all(), "written after an output"
        done, self._kept = len(self._kept), []
        return done
