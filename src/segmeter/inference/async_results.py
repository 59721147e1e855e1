"""Logits of a batch -> labels, probabilities and losses on the host, while the device goes on with the next batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segmeter.bridge.host_copier import HostCopier, PendingArray
from segmeter.bridge.transport import open_transport
from segmeter.classes import ClassSpec
from segmeter.data.sample import Sample
from segmeter.errors import InputError, OverflowedError
from segmeter.progress import Stages

_BATCHES = 2  # one that is taken while the other is computed


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One case with the model's output for it, all on the host.

    `labels` is (H, W), multilabel (K, H, W), uint8 or uint16; `probs` is (num_channels, H, W) float32, and `loss` that
    of the raw logits, both None where they were not asked for (the loss also where there is no target). Of an
    `AdditiveLoss` it is the sum and the denominator of each part, (P, 2) float64; of any other, what that gave.
    """

    sample: Sample
    labels: NDArray[Any]
    probs: NDArray[np.float32] | None = None
    loss: NDArray[Any] | None = None


class Outbox:
    """Copies what is kept of each batch to the host through pinned memory; nothing waits until a case is taken.

    Take batches in the order in which they were sent, with at most one other pending. A context manager.

    Parameters
    ----------
    device
        Where the logits are.
    spec
        What the channels mean.
    threshold
        Binary and multilabel: a probability above it is the class.
    batch_size
        Cases of a batch, at most; with `probs` it bounds the memory.
    probs
        Whether probabilities are kept.
    stages
        Where the time and the bytes of transfers are added up.
    """

    def __init__(
        self,
        device: torch.device,
        spec: ClassSpec,
        *,
        threshold: float,
        batch_size: int,
        probs: bool,
        stages: Stages | None = None,
    ) -> None:
        self.stages = stages or Stages()
        transport = open_transport(device)
        self.overlaps = not transport.immediate
        self._spec, self._threshold, self._keep_probs = spec, threshold, probs
        # three rings, as a slot is as large as the largest result in it; without a result they take no memory
        self._labels, self._losses = (HostCopier(device=device, slots=_BATCHES, transport=transport) for _ in range(2))
        self._probs = HostCopier(device=device, slots=_BATCHES * batch_size, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for copier in (self._labels, self._losses, self._probs):
            copier.__exit__(kind, error, traceback)

    def send(
        self, group: Sequence[Sample], logits: Tensor, losses: Sequence[Tensor | None] | None
    ) -> Iterator[Prediction]:
        """Send a batch, and return an iterator over its cases.

        Parameters
        ----------
        group
            The cases.
        logits : (B, num_channels, H, W)
            One per case; may be dropped or overwritten when this returns and `overlaps`.
        losses
            One per case, of one shape, None where a case has none; or None for no losses at all.

        Yields
        ------
        The cases in their order.

        Raises
        ------
        OverflowedError
            When a case is taken whose logits are not finite; those before it come first.
        """
        with self.stages.timed("transfer"):
            labels = self._send_labels(logits, _first(group))
        kept = [loss for loss in losses or () if loss is not None]
        values = self._losses.submit(torch.stack(kept), case_id=_first(group)) if kept else None
        probs = self._send_probs(group, logits) if self._keep_probs else None
        if probs is not None and self.overlaps:
            probs = iter(list(probs))
        known = [loss is not None for loss in losses or [None] * len(group)]
        return self._take(group, labels, values, known, probs)

    def send_band(self, logits: Tensor, case_id: str) -> tuple[PendingArray, PendingArray | None]:
        """Send labels, and probabilities where they are kept, of some rows of one case: logits (1, K, h, W)."""
        with self.stages.timed("transfer"):
            probs = None
            if self._keep_probs:
                probs = self._probs.submit_probs(logits, case_id=case_id, task=self._spec.task)
            return self._send_labels(logits, case_id), probs

    def _send_labels(self, logits: Tensor, case_id: str) -> PendingArray:
        spec = self._spec
        return self._labels.submit_labels(
            logits,
            case_id=case_id,
            task=spec.task,
            num_classes=spec.num_classes,
            ignore_index=spec.ignore_index,
            threshold=self._threshold,
        )

    def _send_probs(self, group: Sequence[Sample], logits: Tensor) -> Iterator[PendingArray]:
        """One by one, as probabilities are the largest thing of all: where nothing overlaps, one case is in memory."""
        for sample, case in zip(group, logits, strict=True):
            yield self._probs.submit_probs(case[None], case_id=sample.case_id, task=self._spec.task)

    def _take(
        self,
        group: Sequence[Sample],
        labels: PendingArray,
        losses: PendingArray | None,
        known: Sequence[bool],
        probs: Iterator[PendingArray] | None,
    ) -> Iterator[Prediction]:
        rows = labels.rows()
        values = iter(()) if losses is None else losses.rows()
        for sample, has_loss in zip(group, known, strict=True):
            with self.stages.timed("transfer"):
                try:
                    case_labels = next(rows)
                except InputError:
                    raise not_finite(sample.case_id, sample.image) from None
                case_probs = None if probs is None else next(next(probs).rows())
                loss = next(values) if has_loss else None
            self.count(case_labels, case_probs)
            yield Prediction(sample=sample, labels=case_labels, probs=case_probs, loss=loss)

    def count(self, labels: NDArray[Any], probs: NDArray[Any] | None) -> None:
        """Note the bytes of what has arrived."""
        self.stages.crossed("to the host", labels.nbytes + (0 if probs is None else probs.nbytes))


def not_finite(case_id: str, image: NDArray[Any] | None = None) -> OverflowedError:
    """What is said of a case whose logits are NaN or infinite, and of its image where that is at hand."""
    values = "" if image is None else f"Its image has {image.dtype} values from {image.min():g} to {image.max():g}. "
    return OverflowedError(
        f"inference: the logits of case {case_id!r} hold NaN or infinity, so it has no labels. {values}An overflow "
        "goes away with inference.precision=float32; if this does not, the model's weights are at fault.",
        case_id=case_id,
    )


def _first(group: Sequence[Sample]) -> str:
    return group[0].case_id
