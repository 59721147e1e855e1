"""Surfaces by SciPy's erosion, distances by a table of every pair of points, and the sizes of surface elements."""

import numpy as np
import pytest
from scipy import ndimage
from scipy.spatial.distance import cdist

from segmeter.metrics.distances import distances_by_class, element_sizes, find_surface

SPACING = np.array([2.0, 0.5, 1.0])


def maps(axes, seed):
    rng = np.random.default_rng(seed)
    target = (ndimage.uniform_filter(rng.random((9, 10, 8)[:axes]), 3) * 6).astype(np.uint8)
    return target, np.roll(target, 1, axis=-1)


def surface_of(mask):
    return np.argwhere(mask & ~ndimage.binary_erosion(mask))


def elements_of(mask):
    """Centres between 2 x 2 (2 x 2 x 2) pixels that are not alike, in pixels and from the corner of the grown map."""
    padded = np.pad(mask, 1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2,) * mask.ndim)
    held = windows.sum(axis=tuple(range(-mask.ndim, 0)))
    return np.argwhere((held > 0) & (held < 2**mask.ndim))


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize(("surface", "points_of"), [("border_pixels", surface_of), ("marching_cubes", elements_of)])
def test_distances_are_the_least_of_all_pairs(axes, surface, points_of):
    target, mask = maps(axes, seed=axes)
    spacing = SPACING[:axes]
    classes = range(1, int(target.max()) + 1)
    pairs = distances_by_class(target, mask, classes, spacing, surface=surface)
    for k, (ours, theirs) in zip(classes, pairs, strict=True):
        table = cdist(points_of(target == k) * spacing, points_of(mask == k) * spacing)
        np.testing.assert_allclose(np.sort(ours.distances), np.sort(table.min(axis=1)), rtol=1e-12)
        np.testing.assert_allclose(np.sort(theirs.distances), np.sort(table.min(axis=0)), rtol=1e-12)
        assert ours.weighted == (surface == "marching_cubes")


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_the_surface_of_every_value_is_its_mask_without_the_erosion(axes):
    target, _ = maps(max(axes, 2), seed=5)
    target = target[0] if axes == 1 else target
    for value in np.unique(target):
        mask = target == value
        np.testing.assert_array_equal(np.argwhere(find_surface(target) & mask), surface_of(mask))


def test_the_lengths_of_every_square_by_hand():
    vertical, horizontal = 3.0, 4.0
    corner, lengths = 2.5, element_sizes((vertical, horizontal))  # half of the diagonal
    rows, columns, opposite = (0b0011, 0b1100), (0b0101, 0b1010), (0b0110, 0b1001)
    expected = np.full(16, corner)
    expected[[0, 15]] = 0
    expected[list(rows)], expected[list(columns)], expected[list(opposite)] = horizontal, vertical, 2 * corner
    np.testing.assert_array_equal(lengths, expected)


@pytest.mark.parametrize("spacing", [(1, 1), (2, 0.7), (1, 1, 1), (3.1, 0.2, 1.4)], ids=str)
def test_every_code_measures_as_in_surface_distance(spacing):
    tables = pytest.importorskip("surface_distance.lookup_tables")
    if len(spacing) == 2:
        kernel = tables.ENCODE_NEIGHBOURHOOD_2D_KERNEL
        theirs = tables.create_table_neighbour_code_to_contour_length(spacing)
    else:
        kernel = tables.ENCODE_NEIGHBOURHOOD_3D_KERNEL
        theirs = tables.create_table_neighbour_code_to_surface_area(spacing)
    weights = kernel.reshape(-1).tolist()
    codes = [sum(w for bit, w in enumerate(weights) if code >> bit & 1) for code in range(len(theirs))]
    np.testing.assert_allclose(element_sizes(spacing), theirs[codes], rtol=1e-14)
