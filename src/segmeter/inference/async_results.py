"""Brings labels, probabilities and losses of a batch to the host while the device goes on with the next batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from segmeter.bridge.decode import ProbsDtype
from segmeter.bridge.host_copier import HostCopier, PendingArray, open_transport
from segmeter.classes import ClassSpec
from segmeter.data.sample import Sample
from segmeter.errors import InputError, OverflowedError
from segmeter.progress import Stages


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One case with the model's output for it, all on the host.

    `labels` is (H, W), multilabel (K, H, W), uint8 or uint16; `probs` is (num_channels, H, W), and `loss` that
    of the raw logits, both None where they were not asked for (the loss also where there is no target). Of an
    `AdditiveLoss` it is the sum and the denominator of each part, (P, 2) float64; of any other, what that gave.
    """

    sample: Sample
    labels: NDArray[Any]
    probs: NDArray[Any] | None = None
    loss: NDArray[Any] | None = None


class Outbox:
    """Copies the results of each batch to the host while the device goes on; nothing waits until a case is taken.

    Parameters
    ----------
    device
        Where the logits are.
    spec
        What the channels mean.
    threshold
        Binary and multilabel: a probability above it is the class.
    probs
        The dtype in which probabilities are kept, or None to keep none.
    stages
        Where the time and the bytes of transfers are added up.
    """

    def __init__(
        self,
        device: torch.device,
        spec: ClassSpec,
        *,
        threshold: float,
        probs: ProbsDtype | None = None,
        stages: Stages | None = None,
    ) -> None:
        self.stages = stages or Stages()
        transport = open_transport(device)
        self.overlaps = not transport.immediate
        self._copier = HostCopier(device=device, transport=transport)
        self._spec, self._threshold, self._probs = spec, threshold, probs

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
        first, known = group[0].case_id, [loss is not None for loss in losses or [None] * len(group)]
        kept = [loss for loss in losses or () if loss is not None]
        with self.stages.timed("transfer"):
            labels = self._send_labels(logits, first)
            values = self._copier.submit(torch.stack(kept), case_id=first) if kept else None
            # one by one, as they are the largest results of all: where nothing overlaps, one case is in memory
            probs = (self._send_probs(case[None], sample.case_id) for sample, case in zip(group, logits, strict=True))
            return self._take(group, labels, values, known, iter(list(probs)) if self.overlaps else probs)

    def send_band(self, logits: Tensor, case_id: str) -> tuple[PendingArray, PendingArray | None]:
        """Send labels, and probabilities where they are kept, of some rows of one case: logits (1, K, h, W)."""
        with self.stages.timed("transfer"):
            probs = self._send_probs(logits, case_id)
            return self._send_labels(logits, case_id), probs

    def count(self, labels: NDArray[Any], probs: NDArray[Any] | None) -> None:
        """Note the bytes of what has arrived."""
        self.stages.crossed("to the host", labels.nbytes + (0 if probs is None else probs.nbytes))

    def _send_labels(self, logits: Tensor, case_id: str) -> PendingArray:
        spec = self._spec
        return self._copier.submit_labels(
            logits,
            case_id=case_id,
            task=spec.task,
            num_classes=spec.num_classes,
            ignore_index=spec.ignore_index,
            threshold=self._threshold,
        )

    def _send_probs(self, logits: Tensor, case_id: str) -> PendingArray | None:
        if self._probs is None:
            return None
        return self._copier.submit_probs(logits, case_id=case_id, task=self._spec.task, dtype=self._probs)

    def _take(
        self,
        group: Sequence[Sample],
        labels: PendingArray,
        losses: PendingArray | None,
        known: Sequence[bool],
        probs: Iterator[PendingArray | None],
    ) -> Iterator[Prediction]:
        rows = labels.rows()
        values = iter(()) if losses is None else losses.rows()
        for sample, has_loss in zip(group, known, strict=True):
            with self.stages.timed("transfer"):
                try:
                    case_labels = next(rows)
                except InputError:
                    raise not_finite(sample.case_id, sample.image) from None
                pending = next(probs)
                case_probs = None if pending is None else next(pending.rows())
                loss = next(values) if has_loss else None
            self.count(case_labels, case_probs)
            yield Prediction(sample=sample, labels=case_labels, probs=case_probs, loss=loss)


def not_finite(case_id: str, image: NDArray[Any] | None = None) -> OverflowedError:
    """The error for a case whose logits are NaN or infinite; it describes the image where that is at hand."""
    values = "" if image is None else f"Its image has {image.dtype} values from {image.min():g} to {image.max():g}. "
    return OverflowedError(
        f"inference: the logits of case {case_id!r} hold NaN or infinity, so it has no labels. {values}An overflow "
        "goes away with inference.precision=float32; if this does not, the model's weights are at fault.",
        case_id=case_id,
    )
