"""Draws the pictures of a training run: the first batch, and a few cases of each validation, always the same ones.

validation/step-00001234/<case>.png     each complete from its first moment
"""

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from segmeter.bridge.arrays import to_numpy
from segmeter.files import make_folder, remove
from segmeter.inference.results import Prediction
from segmeter.training.checkpointing import step_name
from segmeter.training.data.batches import Batch, augmented
from segmeter.training.job import DrawBatch, DrawCase, TrainJob
from segmeter.training.loggers import one_line

VALIDATION = "validation"
MOST_STEPS = 20  # the pictures of at most this many validations stay
MOST_SAMPLES = 6  # the picture of the first batch shows at most this many samples
_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"step-(\d{8,})")


def draw_first(batch: Batch, job: TrainJob, draw: DrawBatch) -> None:
    """Draw the first samples of a batch as the network sees them: cropped, turned, recoloured."""
    with _tolerant("the first batch could not be drawn"):
        image, target = augmented(batch, job.data.augment)
        images = to_numpy(image[:MOST_SAMPLES].permute(0, 2, 3, 1))
        if images.dtype.kind == "f" and not batch.image.is_floating_point():  # augmentation scales integers to 0 to 1
            images = np.rint(images.clip(0, 1) * 255).astype(np.uint8)
        names = [job.data.case_id_of(int(index)) for index in batch.indices[:MOST_SAMPLES]]
        draw(images, to_numpy(target[:MOST_SAMPLES]), names, job.folder)


class Pictures:
    """The folder `validation/` of one run.

    Parameters
    ----------
    folder
        The run's folder.
    draw
        Draws a case; None draws none.
    step
        The step that the run continues from. Pictures of later steps are removed, as they will be drawn again.
    """

    def __init__(self, folder: Path, *, draw: DrawCase | None, step: int) -> None:
        self.folder = folder / VALIDATION
        self._draw = draw
        for drawn_step in self._steps():
            if drawn_step > step:
                remove(self.folder / step_name(drawn_step))

    def save(self, predictions: Sequence[Prediction], step: int) -> dict[str, Path]:
        """Draw the cases of a validation, and return the picture of each by case id.

        Older validations beyond `MOST_STEPS` are thinned out, so that the others stay spread over the run.
        """
        drawn: dict[str, Path] = {}
        if self._draw is None:
            return drawn
        for prediction in predictions:
            case_id = prediction.sample.case_id
            folder = self.folder / step_name(step)
            with _tolerant(f"{case_id} could not be drawn at step {step}"):
                make_folder(folder)
                drawn[case_id] = self._draw(prediction, folder)
        steps = self._steps()
        while len(steps) > MOST_STEPS:
            inner = range(1, len(steps) - 1)
            crowded = min(inner, key=lambda index: steps[index + 1] - steps[index - 1])  # its neighbours are closest
            remove(self.folder / step_name(steps.pop(crowded)))
        return drawn

    def _steps(self) -> list[int]:
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))


@contextmanager
def _tolerant(failed: str) -> Iterator[None]:
    """Log that a picture failed, and continue. A failing disk still raises, as other files would fail too."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        _LOG.warning("training: %s (%s); training continues", failed, one_line(error))
