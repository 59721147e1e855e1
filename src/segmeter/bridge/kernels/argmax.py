"""logits (B, K, N) -> the winning channel of each pixel, and whether all of them were finite, in one pass.

torch's own argmax over the channels is slow on the CPU in either layout, as it goes pixel by pixel. Here numba kernels
read each value once, from where the model left it: by channels in rows of pixels, or, in channels_last, pixel by pixel.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

SMALL = 1 << 16  # logits: up to here torch's argmax is done before the numba kernels would be loaded
ALONE = 1 << 22  # logits: up to here one thread needs a few milliseconds, less than a second one may have to wait for
PART = 1 << 18  # logits that a thread takes at a time; as float32 they fit the L2 cache
_READ = (torch.float32, torch.float64)  # the others are widened part by part, which is exact

Range = tuple[Tensor, Tensor]
Kernel = Callable[[np.ndarray, int, int, np.ndarray], bool]


def winners(logits: Tensor, dtype: torch.dtype) -> tuple[Tensor, Range | None]:
    """Find the largest channel of each pixel, the first one among equals.

    Parameters
    ----------
    logits
        (B, K, N), floating, K up to 65536.
    dtype
        torch.uint8 or torch.uint16, of the winners.

    Returns
    -------
    Winners (B, N) of `dtype`; and the lowest and highest channel of each pixel, (B, N) of the dtype of `logits`: NaN
    or infinite where a channel is. On the CPU None instead, where all of many are known to be finite.
    """
    if logits.device.type != "cpu" or logits.numel() <= SMALL:
        highs, found = logits.max(dim=1)
        return found.to(dtype), (logits.amin(dim=1), highs)
    found, finite = _winners_cpu(logits, dtype)
    return found, None if finite else torch.aminmax(logits.contiguous(), dim=1)


def _winners_cpu(logits: Tensor, dtype: torch.dtype) -> tuple[Tensor, bool]:
    """Decode in as many threads as torch would use; torch and the kernels release the GIL.

    Each thread takes the next part when it is done with one, as torch's own threads may spin for a while after its last
    operation, and whoever has to share a core with one of them is slower.
    """
    batch, channels, pixels = logits.shape
    found = torch.empty(batch, pixels, dtype=dtype)
    size = max(1, PART // channels)
    parts = [(image, slice(start, start + size)) for image in range(batch) for start in range(0, pixels, size)]
    helpers = 0 if logits.numel() <= ALONE else min(torch.get_num_threads(), len(parts)) - 1
    waiting = deque(parts)

    def work() -> bool:
        decode, finite = _Decoder(logits, min(size, pixels)), True
        while waiting:
            try:
                image, span = waiting.popleft()
            except IndexError:  # another thread took the last one
                break
            finite &= decode(logits[image, :, span], found[image, span].numpy())
        return finite

    if helpers < 1:
        return found, work()
    with ThreadPoolExecutor(helpers) as pool:
        others = [pool.submit(work) for _ in range(helpers)]
        finite = work()
        return found, all(other.result() for other in others) and finite


class _Decoder:
    """Runs the kernel that fits the layout, over the logits where they lie or over a copy in its own buffer."""

    def __init__(self, logits: Tensor, size: int) -> None:
        from segmeter.bridge.kernels import _argmax_numba as kernels  # numba: only where there is much to decode

        channels = logits.shape[1]
        self._across = logits.stride(1) == 1 and channels > 1
        self._kernel: Kernel = kernels.along_channels if self._across else kernels.along_pixels
        adjacent = self._across or logits.stride(2) == 1
        self._buffer = None
        if not adjacent or logits.dtype not in _READ:
            wide = torch.promote_types(logits.dtype, torch.float32)
            self._buffer = torch.empty((size, channels) if self._across else (channels, size), dtype=wide)

    def __call__(self, part: Tensor, found: np.ndarray) -> bool:
        """Write the winners of (K, n) to `found` (n,); return whether all values are finite."""
        channels, size = part.shape
        lines = part.t() if self._across else part  # adjacent along the last axis
        if self._buffer is not None:
            room = self._buffer[:size] if self._across else self._buffer[:, :size]
            lines = room.copy_(lines)
        stride = lines.stride(0)
        values = lines.as_strided(((len(lines) - 1) * stride + lines.shape[1],), (1,))
        return self._kernel(values.numpy(), stride, channels, found)
