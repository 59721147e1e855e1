"""The pairs that every tool is asked about: a table of telling ones, and a seeded sweep of blobs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

SWEEP = 80
VOID = 255


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """Two class maps with what is known of them. Class 0 is background."""

    name: str
    target: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    num_classes: int = 2
    spacing: tuple[float, ...] = (1.0, 1.0)
    ignore_index: int | None = None

    def masks(self, k: int = 1) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Target and prediction of one class."""
        return self.target == k, self.labels == k

    @property
    def counting(self) -> dict[str, int | None]:
        """How torchmetrics, SMP and we are told what is counted."""
        return {"num_classes": self.num_classes, "ignore_index": self.ignore_index}

    def __str__(self) -> str:
        return self.name


def boxes(shape: tuple[int, ...], *corners: tuple[slice, ...]) -> NDArray[np.uint8]:
    """A map of 0 with boxes of 1."""
    found = np.zeros(shape, np.uint8)
    for corner in corners:
        found[corner] = 1
    return found


def disk(shape: tuple[int, ...], centre: tuple[float, ...], radius: float) -> NDArray[np.uint8]:
    grid = np.ogrid[tuple(slice(length) for length in shape)]
    return (sum((axis - middle) ** 2 for axis, middle in zip(grid, centre, strict=True)) <= radius**2).astype(np.uint8)


def pair(name: str, target: NDArray[np.uint8], labels: NDArray[np.uint8], **fields: Any) -> Case:
    fields.setdefault("spacing", (1.0,) * target.ndim)
    return Case(name=name, target=target, labels=labels, **fields)


EMPTY = boxes((12, 16))
ONE = boxes((12, 16), np.s_[3:7, 4:9])

BOTH_HOLD_ONE = (
    pair("disks", disk((32, 32), (15, 15), 9), disk((32, 32), (17, 14), 8)),
    pair("equal", disk((32, 32), (15, 15), 9), disk((32, 32), (15, 15), 9)),
    pair("wide", boxes((14, 51), np.s_[3:10, 5:20]), boxes((14, 51), np.s_[5:12, 14:44]), spacing=(0.7, 1.9)),
    pair("tall", boxes((51, 14), np.s_[5:20, 3:10]), boxes((51, 14), np.s_[14:44, 5:12]), spacing=(2.0, 0.31)),
    pair("volume", disk((9, 24, 20), (4, 12, 9), 6.2), disk((9, 24, 20), (5, 10, 11), 5.7), spacing=(3.0, 0.7, 1.1)),
    pair("touches the border", boxes((20, 26), np.s_[0:9, 0:11]), boxes((20, 26), np.s_[0:12, 3:26])),
    pair("hole", disk((30, 30), (15, 15), 11) - disk((30, 30), (15, 15), 4), disk((30, 30), (14, 16), 10)),
    pair("spur", disk((32, 32), (16, 12), 7), disk((32, 32), (16, 12), 7) | boxes((32, 32), np.s_[16, 12:31])),
    pair("one pixel each", boxes((9, 9), np.s_[2:3, 2:3]), boxes((9, 9), np.s_[5:6, 6:7])),
    pair("one pixel in a disk", boxes((20, 24), np.s_[9:10, 9:10]), disk((20, 24), (9, 9), 6)),
    pair("two far parts", boxes((24, 40), np.s_[2:8, 2:8]), boxes((24, 40), np.s_[2:8, 3:9], np.s_[16:22, 30:38])),
)


def blobs(rng: np.random.Generator, shape: tuple[int, ...], num_classes: int) -> NDArray[np.uint8]:
    """Rough regions of every class, some of which touch the border."""
    field = ndimage.gaussian_filter(rng.standard_normal((num_classes, *shape)), (0, *(1.7,) * len(shape)))
    field[0] += 0.5 * field.std()
    return field.argmax(axis=0).astype(np.uint8)


def near(rng: np.random.Generator, target: NDArray[np.uint8], num_classes: int) -> NDArray[np.uint8]:
    """A prediction of it: moved by up to two pixels, with 2 % of the pixels wrong."""
    labels = np.roll(target, rng.integers(-2, 3, target.ndim), axis=tuple(range(target.ndim)))
    specks = rng.random(labels.shape) < 0.02
    labels[specks] = rng.integers(0, num_classes, specks.sum())
    return labels


def _many(rng: np.random.Generator) -> Case:
    target = np.kron(rng.integers(0, 19, (5, 7)), np.ones((6, 6), int)).astype(np.uint8)
    labels = np.roll(target, 1, axis=1)
    specks = rng.random(labels.shape) < 0.05
    labels[specks] = rng.integers(0, 19, specks.sum())
    return pair("nineteen classes", target, labels, num_classes=19)


def _ignoring(rng: np.random.Generator) -> Case:
    target, labels = (blobs(rng, (28, 35), 4) for _ in range(2))
    target[rng.random(target.shape) < 0.1] = VOID
    return pair("ignored pixels", target, labels, num_classes=4, ignore_index=VOID)


MANY_CLASSES, IGNORED = _many(np.random.default_rng(5)), _ignoring(np.random.default_rng(6))


def sweep(
    *, num_classes: int = 2, volumes: bool = True, ignored: float = 0.0, count: int = SWEEP, seed: int = 0
) -> Iterator[Case]:
    """Seeded pairs of small maps, wide, tall and (every fourth) in 3-D, each class in both of them."""
    rng = np.random.default_rng(seed)
    made = 0
    while made < count:
        volume = volumes and made % 4 == 3
        shape = tuple(rng.integers(6, 15, 3)) if volume else tuple(rng.integers(15, 34, 2))
        target = blobs(rng, shape, num_classes)
        labels = near(rng, target, num_classes)
        if any(np.count_nonzero(one == k) == 0 for one in (target, labels) for k in range(num_classes)):
            continue
        if ignored:
            target[rng.random(shape) < ignored] = VOID
        spacing = tuple(rng.uniform(0.3, 3.0, len(shape)).round(2).tolist())
        fields = {"num_classes": num_classes, "ignore_index": VOID if ignored else None}
        yield pair(f"blobs {made}", target, labels, spacing=spacing, **fields)
        made += 1


def assert_agree(ours: Any, theirs: Any, what: object = "", *, rtol: float = 1e-6, atol: float = 1e-12) -> None:
    """Equal up to 1e-6 relative; undefined where the other is. `atol` only tells 0 from what rounding leaves of it."""
    np.testing.assert_allclose(
        np.asarray(ours, np.float64), np.asarray(theirs, np.float64), rtol=rtol, atol=atol, err_msg=str(what)
    )
