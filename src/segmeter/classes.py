"""Defines the tasks and the classes of a data set.

| task | logits | target and labels | meaning |
|---|---|---|---|
| binary | (B, 1, H, W) | (B, H, W) in {0, 1} | sigmoid > threshold is class 1 |
| multiclass | (B, K, H, W) | (B, H, W) in 0 .. K-1 | softmax, the largest wins |
| multilabel | (B, K, H, W) | (B, K, H, W) in {0, 1} | K independent sigmoids |
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from segmeter.schema import Config, Given, RuleError, rule

# Usual names of a class 0 that holds no objects. Pictures leave it out. If there are two classes, the other one leads
# the results.
BACKGROUNDS = ("background", "bg", "void", "other", "others", "rest", "none", "unlabeled", "unlabelled", "class_0")
Task = Literal["binary", "multiclass", "multilabel"]
TASKS: tuple[Task, ...] = get_args(Task)
Colour = tuple[int, int, int]
Byte = Annotated[int, Field(ge=0, le=255)]
Colours = tuple[tuple[Byte, Byte, Byte], ...]

IGNORED_KEY = "data.ignore_index"  # Messages name this key.
# A `ClassSpec.counting` for one plane of a multilabel map: 1 is inside, 0 outside, and 2 ignored.
COUNTING_PLANES = {"num_classes": 2, "ignore_index": 2}
SURE_ABOVE = 0.95  # A model that was trained on cores gives their pixels a higher probability than this.
CORE = 2  # Binary training targets may mark the cores of objects with this value. An object's other pixels are 1.
_MOST_CLASSES = 65534  # uint16 also has to hold an ignored value and one outside the classes.


def label_dtype(highest: int) -> np.dtype:
    """Return uint8 if labels from 0 to `highest` fit, else uint16."""
    return np.dtype(np.uint8 if highest <= 255 else np.uint16)


class ClassSpec(Config, title="ClassSpec"):
    """The meaning of a data set's labels, stored with every checkpoint and result.

    Raises
    ------
    ConfigError
        Lists every broken rule.
    """

    task: Task
    """Binary, multiclass or multilabel."""
    names: tuple[str, ...]
    """One per class, in the order of the label values, background included; binary has exactly two."""
    colours: Colours
    """One (red, green, blue) per class, 0 to 255 each."""
    ignore_index: int | None = None
    """The label value of pixels that are excluded from loss and metrics, or None. Not a class."""
    count_invalid: bool = False
    """Whether predicted values outside the classes are counted, in a column of their own, instead of refused."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "ClassSpec":
        """Rebuild the classes from a model card, which doesn't hold `count_invalid`."""
        return cls(**{key: values[key] for key in ("task", "names", "colours", "ignore_index")})

    @rule("names", "colours", "ignore_index", "count_invalid")
    def _check(cls, value: Any, given: Given) -> None:
        check_classes(given.own_key, value, value if given.own_key == "names" else given.names, given.task)

    @property
    def meaning(self) -> dict[str, Any]:
        """Task, classes and ignored value as plain values. Results with equal ones can be compared."""
        return {"task": self.task, "classes": list(self.names), "ignore_index": self.ignore_index}

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
        """How many values a label can have, not counting the ignored one: 2 for multilabel, K otherwise."""
        return 2 if self.is_multilabel else len(self.names)

    @property
    def label_dtype(self) -> np.dtype:
        """uint8 if every label and the ignored value fit, else uint16."""
        return label_dtype(max(self.num_values - 1, self.ignore_index or 0))

    @property
    def counts_shape(self) -> tuple[int, ...]:
        """Shape of a case's counts: (K, 2, 2) for multilabel, else (K, K), or (K, K + 1) with a last column of invalid
        predictions.
        """
        shape = (self.num_classes, self.num_classes + self.count_invalid)
        return (self.num_classes, 2, 2) if self.is_multilabel else shape

    @property
    def values(self) -> tuple[int, ...]:
        """Every value that a label map may hold: the classes, then the ignored value if there is one."""
        ignored = () if self.ignore_index is None else (self.ignore_index,)
        return *range(self.num_values), *ignored

    @property
    def counting(self) -> dict[str, Any]:
        """Arguments that tell functions of arrays which pixels to count."""
        return {"num_classes": self.num_classes, "ignore_index": self.ignore_index}

    @property
    def has_ignored(self) -> bool:
        """Whether there is an ignored value."""
        return self.ignore_index is not None

    @property
    def unlabelled_value(self) -> int:
        """The label of pixels that nobody labelled: the ignored value, or 0 if there is none."""
        return self.ignore_index or 0

    def number_of(self, count: int) -> int:
        """Return the value of the `count`-th object of a map, counted from 1. It skips the ignored value."""
        return count + (self.ignore_index is not None and count >= self.ignore_index)

    def valid(self, target: NDArray[Any]) -> NDArray[np.bool_]:
        """Return True where a pixel of the target is not ignored, in the target's shape."""
        return ~self.is_ignored(target)

    def is_ignored(self, values: Any) -> NDArray[np.bool_]:
        """Return True where a value, or each of an array, is the ignored one."""
        if self.ignore_index is None:
            return np.zeros(np.shape(values), bool)
        return np.asarray(values == self.ignore_index)

    def ignoring(self, labels: NDArray[Any], where: NDArray[np.bool_]) -> NDArray[Any]:
        """Return the labels as `label_dtype`, with the ignored value (if there is one) where a mask is True."""
        labels = labels.astype(self.label_dtype)
        if self.ignore_index is None:
            return labels
        return np.where(where, self.label_dtype.type(self.ignore_index), labels)

    def with_ignored(self) -> "ClassSpec":
        """Return the same classes with an ignored value: their own, or else 255, or 65535 where 255 is a class."""
        if self.ignore_index is not None:
            return self
        return self.replace(ignore_index=255 if self.num_values <= 255 else 65535)

    def of_plane(self, index: int) -> "ClassSpec":
        """Return the meaning of one plane of a multilabel map: 1 is its class, in its colour, and 0 is black."""
        name = self.names[index]
        names = ("rest" if name == "other" else "other", name)
        colours = ((0, 0, 0), self.colours[index])
        return ClassSpec(task="binary", names=names, colours=colours, ignore_index=self.ignore_index)

    def pad(self, target: NDArray[Any], border: Sequence[tuple[int, int]]) -> NDArray[Any]:
        """Pad rows and columns of a target with ignored pixels, or with its mirror image if none can be ignored."""
        widths = (*[(0, 0)] * (target.ndim - 2), *border)
        if self.ignore_index is None:
            return np.pad(target, widths, mode="symmetric")
        return np.pad(target, widths, constant_values=self.ignore_index)

    @property
    def has_background(self) -> bool:
        """Whether class 0 is the background: in a binary task, and in multiclass if its colour is black.

        CamVid's first class, for example, is the sky. This only affects how cases are drawn, never a score.
        """
        return self.task == "binary" or (self.task == "multiclass" and self.colours[0] == (0, 0, 0))


