"""Bands of logits on the device -> bands of labels, probabilities and the loss on the host, one band behind."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segmeter.bridge.host_copier import PendingArray
from segmeter.bridge.to_numpy import to_numpy
from segmeter.bridge.uploader import Uploader
from segmeter.data.files.array import LazyArray
from segmeter.errors import DataError, InputError
from segmeter.inference.async_results import Outbox, not_finite
from segmeter.losses.additive import AdditiveLoss, loss_terms

_AT_ONCE = 1 << 22  # logits whose loss is computed at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class Band:
    """Some rows of a case, all on the host.

    `labels` is (h, W), multilabel (K, h, W), of rows from `top` on; `probs` (num_channels, h, W) float32 or None;
    `target` like `labels`, or None without a reference.
    """

    top: int
    labels: NDArray[Any]
    probs: NDArray[np.float32] | None
    target: NDArray[Any] | None


def sums_by_bands(loss: object) -> TypeGuard[AdditiveLoss]:
    """Whether a loss is known to be a sum over pixels, which bands give as the whole image does."""
    return isinstance(loss, AdditiveLoss) and loss.adds_over_pixels


class BandLoss:
    """Adds up the loss of a case band by band.

    Parameters
    ----------
    loss
        Its sums and denominators add over pixels.
    device
        Where the logits are.
    """

    def __init__(self, loss: AdditiveLoss, device: torch.device) -> None:
        self._loss = loss
        self._upload = Uploader(device)
        self._terms: Tensor | None = None

    @torch.no_grad()
    def add(self, logits: Tensor, target: NDArray[Any]) -> None:
        """Add a band: logits (1, num_channels, h, W), and its target without a batch axis.

        Some rows at a time, as a loss takes several times the memory of its logits.
        """
        wide = target.astype(np.int32) if target.dtype == np.uint16 else target  # torch compares and indexes no uint16
        step = max(1, _AT_ONCE // (logits.shape[1] * logits.shape[3]))
        for top in range(0, logits.shape[2], step):
            rows = slice(top, top + step)
            terms = loss_terms(self._loss, logits[:, :, rows], self._upload([wide[..., rows, :]]))
            self._terms = terms if self._terms is None else self._terms + terms

    def terms(self) -> NDArray[np.float64] | None:
        """The sum and the denominator of each part, (P, 2), of all bands together; None where there were none."""
        return None if self._terms is None else to_numpy(self._terms)

    def total(self) -> Tensor | None:
        """The same, left on the device."""
        return self._terms


def decode_bands(
    bands: Iterator[Tensor], outbox: Outbox, *, case_id: str, target: LazyArray | None, loss: BandLoss | None
) -> Iterator[Band]:
    """Decode each band on the device, and yield it when the next one has been computed.

    Parameters
    ----------
    bands
        Logits (num_channels, h, W), from top to bottom; each may be overwritten when the next one is asked for.
    outbox
        Brings results to the host.
    target
        The case's reference, whose rows are read beside.
    loss
        Adds up the loss, where there is one and a target.

    Raises
    ------
    OverflowedError
        Logits are not finite; the bands before come first.
    DataError
        The loss does not take the target of the case.
    """
    waiting: tuple[int, PendingArray, PendingArray | None, NDArray[Any] | None] | None = None
    top = 0
    for band in bands:
        logits, height = band[None], band.shape[1]
        rows = None if target is None else target.read(top, top + height)
        labels, probs = outbox.send_band(logits, case_id)
        if loss is not None and rows is not None:
            try:
                loss.add(logits, rows)
            except InputError as error:
                raise DataError(f"case {case_id!r}: {error}") from error
        if waiting is not None:
            yield _take(outbox, *waiting)
        waiting = (top, labels, probs, rows)
        top += height
    if waiting is not None:
        yield _take(outbox, *waiting)


def _take(
    outbox: Outbox, top: int, labels: PendingArray, probs: PendingArray | None, target: NDArray[Any] | None
) -> Band:
    with outbox.stages.timed("transfer"):
        try:
            found = next(labels.rows())
        except InputError:
            raise not_finite(labels.case_id) from None
        found_probs = None if probs is None else next(probs.rows())
    outbox.count(found, found_probs)
    return Band(top=top, labels=found, probs=found_probs, target=target)
