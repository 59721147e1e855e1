"""The first batch of a training -> a picture of what the network is given: cropped, turned, recoloured."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from segmeter.bridge.to_numpy import to_numpy
from segmeter.training.data.batches import Batch

MOST = 6  # samples in the picture
_LOG = logging.getLogger(__name__)

# images (B, H, W, C), targets (B, H, W) or (B, K, H, W), case ids, and the folder of the picture
DrawBatch = Callable[[NDArray[Any], NDArray[Any], Sequence[str], Path], Path]


def draw_first(
    batch: Batch,
    augmented: Callable[[Batch], tuple[Tensor, Tensor]],
    *,
    draw: DrawBatch,
    case_ids: Sequence[str],
    folder: Path,
) -> None:
    """Draw the first samples of a batch as they are after `augmented`, which is asked once more for the step itself.

    What nothing can show is said and does not stop the run.

    Raises
    ------
    OSError
        The picture can't be written: what else the run writes could not be either.
    """
    image, target = augmented(batch)
    images = to_numpy(image[:MOST].permute(0, 2, 3, 1))
    if images.dtype.kind == "f" and not batch.image.is_floating_point():  # integers are 0 to 1 then
        images = np.rint(images.clip(0, 1) * 255).astype(np.uint8)
    names = [case_ids[int(index) % len(case_ids)] for index in batch.indices[:MOST]]
    try:
        draw(images, to_numpy(target[:MOST]), names, folder)
    except OSError:
        raise
    except Exception as error:  # of whatever draws
        reason = " ".join(str(error).split()) or type(error).__name__
        _LOG.warning("training: the first batch could not be drawn (%s); training goes on", reason)
