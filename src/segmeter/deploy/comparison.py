"""an exported model and real images -> where its labels differ from ours, and whether each such pixel is a near-tie."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor

from segmeter.bridge.decode import decision_level, labels_to_numpy
from segmeter.bridge.to_numpy import to_numpy
from segmeter.classes import ClassSpec
from segmeter.errors import RunError
from segmeter.inference.predictor import Predictor

Model = Callable[[np.ndarray], np.ndarray]

LEAST_EQUAL = 0.9999  # share of pixels
TIE = 1e-3  # of the larger logit, or of 1: sums of float32 in another order differ by about 1e-5 of it
LARGEST = 1024  # pixels: of larger images a corner of this edge is compared


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """What was compared: ids of the cases, pixels (of multilabel those of every plane), and how many differ.

    `widest` is the largest difference, among the pixels that differ, between the two logits that compete for it, as a
    share of the larger one (or of 1).
    """

    cases: tuple[str, ...]
    pixels: int
    differing: int
    widest: float

    def to_dict(self) -> dict[str, Any]:
        """The same in values that JSON has, with the bars."""
        return {**asdict(self), "least_equal": LEAST_EQUAL, "near_tie": TIE}


def compare(model: Model, predictor: Predictor, images: Iterable[tuple[str, np.ndarray]]) -> Agreement:
    """Hold a model's labels against those that our own code makes of the same images.

    Parameters
    ----------
    model
        From (B, H, W, C) to labels.
    predictor
        In float32, without tiles and flips.
    images
        Ids and (H, W, C) images. The first one is also compared as a batch of two with an odd size.

    Raises
    ------
    RunError
        A pixel differs that is no near-tie, or more pixels differ than the bar allows.
    """
    spec, threshold = predictor.segmenter.card.spec, predictor.config.threshold
    cases, pixels, differing, widest = list[str](), 0, 0, 0.0
    for case_id, image in images:
        for batch in _batches(image, odd=not cases):
            margins = _margins(_labels(model, batch, case_id), predictor.logits(list(batch)), spec, threshold, case_id)
            pixels += margins.size
            differing += int(np.count_nonzero(~np.isnan(margins)))
            widest = max(widest, float(np.nanmax(margins, initial=0.0)))
            if widest > TIE:
                wide = int(np.count_nonzero(margins > TIE))
                raise RunError(
                    f"export: {wide} of {margins.size} pixels of case {case_id!r} have other labels than segmeter's, "
                    f"and are no near-ties (their logits differ by up to {widest:.2g}, {TIE} would be one). "
                    "Nothing was written. Please report this."
                )
        cases.append(case_id)
    if differing > (1 - LEAST_EQUAL) * pixels:
        raise RunError(
            f"export: {differing} of {pixels} pixels have other labels than segmeter's, more than 1 in 10,000, though "
            "all are near-ties. Nothing was written. Train longer, or compare on images that the model knows."
        )
    return Agreement(cases=tuple(cases), pixels=pixels, differing=differing, widest=widest)


def _labels(model: Model, batch: np.ndarray, case_id: str) -> np.ndarray:
    try:
        return model(batch)
    except Exception as error:  # engines have errors of their own
        reason = " ".join(str(error).split())[:200]
        raise RunError(
            f"export: the exported model can't label case {case_id!r} ({type(error).__name__}: {reason}). "
            "Nothing was written. Use a network such as model=unet."
        ) from error


def _batches(image: np.ndarray, *, odd: bool) -> Iterator[np.ndarray]:
    yield image[None, :LARGEST, :LARGEST]
    if odd:
        height, width = (max(1, min(LARGEST, side) * 2 // 3 | 1) for side in image.shape[:2])
        part = image[:height, :width]
        yield np.stack([part, part[::-1, ::-1]])


def _margins(theirs: np.ndarray, computed: Tensor, spec: ClassSpec, threshold: float, case_id: str) -> np.ndarray:
    """NaN where the labels are equal, else by how much the logits prefer ours, as a share of the larger one (or of 1).

    (B, H, W), for multilabel (B, K, H, W).
    """
    ours = labels_to_numpy(computed, task=spec.task, num_classes=spec.num_classes, threshold=threshold)
    if (theirs.shape, theirs.dtype) != (ours.shape, ours.dtype):
        raise RunError(
            f"export: expected {ours.dtype} {ours.shape} for case {case_id!r}, got {theirs.dtype} {theirs.shape}. "
            "Nothing was written."
        )
    margins, logits = np.full(ours.shape, np.nan), to_numpy(computed)
    places = np.nonzero(ours != theirs)
    if spec.task == "multiclass":
        batch, rows, columns = places
        won, lost = (logits[batch, labels[places], rows, columns] for labels in (ours, theirs))
    else:
        won = (logits if spec.is_multilabel else logits[:, 0])[places]
        lost = np.full_like(won, decision_level(threshold, double=False))
    larger = np.maximum(np.maximum(np.abs(won), np.abs(lost)), 1)
    margins[places] = np.abs(won - lost) / larger
    return margins
