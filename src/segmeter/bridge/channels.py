"""logits (B, K, N) -> the winning channel of each pixel, and whether all of them were finite, in one pass.

torch's own argmax over a strided axis is slow on the CPU, as it goes pixel by pixel. Here whole rows of pixels are
compared channel after channel, in blocks that stay in the cache; no value is read from memory twice.
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

BLOCK = 32768  # pixels: the largest that torch does not split among threads itself; its buffers fit the L2 cache

Range = tuple[Tensor, Tensor]


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
    or infinite where a channel is. On the CPU None instead, where all are known to be finite.
    """
    if logits.device.type != "cpu":
        highs, found = logits.max(dim=1)
        return found.to(dtype), (logits.amin(dim=1), highs)
    found, finite = _winners_cpu(logits, dtype)
    return found, None if finite else torch.aminmax(logits.contiguous(), dim=1)


def _winners_cpu(logits: Tensor, dtype: torch.dtype) -> tuple[Tensor, bool]:
    """Share the blocks among as many threads as torch would use; the operations below release the GIL."""
    batch, _, pixels = logits.shape
    found = torch.empty(batch, pixels, dtype=dtype)
    parts = [(image, start) for image in range(batch) for start in range(0, pixels, BLOCK)]
    threads = min(torch.get_num_threads(), len(parts))
    inference = torch.is_inference_mode_enabled()  # a property of the thread, which the workers must share

    def work(first: int) -> bool:
        with torch.inference_mode(inference):
            block = _Block(min(BLOCK, pixels), torch.promote_types(logits.dtype, torch.float32))
            spans = ((image, slice(start, start + BLOCK)) for image, start in parts[first::threads])
            finite = [block.decode(logits[image, :, span], found[image, span]) for image, span in spans]
        return all(finite)

    if threads < 2:
        return found, work(0) if parts else True
    with ThreadPoolExecutor(threads) as pool:
        return found, all(pool.map(work, range(threads)))


class _Block:
    """The buffers of one thread.

    Comparisons write floats and the labels are counted in floats, because torch does only such same-dtype
    operations in vector registers; a float32 counts up to 2**24.
    """

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        self.low, self.high, self.above, self.label = torch.empty(4, size, dtype=dtype).unbind()

    def decode(self, rows: Tensor, found: Tensor) -> bool:
        """Write the winners of (K, n) `rows` to `found` (n,); return False if a value may not be finite."""
        size = found.shape[0]
        low, high, above, label = (buffer[:size] for buffer in (self.low, self.high, self.above, self.label))
        low.copy_(rows[0])
        high.copy_(low)
        label.zero_()
        for channel in range(1, rows.shape[0]):
            row = rows[channel].to(low.dtype).contiguous()
            torch.gt(row, high, out=above)
            torch.maximum(label, above.mul_(channel), out=label)
            torch.maximum(high, row, out=high)
            torch.minimum(low, row, out=low)
        found.copy_(label)
        # maximum and minimum hand NaN on; a sum that overflows sends finite values to the exact look, no more
        return bool((low.sum() + high.sum()).isfinite())
