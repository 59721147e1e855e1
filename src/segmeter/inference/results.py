"""Brings labels, probabilities and losses to the host, whole or in bands of lines, while the device keeps computing."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TypeGuard, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segmeter.bridge.arrays import indexable, to_numpy
from segmeter.bridge.decode import ProbsDtype
from segmeter.bridge.host_copier import HostCopier, PendingArray, Uploader, open_transport
from segmeter.data.files.array import LazyArray
from segmeter.data.sample import Sample
from segmeter.errors import DataError, InputError, OverflowedError, RunError
from segmeter.losses.additive import AdditiveLoss, loss_terms
from segmeter.models.config import ModelCard
from segmeter.models.ensemble import merge_classes
from segmeter.progress import Stages

_AT_ONCE = 1 << 22  # the loss is computed for this many logits at a time

Item = TypeVar("Item")
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Arrived:
    """The model's output for a case, or for a band of lines, on the host.

    `labels` is (H, W), multilabel (K, H, W), uint8 or uint16. `probs` is (num_channels, H, W), or None if nobody asked
    for it. `instances` is (H, W) int32, 0 where there is no object; only models that find objects have it. `loss` is
    computed from the raw logits, and None without a loss or a target. For an `AdditiveLoss` it holds the sum and the
    denominator of each part, (P, 2) float64; for any other loss its value.
    """

    labels: NDArray[Any]
    probs: NDArray[Any] | None = None
    loss: NDArray[Any] | None = None
    instances: NDArray[Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Prediction(Arrived):
    """One case with the model's output for it, all on the host."""

    sample: Sample


