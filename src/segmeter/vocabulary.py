"""One word per thing: the tasks, and what the classes of a data set are.

| task | logits | target and labels | meaning |
|---|---|---|---|
| binary | (B, 1, H, W) | (B, H, W) in {0, 1} | sigmoid > threshold is class 1 |
| multiclass | (B, K, H, W) | (B, H, W) in 0 .. K-1 | softmax, the largest wins |
| multilabel | (B, K, H, W) | (B, K, H, W) in {0, 1} | K independent sigmoids |
"""

from collections import Counter
from dataclasses import dataclass
from typing import Literal, get_args

from segmeter.checks import collecting

Task = Literal["binary", "multiclass", "multilabel"]
TASKS: tuple[Task, ...] = get_args(Task)
Colour = tuple[int, int, int]


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
        The label value of pixels that count nowhere, or None. Not a class.

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
        with collecting("data") as problems:
            problems.one_of("task", self.task, TASKS)
            least = 1 if self.task == "multilabel" else 2
            problems.expect(len(self.names) >= least, "classes", f"to name at least {least}", list(self.names))
            twice = sorted(name for name, count in Counter(self.names).items() if count > 1)
            problems.expect(not twice, "classes", "to be distinct", list(self.names), f"Twice: {', '.join(twice)}.")
            if self.task == "binary":
                problems.expect(
                    len(self.names) == 2, "classes", "to be two names (background, object)", list(self.names)
                )
            matched = len(self.colours) == len(self.names) or len(self.names) < least
            problems.expect(matched, "colours", f"to be {len(self.names)} values", len(self.colours))
            if self.ignore_index is not None:
                values = 2 if self.task == "multilabel" else len(self.names)
                problems.expect(
                    values <= self.ignore_index <= 65535,
                    "ignore_index",
                    f"to be null or between {values} and 65535, as it must not be a class",
                    self.ignore_index,
                )

    @property
    def num_classes(self) -> int:
        """K, background included."""
        return len(self.names)

    @property
    def has_background(self) -> bool:
        """Whether class 0 is what is left where nothing is: in a binary task, and where multiclass has it in black.

        CamVid's first class, for example, is the sky. It decides how cases are drawn, and no score.
        """
        return self.task == "binary" or (self.task == "multiclass" and self.colours[0] == (0, 0, 0))

    @property
    def headline(self) -> str:
        """The score that a model is judged by unless asked otherwise: the object's IoU for binary, else the mean IoU.

        Background covers most of a binary task's pixels, so that a model which finds no object has half the mean IoU.
        """
        return f"iou/{self.names[1]}" if self.task == "binary" else "mean_iou"

    @property
    def num_channels(self) -> int:
        """Channels of the logits: 1 for binary, K otherwise."""
        return 1 if self.task == "binary" else len(self.names)
