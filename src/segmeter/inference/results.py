"""Brings labels, probabilities and losses to the host, whole or in bands of lines, while the device computes on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segmeter.bridge.arrays import to_numpy
from segmeter.bridge.decode import ProbsDtype
from segmeter.bridge.host_copier import HostCopier, PendingArray, Uploader, open_transport
from segmeter.data.files.array import LazyArray
from segmeter.data.sample import Sample
from segmeter.errors import DataError, InputError, OverflowedError, RunError
from segmeter.inference.prefetch import one_behind
from segmeter.losses.additive import AdditiveLoss, loss_terms
from segmeter.models.card import ModelCard
from segmeter.models.ensemble import merge_classes
from segmeter.progress import Stages

_AT_ONCE = 1 << 22  # logits whose loss is computed at a time


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One case with the model's output for it, all on the host.

    `labels` is (H, W), multilabel (K, H, W), uint8 or uint16. `probs` is (num_channels, H, W), or None if nobody asked
    for it. `instances` is (H, W) int32, 0 where there is no object; only models that find objects have it. `loss` is
    that of the raw logits, or None without a loss or a target: for an `AdditiveLoss` the sum and the
    denominator of each part, (P, 2) float64; for any other its value.
    """

    sample: Sample
    labels: NDArray[Any]
    probs: NDArray[Any] | None = None
    loss: NDArray[Any] | None = None
    instances: NDArray[Any] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Band:
    """Some lines of a case, all on the host.

    `labels` is (h, W), multilabel (K, h, W), of the lines from `top` on; `probs` (num_channels, h, W) or None; `target`
    like `labels`, or None without a reference.
    """

    top: int
    labels: NDArray[Any]
    probs: NDArray[Any] | None
    target: NDArray[Any] | None


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

        A few lines are computed at a time, as a loss takes several times the memory of its logits.
        """
        wide = target.astype(np.int32) if target.dtype == np.uint16 else target  # torch compares and indexes no uint16
        step = max(1, _AT_ONCE // (logits.shape[1] * logits.shape[3]))
        for top in range(0, logits.shape[2], step):
            lines = slice(top, top + step)
            terms = loss_terms(self._loss, logits[:, :, lines], self._upload([wide[..., lines, :]]))
            self._terms = terms if self._terms is None else self._terms + terms

    def terms(self) -> NDArray[np.float64] | None:
        """Return sum and denominator of each part, (P, 2), of all bands; None if there were none."""
        return None if self._terms is None else to_numpy(self._terms)


def sums_by_bands(loss: object) -> TypeGuard[AdditiveLoss]:
    """Tell whether a loss is known to be a sum over pixels, so that its bands add up to that of the whole image."""
    return isinstance(loss, AdditiveLoss) and loss.adds_over_pixels


class Outbox:
    """Copies the results of each batch to the host while the device continues; nothing waits until a case is taken.

    Parameters
    ----------
    device
        Where the logits are.
    card
        What the model gives.
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
        card: ModelCard,
        *,
        threshold: float,
        probs: ProbsDtype | None = None,
        stages: Stages | None = None,
    ) -> None:
        self.stages = stages or Stages()
        transport = open_transport(device)
        self.overlaps = not transport.immediate
        self._copier = HostCopier(device=device, transport=transport)
        self._card, self._threshold, self._probs = card, threshold, probs
        self._class_map = torch.tensor(card.class_map, device=device) if card.class_map else None

    def send(
        self, group: Sequence[Sample], logits: Tensor, losses: Sequence[Tensor | None] | None
    ) -> Iterator[Prediction]:
        """Send a batch, and return an iterator over its cases, in their order.

        Parameters
        ----------
        group
            The cases.
        logits : (B, num_channels, H, W)
            One per case; may be dropped or overwritten when this returns and `overlaps`.
        losses
            One per case, of one shape, None where a case has none; or None for no losses at all.

        Raises
        ------
        OverflowedError
            When a case is taken whose logits are not finite; those before it come first.
        """
        first, known = group[0].case_id, [loss is not None for loss in losses or [None] * len(group)]
        kept = [loss for loss in losses or () if loss is not None]
        with self.stages.timed("transfer"):
            objects = None
            if self._card.output == "instances":
                objects = self._copier.submit(logits[:, 1], case_id=first)
                logits = logits[:, 0]
            labels = self._send_labels(logits, first)
            values = self._copier.submit(torch.stack(kept), case_id=first) if kept else None
            # one by one, as they are the largest results of all: where nothing overlaps, one case is in memory
            probs = (self._send_probs(case[None], sample.case_id) for sample, case in zip(group, logits, strict=True))
            waiting = iter(list(probs)) if self.overlaps else probs
            return self._take(group, labels, values, known, waiting, objects)

    def _take(
        self,
        group: Sequence[Sample],
        labels: PendingArray,
        losses: PendingArray | None,
        known: Sequence[bool],
        probs: Iterator[PendingArray | None],
        objects: PendingArray | None,
    ) -> Iterator[Prediction]:
        rows, numbered = labels.rows(), None if objects is None else objects.rows()
        values = iter(()) if losses is None else losses.rows()
        for sample, has_loss in zip(group, known, strict=True):
            found, found_probs = self._arrived(rows, probs, sample.case_id, sample.image)
            with self.stages.timed("transfer"):
                loss = next(values) if has_loss else None
                instances = None if numbered is None else next(numbered)
            yield Prediction(sample=sample, labels=found, probs=found_probs, loss=loss, instances=instances)

    def decode(
        self, bands: Iterator[Tensor], *, case_id: str, target: LazyArray | None, loss: BandLoss | None
    ) -> Iterator[Band]:
        """Decode each band of a case on the device, and yield it when the next one has been computed.

        Parameters
        ----------
        bands
            Logits (num_channels, h, W), from top to bottom; each may be overwritten when the next one is asked for.
        target
            The case's reference, whose lines are read beside.
        loss
            Adds up the loss, if there is one and a target.

        Raises
        ------
        OverflowedError
            Logits are not finite; the bands before come first.
        DataError
            The loss does not take the target of the case.
        """
        for top, labels, probs, lines in one_behind(self._send_bands(bands, case_id, target, loss)):
            found, found_probs = self._arrived(labels.rows(), iter([probs]), case_id)
            yield Band(top=top, labels=found, probs=found_probs, target=lines)

    def _send_bands(
        self, bands: Iterator[Tensor], case_id: str, target: LazyArray | None, loss: BandLoss | None
    ) -> Iterator[tuple[int, PendingArray, PendingArray | None, NDArray[Any] | None]]:
        top = 0
        for band in bands:
            logits, bottom = band[None], top + band.shape[1]
            lines = None if target is None else target.read(top, bottom)
            with self.stages.timed("transfer"):
                probs = self._send_probs(logits, case_id)
                labels = self._send_labels(logits, case_id)
            if loss is not None and lines is not None:
                try:
                    loss.add(self.merged(logits), lines)
                except InputError as error:
                    raise DataError(f"case {case_id!r}: {error}") from error
            yield top, labels, probs, lines
            top = bottom

    def _arrived(
        self,
        labels: Iterator[NDArray[Any]],
        probs: Iterator[PendingArray | None],
        case_id: str,
        image: NDArray[Any] | None = None,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Wait for the next labels and probabilities."""
        with self.stages.timed("transfer"):
            try:
                found = next(labels)
            except InputError as error:
                if self._card.output != "logits":
                    raise RunError(f"inference: case {case_id!r}: {error}") from error
                raise not_finite(case_id, image) from None
            pending = next(probs)
            found_probs = None if pending is None else next(pending.rows())
        self.stages.crossed("to the host", found.nbytes + (0 if found_probs is None else found_probs.nbytes))
        return found, found_probs

    def merged(self, logits: Tensor) -> Tensor:
        """Merge the logits of a model's own classes into those of the data's classes."""
        card = self._card
        return merge_classes(logits, card.class_map, card.spec.task) if card.class_map else logits

    def _send_labels(self, logits: Tensor, case_id: str) -> PendingArray:
        spec = self._card.spec
        return self._copier.submit_labels(
            logits,
            case_id=case_id,
            task=spec.task,
            **spec.counting,
            threshold=self._threshold,
            class_map=self._class_map,
        )

    def _send_probs(self, logits: Tensor, case_id: str) -> PendingArray | None:
        if self._probs is None:
            return None
        task = self._card.spec.task
        return self._copier.submit_probs(self.merged(logits), case_id=case_id, task=task, dtype=self._probs)


def not_finite(case_id: str, image: NDArray[Any] | None = None) -> OverflowedError:
    """Make the error for a case whose logits are NaN or infinite; it describes the image if that is available."""
    values = "" if image is None else f"Its image has {image.dtype} values from {image.min():g} to {image.max():g}. "
    return OverflowedError(
        f"inference: the logits of case {case_id!r} hold NaN or infinity, so it has no labels. {values}An overflow "
        "goes away with inference.precision=float32; if this does not, the model's weights are at fault.",
        case_id=case_id,
    )
