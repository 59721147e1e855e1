"""Brings labels, probabilities and losses to the host, whole or in bands of lines, while the device computes on."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TypeGuard, TypeVar

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
from segmeter.losses.additive import AdditiveLoss, loss_terms
from segmeter.models.config import ModelCard
from segmeter.models.ensemble import merge_classes
from segmeter.progress import Stages

_AT_ONCE = 1 << 22  # logits whose loss is computed at a time

Item = TypeVar("Item")
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Arrived:
    """The model's output for a case, or for a band of lines, on the host.

    `labels` is (H, W), multilabel (K, H, W), uint8 or uint16. `probs` is (num_channels, H, W), or None if nobody asked
    for it. `instances` is (H, W) int32, 0 where there is no object; only models that find objects have it. `loss` is
    that of the raw logits, or None without a loss or a target: for an `AdditiveLoss` the sum and the
    denominator of each part, (P, 2) float64; for any other its value.
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
    """Some lines of a case: those from `top` on, with the same lines of its reference, or None without one."""

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
        wide = indexable(target)
        step = max(1, _AT_ONCE // (logits.shape[1] * logits.shape[3]))
        for top in range(0, logits.shape[2], step):
            lines = slice(top, top + step)
            terms = loss_terms(self._loss, logits[:, :, lines], self._upload([wide[..., lines, :]]))
            self._terms = terms if self._terms is None else self._terms + terms

    def terms(self) -> NDArray[np.float64] | None:
        """Return sum and denominator of each part, (P, 2), of all bands; None if there were none."""
        return None if self._terms is None else to_numpy(self._terms)


def indexable(target: NDArray[Any]) -> NDArray[Any]:
    """Return a target in a dtype that torch can compare and index, which uint16 is not."""
    return target.astype(np.int32) if target.dtype == np.uint16 else target


@contextmanager
def naming(case_id: str) -> Iterator[None]:
    """Name the case whose target a loss refuses within the block; the error becomes a DataError."""
    try:
        yield
    except InputError as error:
        raise DataError(f"case {case_id!r}: {error}") from error


def sums_by_bands(loss: object) -> TypeGuard[AdditiveLoss]:
    """Tell whether a loss is known to be a sum over pixels, so that its bands add up to that of the whole image."""
    return isinstance(loss, AdditiveLoss) and loss.is_additive_over_pixels


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
        """Yield each batch that was sent when the next one has been, so that the device computes while the host works.

        Where nothing can overlap, nothing is held back.
        """
        if not self._overlaps:
            yield from sent
            return
        held = list[Item]()
        try:
            for item in sent:
                yield from held
                held = [item]
        except Exception:  # what was sent before comes first
            yield from held
            raise
        yield from held

    def decode(
        self, bands: Iterable[Tensor], *, case_id: str, target: LazyArray | None, loss: BandLoss | None
    ) -> Iterator[Band]:
        """Decode each band of a case on the device, and yield it in its turn.

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
            When a case is taken whose logits are not finite; those before it come first.
        """
        card, submit = self.card, self._copier.submit
        told: dict[str, Any] = {"threshold": self._threshold, "class_map": self._class_map, **card.spec.counting}
        numbers: Iterator[NDArray[Any] | None] = repeat(None)
        probs: Iterator[PendingArray | None] = repeat(None)
        with self.stages.timed("transfer"):
            if card.output == "instances":
                numbers = submit(logits[:, 1], case_id=case_ids[0]).rows()
                logits = logits[:, 0]
            labels = self._copier.submit_labels(logits, case_id=case_ids[0], task=card.spec.task, **told).rows()
            values = [None if loss is None else submit(loss, case_id=case_ids[0]) for loss in losses]
            if self.probs is not None:
                asked: dict[str, Any] = {"task": card.spec.task, "dtype": self.probs}
                # one by one, as they are the largest results of all: where nothing overlaps, one case is in memory
                probs = (
                    self._copier.submit_probs(merge_classes(case[None], card), case_id=case_id, **asked)
                    for case_id, case in zip(case_ids, logits, strict=True)
                )
                probs = iter(list(probs)) if self._overlaps else probs

        def arriving() -> Iterator[Arrived]:
            for case_id, loss in zip(case_ids, values, strict=True):
                with self.stages.timed("transfer"):
                    try:
                        found = next(labels)
                    except InputError as error:  # the check of the output failed
                        if card.output != "logits":
                            raise RunError(f"inference: case {case_id!r}: {error}") from error
                        raise OverflowedError(
                            f"inference: the logits of case {case_id!r} hold NaN or infinity, so it has no labels. An "
                            "overflow goes away with inference.precision=float32; if this does not, look for NaN in "
                            "the image, or take another checkpoint.",
                            case_id=case_id,
                        ) from None
                    waiting = next(probs)
                    of_case = None if waiting is None else next(waiting.rows())
                    value, instances = None if loss is None else loss.result(), next(numbers)
                self.stages.crossed("to the host", found.nbytes + (0 if of_case is None else of_case.nbytes))
                yield Arrived(labels=found, probs=of_case, loss=value, instances=instances)

        return arriving()
