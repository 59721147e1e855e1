"""Predicts a volume plane by plane, and puts the results together in the order of its file."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.bridge.decode import ProbsDtype
from segmeter.data.planes import Volume
from segmeter.data.sample import Sample
from segmeter.inference.predictor import Predictor
from segmeter.inference.results import Loss, Prediction


def predict_volume(
    predictor: Predictor,
    volume: Volume,
    *,
    probs: bool = False,
    probs_dtype: ProbsDtype = "float32",
    loss: Loss | None = None,
) -> Prediction:
    """Predict all planes of a volume in batches.

    Parameters
    ----------
    predictor, probs, probs_dtype
        As for `Predictor.predict`.
    volume
        Its planes are read as they are needed.
    loss
        An additive loss, whose sums and denominators are added over the planes; or None.

    Returns
    -------
    Prediction
        `labels` (D, H, W), multilabel (K, D, H, W); `probs` (num_channels, D, H, W) or None; a `sample` as of a volume.

    Raises
    ------
    As `Predictor.predict`; the message names the plane.
    """
    axis, middle = volume.axis, len(volume) // 2
    labels: NDArray[Any] | None = None
    kept: NDArray[Any] | None = None
    terms: NDArray[Any] | None = None
    planes = predictor.predict(volume, probs=probs, probs_dtype=probs_dtype, loss=loss)
    for number, plane in enumerate(planes):
        labels = _placed(labels, plane.labels, volume, number)
        if plane.probs is not None:
            kept = _placed(kept, plane.probs, volume, number)
        if plane.loss is not None:
            terms = plane.loss if terms is None else terms + plane.loss
    assert labels is not None  # a volume has planes
    sample = Sample(
        case_id=volume.case_id,
        image=volume[middle].image,
        target=volume.target(),
        plane_axis=axis,
        geometry=volume.geometry,
    )
    return Prediction(sample=sample, labels=labels, probs=kept, loss=terms)


def _placed(whole: NDArray[Any] | None, plane: NDArray[Any], volume: Volume, number: int) -> NDArray[Any]:
    """Put a plane (..., H, W) into its volume, which is made for the first one."""
    if whole is None:
        whole = np.empty((*plane.shape[:-2], *volume.shape), plane.dtype)
    np.moveaxis(whole, volume.axis - 3, -3)[..., number, :, :] = plane
    return whole
