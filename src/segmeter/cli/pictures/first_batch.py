"""The first batch of a training -> one picture: each sample as the network is given it, its target drawn over it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.report.page.training import FIRST_BATCH
from segmeter.report.pictures.canvas import compose
from segmeter.report.pictures.overlay import class_entries, panel_shape, resize_labels, write_overlay
from segmeter.report.pictures.paint import display_image, ignored, paint_labels, resize

PANEL = 240  # longest side of a sample, pixels
_GAP = 6  # between image and target


def draw_batch(
    images: NDArray[Any], targets: NDArray[Any], case_ids: Sequence[str], folder: Path, *, spec: ClassSpec
) -> Path:
    """Draw the samples of a batch side by side as first_batch.png, the targets under the images.

    Parameters
    ----------
    images : (B, H, W, C)
        As `display_image` takes them.
    targets : (B, H, W), or (B, K, H, W) for multilabel, integer
        Classes of each pixel.
    """
    samples = [_sample(image, target, spec) for image, target in zip(images, targets, strict=True)]
    panels = list(zip(case_ids, samples, strict=True))
    legend = class_entries(list(targets), spec)
    hatched = [("ignored", None)] if any(ignored(target, spec).any() for target in targets) else []
    figure = f"{images.shape[2]} x {images.shape[1]} pixels"
    picture = compose(
        panels, title="first batch, as the network is given it", figure=figure, legend=[[*legend, *hatched]]
    )
    return write_overlay(folder, Path(FIRST_BATCH).stem, picture)


def _sample(image: NDArray[Any], target: NDArray[Any], spec: ClassSpec) -> NDArray[np.uint8]:
    shape = panel_shape(image.shape[:2], PANEL)
    shown = resize(display_image(image), shape, smooth=True)
    painted = paint_labels(shown, resize_labels(target, shape), spec)
    return np.concatenate([shown, np.full((_GAP, shape[1], 3), 22, np.uint8), painted])
