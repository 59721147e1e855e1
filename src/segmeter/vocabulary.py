"""One word per thing: the tasks, and what the classes of a data set are.

| task | logits | target and labels | meaning |
|---|---|---|---|
| binary | (B, 1, H, W) | (B, H, W) in {0, 1} | sigmoid > threshold is class 1 |
| multiclass | (B, K, H, W) | (B, H, W) in 0 .. K-1 | softmax, the largest wins |
| multilabel | (B, K, H, W) | (B, K, H, W) in {0, 1} | K independent sigmoids |
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from segmeter.checks import collecting

Task = Literal["binary", "multiclass", "multilabel"]
TASKS: tuple[Task, ...] = get_args(Task)
Colour = tuple[int, int, int]


def check_names(names: Sequence[str], task: Task) -> str:
    """What the names of the classes break: a rule that completes "expected `classes` ...", or nothing."""
    least = 1 if task == "multilabel" else 2
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if len(names) < least:
        return f"to name at least {least}"
    if task == "binary" and len(names) != 2:
        return "to be two names (background, object)"
    return f"to be distinct, {' and '.join(twice)} once" if twice else ""


def check_colours(colours: Sequence[Colour], names: Sequence[str]) -> str:
    """What the colours of the classes break, if anything."""
    return "" if len(colours) == len(names) else f"to be {len(names)} values, one per class"


def check_ignored(ignore_index: int | None, names: Sequence[str], task: Task) -> str:
    """What the ignored value breaks, if anything."""
    values = 2 if task == "multilabel" else len(names)
    if ignore_index is None or values <= ignore_index <= 65535:
        return ""
    return f"to be null or between {values} and 65535, as it must not be a class"


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
            broken = check_names(self.names, self.task)
            problems.expect(not broken, "classes", broken, list(self.names))
            broken = check_colours(self.colours, self.names)
            problems.expect(not broken, "colours", broken, len(self.colours))
            broken = check_ignored(self.ignore_index, self.names, self.task)
            problems.expect(not broken, "ignore_index", broken, self.ignore_index)

    @property
    def num_classes(self) -> int:
        """K, background included."""
        return len(self.names)

    @property
    def num_channels(self) -> int:
        """Channels of the logits: 1 for binary, K otherwise."""
        return 1 if self.task == "binary" else len(self.names)