@dataclass(frozen=True, kw_only=True, eq=False)
class Band(Arrived):
    """Some lines of a case, from line `top` on, with the same lines of its reference, or None without one."""

    top: int
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
        labels = indexable(target)
        step = max(1, _AT_ONCE // (logits.shape[1] * logits.shape[3]))
        for top in range(0, logits.shape[2], step):
            lines = slice(top, top + step)
            terms = loss_terms(self._loss, logits[:, :, lines], self._upload([labels[..., lines, :]]))
            self._terms = terms if self._terms is None else self._terms + terms

    def terms(self) -> NDArray[np.float64] | None:
        """Return the sum and the denominator of each part over all bands, (P, 2); None if there were no bands."""
        return None if self._terms is None else to_numpy(self._terms)


@contextmanager
def naming(case_id: str) -> Iterator[None]:
    """Name the case whose target a loss refuses within the block; the error becomes a DataError."""
    try:
        yield
    except InputError as error:
        raise DataError(f"case {case_id!r}: {error}") from error


def sums_by_bands(loss: object) -> TypeGuard[AdditiveLoss]:
    """Tell whether a loss is known to be a sum over pixels, so that bands add up to the loss of the whole image."""
    return isinstance(loss, AdditiveLoss) and loss.is_additive_over_pixels


class Outbox:
    """Copies the results of each batch to the host while the device continues; nothing waits until a case is taken.

    Parameters
    ----------
    device
        Where the logits are.
    card
        Describes the model's output.
    threshold
        Binary and multilabel: a class is present where its probability is above this.
    stages
        Where the time and the bytes of transfers are added up.
    probs
        The dtype in which probabilities are kept, or None to keep none.
    """

    def __init__(
        self,
        device: torch.device,
        card: ModelCard,
        *,
        threshold: float,
        stages: Stages,
        probs: ProbsDtype | None = None,
    ) -> None:
        self.stages = stages
        transport = open_transport(device)
        self._overlaps = not transport.immediate
        self._copier = HostCopier(device=device, transport=transport)
        self.card, self._threshold, self.probs = card, threshold, probs
        self._class_map = torch.tensor(card.class_map, device=device) if card.class_map else None

    def in_turn(self, sent: Iterable[Item]) -> Iterator[Item]:
        """Yield each sent batch once the next one has been sent, so that the device computes while the host works.

        If nothing can overlap, nothing is held back.
        """
        if not self._overlaps:
            yield from sent
            return
        newest: list[Item] = []
        try:
            for item in sent:
                yield from newest
                newest = [item]
        except Exception:  # the batch that was sent before comes first
            yield from newest
            raise
        yield from newest

    def decode(
        self, bands: Iterable[Tensor], *, case_id: str, target: LazyArray | None, loss: BandLoss | None
    ) -> Iterator[Band]:
        """Decode each band of a case on the device, and yield the bands in order.

        Parameters
        ----------
        bands
            Logits (num_channels, h, W), from top to bottom; each may be overwritten when the next one is asked for.
        target
            The case's reference, whose lines are read along with the bands.
        loss
            Adds up the loss, if there is one and a target.

        Raises
        ------
        OverflowedError
            Logits are not finite; the earlier bands are yielded first.
        DataError
            The loss does not take the target of the case.
        """

        def sent() -> Iterator[tuple[int, NDArray[Any] | None, Iterator[Arrived]]]:
            top = 0
            for band in bands:
                lines = None if target is None else target.read(top, top + band.shape[1])
                arriving = self.send([case_id], band[None])
                if loss is not None and lines is not None:
                    with naming(case_id):
                        loss.add(merge_classes(band[None], self.card), lines)
                yield top, lines, arriving
                top += band.shape[1]

        for top, lines, arriving in self.in_turn(sent()):
            yield Band(top=top, target=lines, **vars(next(arriving)))

    def send(
        self, case_ids: Sequence[str], logits: Tensor, losses: Sequence[Tensor | None] = (None,)
    ) -> Iterator[Arrived]:
        """Send a batch, or a band as a batch of one, and return an iterator over its cases, in their order.

        Parameters
        ----------
        case_ids
            The cases.
        logits : (B, num_channels, H, W)
            One per case; may be dropped or overwritten when this returns and copies overlap.
        losses
            One per case; None where a case has none.

        Raises
        ------
        OverflowedError
            When a case is taken whose logits are not finite; earlier cases come first.
        """
        card = self.card
        submit = self._copier.submit
        numbers: Iterator[NDArray[Any] | None] = repeat(None)
        probs: Iterator[PendingArray | None] = repeat(None)
        with self.stages.timed("transfer"):
            if card.output == "instances":
                numbers = submit(logits[:, 1], case_id=case_ids[0]).rows()
                logits = logits[:, 0]
            labels = self._copier.submit_labels(
                logits,
                case_id=case_ids[0],
                task=card.spec.task,
                threshold=self._threshold,
                class_map=self._class_map,
                **card.spec.counting,
            ).rows()
            pending_losses = [None if loss is None else submit(loss, case_id=case_ids[0]) for loss in losses]
            if (dtype := self.probs) is not None:
                # one by one, as probabilities are the largest results: if nothing overlaps, one case is in memory
                probs = (
                    self._copier.submit_probs(
                        merge_classes(case[None], card), case_id=case_id, task=card.spec.task, dtype=dtype
                    )
                    for case_id, case in zip(case_ids, logits, strict=True)
                )
                probs = iter(list(probs)) if self._overlaps else probs

        def arriving() -> Iterator[Arrived]:
            for case_id, pending_loss in zip(case_ids, pending_losses, strict=True):
                with self.stages.timed("transfer"):
                    try:
                        case_labels = next(labels)
                    except InputError as error:  # the check of the output failed
                        if card.output != "logits":
                            raise RunError(f"inference: case {case_id!r}: {error}") from error
                        raise OverflowedError(
                            f"inference: the logits of case {case_id!r} hold NaN or infinity, so it has no labels. An "
                            "overflow goes away with inference.precision=float32; if this does not, look for NaN in "
                            "the image, or take another checkpoint.",
                            case_id=case_id,
                        ) from None
                    pending_probs = next(probs)
                    case_probs = None if pending_probs is None else next(pending_probs.rows())
                    loss = None if pending_loss is None else pending_loss.result()
                    instances = next(numbers)
                n_bytes = case_labels.nbytes + (0 if case_probs is None else case_probs.nbytes)
                self.stages.crossed("to the host", n_bytes)
                yield Arrived(labels=case_labels, probs=case_probs, loss=loss, instances=instances)

        return arriving()
