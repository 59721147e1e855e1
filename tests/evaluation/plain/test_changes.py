"""Rows that are changed in place, one by one: the row, what is counted of the words that change, and how many do."""

import numpy as np
import pytest

from segmeter.evaluation.plain._changes import Tally, add_all, change_row
from segmeter.evaluation.plain._kernels import _number_values
from segmeter.jit import kernel
from segmeter.metrics.pixels.confusion_kernels import WAYS

CLASSES = 5


@kernel
def change(tally, stream, width, side, row):
    words = np.uintp(tally.since.size)
    goal = words if side else np.uintp(0)
    return change_row(
        tally, stream, np.uintp(0), np.uintp(width), np.uintp(0), goal, np.uintp(2) * words, np.uint32(row)
    )


@kernel
def add_rest(tally, row):
    add_all(tally, np.uintp(0), np.uint32(row))


def tally_of(width: int) -> Tally:
    filled = (width + 63) // 64 * 64
    pixels = np.zeros(4 * filled, np.uint8)
    table = np.zeros(WAYS * (CLASSES + 2) * (CLASSES + 1), np.uint32)
    blocks, since = np.empty(filled // 64, np.uint32), np.zeros(filled // 8, np.uint32)
    return Tally(pixels, pixels.view(np.uint64), since, blocks, _number_values(CLASSES, 255), table)


def counts_of(tally: Tally) -> np.ndarray:
    return tally.table.reshape(WAYS, -1).sum(axis=0).reshape(CLASSES + 2, CLASSES + 1)[:CLASSES, :CLASSES]


def residuals(new: np.ndarray, above: np.ndarray, kind: int) -> np.ndarray:
    """The specification's filters, by NumPy."""
    b, a, c = above.astype(int), np.append(0, new[:-1]).astype(int), np.append(0, above[:-1]).astype(int)
    nearest = np.choose(np.abs(np.stack([b - c, a - c, a + b - 2 * c])).argmin(axis=0), [a, b, c])
    return (new - [0, a, b, (a + b) // 2, nearest][kind]).astype(np.uint8)


@pytest.mark.parametrize("kind", range(5))
@pytest.mark.parametrize("width", [1, 7, 8, 63, 64, 65, 200])
def test_rows_become_the_next_ones_and_what_they_were_is_counted(kind, width):
    """Target and labels in turn, each with few or many changes; at the end all pairs of all rows are counted.

    Mutations seen to fail: the last pixels of a row are not undone; a word that both change is counted twice.
    """
    rng, tally = np.random.default_rng(100 * width + kind), tally_of(width)
    filled = tally.since.size * 8
    rows = np.zeros((2, width), np.uint8)
    expected = np.zeros((CLASSES, CLASSES), np.int64)
    expected[0, 0] = filled  # row 0, and what rows are filled up with
    for row in range(1, 40):
        words = []
        for side in (0, 1):
            new = rows[side].copy()
            start = rng.integers(0, width)
            new[start : start + rng.integers(0, 20)] = rng.integers(0, CLASSES)
            specks = rng.random(width) < rng.choice([0, 0.01, 0.5])
            new[specks] = rng.integers(0, CLASSES, specks.sum())
            stream = np.concatenate([[kind], residuals(new, rows[side], kind)]).astype(np.uint8)
            words.append(change(tally, stream, width, side, row))
            rows[side] = new
            np.testing.assert_array_equal(tally.pixels[side * filled :][:width], new)
            assert not tally.pixels[side * filled + width : (side + 1) * filled].any()
        assert 0 <= sum(words) <= tally.since.size
        np.add.at(expected, (rows[0], rows[1]), 1)
        expected[0, 0] += filled - width
    add_rest(tally, 40)
    np.testing.assert_array_equal(counts_of(tally), expected)


def test_an_unknown_filter_is_told():
    assert change(tally_of(3), np.array([5, 0, 0, 0], np.uint8), 3, 0, 1) == -1


def test_only_words_that_change_are_counted_by_hand():
    """Two words; the second one changes in row 3: what it was until then is counted, three rows of eight pixels."""
    tally = tally_of(16)
    stream = np.zeros(17, np.uint8)
    stream[[0, 12]] = 2, 1
    assert change(tally, stream, 16, 0, 3) == 1
    assert counts_of(tally).sum() == counts_of(tally)[0, 0] == 24
    assert tally.since[:2].tolist() == [0, 3]
    assert tally.pixels[:16].tolist() == [0] * 11 + [1] + [0] * 4
