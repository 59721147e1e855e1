"""logits (B, K, ...) -> the winning channel and the range of each pixel, in as few passes as the device allows."""

import torch
from torch import Tensor

BLOCK = 32768  # pixels: below torch's threading grain, and the four rows in use stay in the L2 cache


def winners(logits: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Find the largest channel of each pixel, the first one among equals.

    Parameters
    ----------
    logits
        (B, K, N), floating.
    dtype
        torch.uint8 or torch.uint16, of the winners.

    Returns
    -------
    winners (B, N) of `dtype`; lows and highs (B, N) of the dtype of `logits`: the range over the channels, which is
    NaN or infinite where a channel is.
    """
    if logits.device.type != "cpu":
        highs, found = logits.max(dim=1)
        return found.to(dtype), logits.amin(dim=1), highs
    return _winners_cpu(logits, dtype)


def _winners_cpu(logits: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    batch, channels, pixels = logits.shape
    working = torch.uint8 if dtype == torch.uint8 else torch.int32
    found = torch.zeros(batch, pixels, dtype=working)
    lows, highs = logits[:, 0].clone(), logits[:, 0].clone()
    for image in range(batch):
        for start in range(0, pixels, BLOCK):
            part = slice(start, start + BLOCK)
            label, low, high = found[image, part], lows[image, part], highs[image, part]
            for channel in range(1, channels):
                row = logits[image, channel, part]
                label.masked_fill_(row > high, channel)
                torch.maximum(high, row, out=high)
                torch.minimum(low, row, out=low)
    return found.to(dtype), lows, highs
