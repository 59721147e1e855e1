"""A trained model to call: image in, label map out."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import expected, require_path, shown
from segmeter.classes import ClassSpec
from segmeter.data.sample import Sample
from segmeter.data.verification.intensity import FULL_SCALE, ScaleWatch
from segmeter.errors import InputError
from segmeter.inference.config import InferenceConfig
from segmeter.inference.device import pick_device
from segmeter.inference.predictor import Predictor
from segmeter.inference.results import Prediction
from segmeter.models.trained import read_checkpoints
from segmeter.threads import share_cores

_LOG = logging.getLogger(__name__)


class Model:
    """A model from `load`: ``model(image)`` is the label map, ``model.probs(image)`` the probabilities.

    It warns once, through logging, if images are not on the scale of the training images.

    Parameters
    ----------
    predictor
        Runs the network; see `segmeter.inference.Predictor` for many images at a time.
    """

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        card = predictor.segmenter.card
        self._watch = ScaleWatch(card.mean, card.std, card.clip, at_once=True)

    def __repr__(self) -> str:
        card = self.predictor.segmenter.card
        names = ", ".join(self.spec.names[:5]) + (", ..." if self.spec.num_classes > 5 else "")
        encoder = card.model.get("encoder", "")
        return f"Model {card.model['name']} {encoder}: {self.spec.task}, {self.spec.num_classes} classes ({names})"

    @property
    def spec(self) -> ClassSpec:
        """The classes of the model."""
        spec: ClassSpec = self.predictor.segmenter.card.spec
        return spec

    def __call__(self, image: NDArray[Any]) -> NDArray[Any]:
        """Predict an image, normalised as the model was trained.

        Parameters
        ----------
        image : (H, W, C), or (H, W) for a model of one channel; uint8, uint16 or float32
            Any size.

        Returns
        -------
        (H, W), multilabel (K, H, W): uint8, or uint16 for more than 256 classes.

        Raises
        ------
        InputError
            The image has another shape or dtype, or another number of channels.
        RunError
            The logits are not finite, or memory ran out.
        """
        return self._predict(image, probs=False).labels

    def probs(self, image: NDArray[Any]) -> NDArray[np.float32]:
        """Predict the probabilities (K, H, W) of an image, as `__call__` takes it; binary: (1, H, W), of the object."""
        probs = self._predict(image, probs=True).probs
        assert probs is not None, "asked for"
        probs.flags.writeable = True  # tiled probabilities are locked for writers that share them; nobody shares these
        return probs

    def _predict(self, image: NDArray[Any], *, probs: bool) -> Prediction:
        is_array = isinstance(image, np.ndarray) and not isinstance(image, np.ma.MaskedArray)
        if not is_array or not image.size or image.ndim not in (2, 3) or image.dtype.name not in FULL_SCALE:
            rule = "to be a uint8, uint16 or float32 array (H, W, C), or (H, W) for one channel"
            given = f"{image.dtype} {image.shape}" if is_array else type(image).__name__
            remedy = "Pass other values as float32, on the scale of the training images."
            raise InputError(expected("Model", "image", rule, given, remedy))
        plane = image[..., None] if image.ndim == 2 else image
        sample = Sample(case_id="image", image=plane, target=None)
        (prediction,) = self.predictor.predict([sample], probs=probs)
        for line in self._watch.add(plane):
            _LOG.warning("%s", line)
        return prediction


def load(checkpoint: str | Path | Sequence[str | Path], *, device: str = "auto", **options: Any) -> Model:
    """Load a trained model.

    Parameters
    ----------
    checkpoint
        The folder of a run, whose best checkpoint is taken; a checkpoint; or a list of these, whose probabilities are
        averaged.
    device
        "auto", "cpu", "cuda", "cuda:<number>" or "mps".
    options
        Keys of the group `inference`, such as ``tile=1024`` or ``precision="float32"``.

    Raises
    ------
    CheckpointError
        A checkpoint can't be read.
    ConfigError
        The device does not exist, or an option is wrong.

    Examples
    --------
    >>> import segmeter
    >>> model = segmeter.load("runs/train/2026-11-21_101500_cells")  # doctest: +SKIP
    >>> labels = model(image)  # doctest: +SKIP
    """
    is_list = isinstance(checkpoint, Sequence) and not isinstance(checkpoint, str)
    checkpoints: list[Any] = list(checkpoint) if is_list else [checkpoint]  # type: ignore[arg-type]
    if not checkpoints:
        raise InputError(expected("load", "checkpoint", "to be a path or several", shown(checkpoint)))
    paths = [require_path("load", "checkpoint", path) for path in checkpoints]
    share_cores()
    torch_device = pick_device(device)
    config = InferenceConfig(**options)
    return Model(Predictor(read_checkpoints(paths).load(torch_device), config, torch_device))
