"""Predictions of validations -> pictures of a few cases, always the same ones, spread over the run.

validation/step-00001234/<case>.png     each complete from its first moment
"""

import logging
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from segmeter.files import make_folder, remove
from segmeter.inference.results import Prediction
from segmeter.training.checkpointing import step_name

FOLDER = "validation"
MOST_STEPS = 20  # validations whose pictures stay
_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"step-(\d{8,})")

Draw = Callable[[Prediction, Path], Path]  # draws a case into a folder, and says where


class Pictures:
    """The folder `validation/` of one run.

    Parameters
    ----------
    folder
        The run's.
    chosen
        The cases that are drawn, the same ones each time.
    draw
        Draws one; None draws none.
    step
        The one that the run goes on from; pictures of later ones, which will come again, are removed.
    """

    def __init__(self, folder: Path, chosen: Collection[str], *, draw: Draw | None, step: int) -> None:
        self.folder = folder / FOLDER
        self._draw = draw
        self.chosen = frozenset(chosen if draw else ())
        self._drawn: dict[str, Path] = {}
        for later in (each for each in self._steps() if each > step):
            remove(self.folder / step_name(later))

    def offer(self, prediction: Prediction, step: int) -> None:
        """Draw a case if it is one of the chosen; an image that nothing can show is said and does not stop the run.

        Raises
        ------
        OSError
            The picture can't be written: what else the run writes could not be either.
        """
        case_id, folder = prediction.sample.case_id, self.folder / step_name(step)
        if self._draw is None or case_id not in self.chosen:
            return
        try:
            make_folder(folder)
            self._drawn[case_id] = self._draw(prediction, folder)
        except OSError:
            raise
        except Exception as error:  # of whatever draws
            reason = " ".join(str(error).split()) or type(error).__name__
            _LOG.warning("training: %s could not be drawn at step %d (%s); training goes on", case_id, step, reason)

    def take(self) -> dict[str, Path]:
        """Case id -> picture of the validation that is done; older ones beyond `MOST_STEPS` are thinned out."""
        drawn, self._drawn = self._drawn, {}
        steps = self._steps()
        while len(steps) > MOST_STEPS:
            gone = choose_gone(steps)
            remove(self.folder / step_name(gone))
            steps.remove(gone)
        return drawn

    def _steps(self) -> list[int]:
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))


def choose_cases(case_ids: Sequence[str], count: int) -> frozenset[str]:
    """The cases that are drawn of all validation cases: `count` of them, evenly spread."""
    return frozenset(case_ids[index] for index in spread_evenly(len(case_ids), count))


def choose_gone(steps: Sequence[int]) -> int:
    """The step whose neighbours are closest, so that those that stay are spread over the run; never an end.

    Examples
    --------
    >>> choose_gone([10, 20, 30, 35, 40])
    35
    """
    inner = range(1, len(steps) - 1)
    return steps[min(inner, key=lambda place: steps[place + 1] - steps[place - 1])]


def spread_evenly(total: int, count: int) -> list[int]:
    """Numbers of `count` of `total` things, or of all of them, evenly spread.

    Examples
    --------
    >>> spread_evenly(100, 4), spread_evenly(2, 4)
    ([12, 37, 62, 87], [0, 1])
    """
    count = min(count, total)
    return [(2 * index + 1) * total // (2 * count) for index in range(count)]
