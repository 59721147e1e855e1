"""What lies within reach of a place: each search against a look at every pixel of the map."""

import numpy as np
import pytest

from segmeter.metrics.pixels import _error_kernels as near

NOTHING = 3  # the value of a pixel without a class


def draw(seed):
    """Two maps of coarse patches, some pixels without a class, and a width."""
    rng = np.random.default_rng(seed)
    height, length = rng.integers(1, 45, 2)
    patches = rng.integers(0, NOTHING + 1, (2, height // 4 + 1, length // 4 + 1)).astype(np.uint8)
    first, second = (np.ascontiguousarray(np.kron(one, np.ones((4, 4), np.uint8))[:height, :length]) for one in patches)
    return first, second, int(rng.integers(1, 8))


def wanted(first, second, both, k):
    """The mask of pixels that are looked for."""
    same, other = (first == k) & (second == k), (first != k) & (second != k) & (first != NOTHING)
    return same if both else other


def within(shape, y, x, width):
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    return np.sqrt((rows - y) ** 2 + (columns - x) ** 2) < width + 0.5


def blocks(first, second, both, shift):
    """The blocks of each class that hold what is looked for."""
    rows, columns = ((side - 1 >> shift) + 1 for side in first.shape)
    held = np.zeros((NOTHING, rows, columns), bool)
    for k in range(NOTHING):
        for y, x in np.argwhere(wanted(first, second, both, k)):
            held[k, y >> shift, x >> shift] = True
    return held


@pytest.mark.parametrize("width", [1, 2, 3, 7, 14, 50])
def test_reach_is_the_longest_row_of_a_disc(width):
    disc = within((2 * width + 3,) * 2, width + 1, width + 1, width)
    rows = [(disc[width + 1 + dy].sum() - 1) // 2 for dy in range(width + 1)]
    assert near.find_reach(width).tolist() == rows
    assert not disc[0].any()  # nothing further away than `width` rows


def test_blocks_are_at_least_half_as_wide_as_the_reach():
    assert [near.find_shift(width) for width in (1, 16, 17, 32, 33, 1000)] == [3, 3, 4, 4, 5, 9]


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("part", range(3))
def test_every_place_finds_what_is_within_its_reach(part, both):
    """Of all places row by row, and of some: a place may not lean on a neighbour that was not asked.

    Mutation seen to fail: the neighbour above trusted without a look at its class.
    """
    answers = set()
    for seed in range(part * 20, part * 20 + 20):
        first, second, width = draw(seed)
        held = blocks(first, second, both, near.find_shift(width))
        asked = np.random.default_rng(seed).random(first.shape) < (1.0 if seed % 2 else 0.4)
        places = np.argwhere((first != NOTHING) & asked)
        coded = np.array([(y << near.ROW) + x for y, x in places.tolist()], np.int64)
        found = near.look_around(coded, first, first, second, both, near.find_reach(width), held)
        for (y, x), answer in zip(places.tolist(), found.tolist(), strict=True):
            expected = (wanted(first, second, both, first[y, x]) & within(first.shape, y, x, width)).any()
            assert answer == expected, (seed, y, x)
            answers.add(answer)
    assert answers == {True, False}


def test_a_search_gives_a_place_that_is_looked_for_and_no_block_that_holds_none_is_opened():
    first, second, width = draw(7)
    reach, shift = near.find_reach(width), near.find_shift(width)
    held = blocks(first, second, True, shift)
    for y, x in np.argwhere(first == 1).tolist():
        place = near.search(y, x, 1, first, second, True, NOTHING, reach, held)
        seen = wanted(first, second, True, 1) & within(first.shape, y, x, width)
        assert (place >= 0) == seen.any()
        assert place < 0 or seen[place >> near.ROW, place & near.COLUMN]
        assert near.search(y, x, 1, first, second, True, NOTHING, reach, np.zeros_like(held)) == -1
