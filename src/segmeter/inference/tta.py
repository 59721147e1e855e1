"""Test-time augmentation: averages the probabilities of an image, its mirror images and its quarter turns."""

from collections.abc import Callable, Iterator

from torch import Tensor

from segmeter.classes import Task
from segmeter.models.ensemble import mean_logits

_PLANE = (-2, -1)

View = tuple[bool, int]  # mirrored left-right or not, and then turned by quarters


def choose_views(*, flips: bool, rotations: bool) -> tuple[View, ...]:
    """The views that are averaged, the image itself first.

    Examples
    --------
    >>> choose_views(flips=True, rotations=False)
    ((False, 0), (True, 0), (False, 2), (True, 2))
    >>> len(choose_views(flips=False, rotations=True)), len(choose_views(flips=True, rotations=True))
    (4, 8)
    """
    quarters = (0, 1, 2, 3) if rotations else (0, 2) if flips else (0,)
    return tuple((mirrored, turn) for turn in quarters for mirrored in ((False, True) if flips else (False,)))


def see(image: Tensor, view: View) -> Tensor:
    """Mirror and turn an image (..., H, W); an odd number of quarter turns swaps height and width."""
    mirrored, quarters = view
    image = image.flip(-1) if mirrored else image
    return image.rot90(quarters, _PLANE) if quarters else image


def undo(seen: Tensor, view: View) -> Tensor:
    """Turn and mirror back."""
    mirrored, quarters = view
    seen = seen.rot90(-quarters, _PLANE) if quarters else seen
    return seen.flip(-1) if mirrored else seen


def averaged_logits(
    image: Tensor, forward: Callable[[Tensor], Tensor], *, views: tuple[View, ...], task: Task
) -> Tensor:
    """Average the probabilities over the views of an image, and return them as logits.

    Parameters
    ----------
    image : (B, C, H, W)
        On the device.
    forward
        From (B, C, h, w) to (B, num_channels, h, w) float32.
    views
        From `choose_views`; with a single one the logits are unchanged.
    task
        Multiclass averages softmax, binary and multilabel average sigmoid.

    Returns
    -------
    (B, num_channels, H, W), float32: softmax or sigmoid of it is the mean probability. NaN if any view is NaN or
    infinite.
    """

    def predictions() -> Iterator[Tensor]:
        for view in views:
            yield undo(forward(see(image, view)), view)

    return next(predictions()) if len(views) == 1 else mean_logits(predictions(), task)
