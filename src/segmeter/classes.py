"""One word per thing: the tasks, and what the classes of a data set are.

| task | logits | target and labels | meaning |
|---|---|---|---|
| binary | (B, 1, H, W) | (B, H, W) in {0, 1} | sigmoid > threshold is class 1 |
| multiclass | (B, K, H, W) | (B, H, W) in 0 .. K-1 | softmax, the largest wins |
| multilabel | (B, K, H, W) | (B, K, H, W) in {0, 1} | K independent sigmoids |
"""

from collections import Counter
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from segmeter.checks import collecting

Task = Literal["binary", "multiclass", "multilabel"]
TASKS: tuple[Task, ...] = get_args(Task)
Colour = tuple[int, int, int]

_MOST_CLASSES = 65534  # what can be counted: uint16 also has to hold an ignored value and one outside the classes


def _is_whole(given: object) -> bool:
    return isinstance(given, Real) and float(given).is_integer() and not isinstance(given, bool)


def _is_colour(given: object) -> bool:
    try:
        parts = list(given)  # type: ignore[call-overload]
    except TypeError:
        return False
    return len(parts) == 3 and all(map(_is_whole, parts))


def label_dtype(highest: int) -> np.dtype:
    """uint8 where labels from 0 to `highest` fit, else uint16."""
    return np.dtype(np.uint8 if highest <= np.iinfo(np.uint8).max else np.uint16)


@dataclass(frozen=True, kw_only=True)
class ClassSpec:
    """What the labels of a data set mean; it travels with every checkpoint and result.

    Parameters
    ----------
    task
        "binary", "multiclass" or "multilabel".
    names
        One per class, in the order of the label values, background included; binary has exactly two.
    colours
        One (red, green, blue) per class, 0 to 255 each.
    ignore_index
        The label value of pixels that are excluded from loss and metrics, or None. Not a class.

    Raises
    ------
    ConfigError
        With every rule that is broken.
    """

    task: Task
    names: tuple[str, ...]
    colours: tuple[Colour, ...]
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        self._check_types()
        with collecting("data") as problems:
            problems.one_of("task", self.task, TASKS)
            least = 1 if self.is_multilabel else 2
            problems.expect(len(self.names) >= least, "classes", f"to name at least {least}", list(self.names))
            many = f"{len(self.names)} names"
            problems.expect(len(self.names) <= _MOST_CLASSES, "classes", f"to name at most {_MOST_CLASSES}", many)
            twice = sorted(name for name, count in Counter(self.names).items() if count > 1)
            problems.expect(not twice, "classes", "to be distinct", list(self.names), f"Twice: {', '.join(twice)}.")
            if self.task == "binary":
                problems.expect(
                    len(self.names) == 2, "classes", "to be two names (background, object)", list(self.names)
                )
            for colour in self.colours:
                ok = all(0 <= part <= 255 for part in colour)
                problems.expect(ok, "colours", "to be [red, green, blue], 0 to 255 each", list(colour))
            matched = len(self.colours) == len(self.names) or len(self.names) < least
            problems.expect(matched, "colours", f"to be {len(self.names)} values", len(self.colours))
            if self.ignore_index is not None:
                values = self.num_values
                problems.expect(
                    values <= self.ignore_index <= 65535,
                    "ignore_index",
                    f"to be null or between {values} and 65535, as it must not be a class",
                    self.ignore_index,
                )

    def _check_types(self) -> None:
        """Refuse what is not a name, colour or number, and store sequences as tuples, which compare by value."""
        with collecting("data") as problems:
            problems.expect(isinstance(self.task, str), "task", "to be a name", self.task)
            listed = isinstance(self.names, list | tuple) and all(isinstance(name, str) for name in self.names)
            problems.expect(listed, "classes", "to be a sequence of names", self.names)
            coloured = isinstance(self.colours, list | tuple) and all(map(_is_colour, self.colours))
            problems.expect(coloured, "colours", "to be a sequence of (red, green, blue)", self.colours)
            whole = self.ignore_index is None or _is_whole(self.ignore_index)
            problems.expect(whole, "ignore_index", "to be null or a whole number", self.ignore_index)
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "colours", tuple((int(r), int(g), int(b)) for r, g, b in self.colours))
        object.__setattr__(self, "ignore_index", None if self.ignore_index is None else int(self.ignore_index))

    @property
    def num_classes(self) -> int:
        """K, background included."""
        return len(self.names)

    @property
    def num_channels(self) -> int:
        """Channels of the logits: 1 for binary, K otherwise."""
        return 1 if self.task == "binary" else len(self.names)

    @property
    def is_multilabel(self) -> bool:
        """Whether each class has a plane of its own, of 0 and 1."""
        return self.task == "multilabel"

    @property
    def num_values(self) -> int:
        """Values that a label may have beside the ignored one: 2 for multilabel, K otherwise."""
        return 2 if self.is_multilabel else len(self.names)

    @property
    def label_dtype(self) -> np.dtype:
        """uint8 where every label and the ignored value fit, else uint16."""
        return label_dtype(max(self.num_values - 1, self.ignore_index or 0))

    @property
    def counts_shape(self) -> tuple[int, ...]:
        """Shape of a case's counts: (K, 2, 2) for multilabel, else (K, K)."""
        return (self.num_classes, 2, 2) if self.is_multilabel else (self.num_classes, self.num_classes)

    def valid(self, target: NDArray[Any]) -> NDArray[np.bool_]:
        """True where a pixel of the target is not ignored, in the target's shape."""
        if self.ignore_index is None:
            return np.ones(target.shape, bool)
        return np.asarray(target != self.ignore_index)

    @property
    def has_background(self) -> bool:
        """Whether class 0 is what is left where nothing is: in a binary task, and where multiclass has it in black.

        CamVid's first class, for example, is the sky. It decides how cases are drawn, and no score.
        """
        return self.task == "binary" or (self.task == "multiclass" and self.colours[0] == (0, 0, 0))

    @property
    def headline(self) -> str:
        """The default score to judge a model by: the object's IoU for binary, else the mean IoU.

        Background covers most of a binary task's pixels, so that a model which finds no object has half the mean IoU.
        """
        return f"iou/{self.names[1]}" if self.task == "binary" else "mean_iou"
