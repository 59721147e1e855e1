"""Test-time augmentation: an image, its mirror images and its quarter turns -> logits of the mean probabilities."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

from segmeter.classes import Task
from segmeter.models.ensemble import mean_logits

_PLANE = (-2, -1)


@dataclass(frozen=True, kw_only=True)
class View:
    """One way to look at an image: mirrored left-right or not, and then turned by quarters."""

    mirrored: bool
    quarters: int

    def of(self, image: Tensor) -> Tensor:
        """The image (..., H, W) as it is seen; an odd number of quarter turns swaps height and width."""
        mirrored = image.flip(-1) if self.mirrored else image
        return mirrored.rot90(self.quarters, _PLANE) if self.quarters else mirrored

    def undo(self, seen: Tensor) -> Tensor:
        """Turn and mirror back."""
        upright = seen.rot90(-self.quarters, _PLANE) if self.quarters else seen
        return upright.flip(-1) if self.mirrored else upright


def choose_views(*, flips: bool, rotations: bool) -> tuple[View, ...]:
    """The views that are averaged, the image itself first.

    Examples
    --------
    >>> len(choose_views(flips=False, rotations=False)), len(choose_views(flips=True, rotations=False))
    (1, 4)
    >>> len(choose_views(flips=False, rotations=True)), len(choose_views(flips=True, rotations=True))
    (4, 8)
    """
    quarters = (0, 1, 2, 3) if rotations else (0, 2) if flips else (0,)
    return tuple(
        View(mirrored=side, quarters=turn) for turn in quarters for side in ((False, True) if flips else (False,))
    )


def averaged_logits(
    image: Tensor, forward: Callable[[Tensor], Tensor], *, views: tuple[View, ...], task: Task
) -> Tensor:
    """Average the probabilities over the views of an image, and give them as logits.

    Parameters
    ----------
    image : (B, C, H, W)
        On the device.
    forward
        From (B, C, h, w) to (B, num_channels, h, w) float32.
    views
        From `choose_views`; a single one gives the logits as they are.
    task
        Multiclass averages softmax, binary and multilabel average sigmoid.

    Returns
    -------
    (B, num_channels, H, W), float32: softmax or sigmoid of it is the mean probability. NaN where any view is NaN or
    infinite.
    """
    if len(views) == 1:
        return views[0].undo(forward(views[0].of(image)))

    def predictions() -> Iterator[Tensor]:
        for view in views:
            yield view.undo(forward(view.of(image)))

    return mean_logits(predictions(), task)