def check_classes(key: str, value: Any, names: Sequence[str], task: Task, remedy: str = "") -> None:
    """Raise a RuleError unless the value of a key goes with the names and the task.

    Parameters
    ----------
    key
        "names", "colours", "ignore_index" or "count_invalid".
    remedy
        Added to the message if there are no names.
    """
    least = 1 if task == "multilabel" else 2
    num_values = 2 if task == "multilabel" else len(names)
    if key == "names" and len(names) < least:
        raise RuleError(f"to name at least {least}", "" if names else remedy)
    if key == "names" and len(names) > _MOST_CLASSES:
        raise RuleError(f"to name at most {_MOST_CLASSES}")
    if key == "names" and task == "binary" and len(names) != 2:
        raise RuleError("to be two names (background, object)")
    if key == "names" and (repeated := sorted(name for name, count in Counter(names).items() if count > 1)):
        raise RuleError("to be distinct", f"Twice: {', '.join(repeated)}.")
    if key == "colours" and value is not None and len(value) != len(names):
        raise RuleError(f"to be {len(names)} colours, one per class")
    if key == "ignore_index" and value is not None and not num_values <= value <= 65535:
        raise RuleError(f"to be null or between {num_values} and 65535, as it must not be a class")
    if key == "count_invalid" and value and task == "multilabel":  # planes of 0 and 1 can't hold invalid predictions
        raise RuleError("to be false for multilabel")
