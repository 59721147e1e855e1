"""Surface elements equal lengths and areas worked out by hand, and the tables of DeepMind's surface-distance."""

import itertools
import math

import numpy as np
import pytest

from segmeter.metrics.distances import element_sizes

SQUARE = list(itertools.product((0, 1), repeat=2))
CUBE = list(itertools.product((0, 1), repeat=3))


def code_of(*held):
    corners = SQUARE if len(held[0]) == 2 else CUBE
    return sum(1 << corners.index(corner) for corner in held)


def test_the_lengths_of_every_square_by_hand():
    vertical, horizontal = 3.0, 4.0
    corner, lengths = 2.5, element_sizes((vertical, horizontal))  # half of the diagonal
    rows, columns, opposite = (0b0011, 0b1100), (0b0101, 0b1010), (0b0110, 0b1001)
    expected = np.full(16, corner)
    expected[[0, 15]] = 0
    expected[list(rows)], expected[list(columns)], expected[list(opposite)] = horizontal, vertical, 2 * corner
    np.testing.assert_array_equal(lengths, expected)


def test_areas_that_are_known_by_hand():
    a, b, c = 2.0, 3.0, 5.0
    areas = element_sizes((a, b, c))
    corner = math.sqrt((a * b) ** 2 + (b * c) ** 2 + (a * c) ** 2) / 8  # a triangle over half edges
    known = {
        code_of((0, 0, 0)): corner,
        code_of(*CUBE[1:]): corner,
        code_of((0, 0, 0), (1, 1, 1)): 2 * corner,
        code_of((0, 0, 0), (1, 1, 0)): 2 * corner,  # apart, not joined
        code_of(*(set(CUBE) - {(0, 0, 0), (1, 1, 0)})): 2 * corner,
        code_of((0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0)): 4 * corner,
        code_of((0, 0, 0), (0, 0, 1)): c * math.hypot(a, b) / 2,  # a roof along an edge
        code_of(*CUBE[:4]): b * c,  # a flat face
        code_of((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)): 6 * corner,  # a regular hexagon, stretched
        # three corners of a face: a triangle of half the face, and a trapezium of 3 small triangles
        code_of((0, 0, 0), (0, 0, 1), (0, 1, 0)): b * c / 2 + 3 * corner,
    }
    np.testing.assert_allclose([areas[code] for code in known], list(known.values()), rtol=1e-14)


@pytest.mark.parametrize("spacing", [(1, 1), (2, 0.7), (1, 1, 1), (3.1, 0.2, 1.4)], ids=str)
def test_every_code_measures_as_in_surface_distance(spacing):
    tables = pytest.importorskip("surface_distance.lookup_tables")
    if len(spacing) == 2:
        kernel = tables.ENCODE_NEIGHBOURHOOD_2D_KERNEL
        theirs = tables.create_table_neighbour_code_to_contour_length(spacing)
    else:
        kernel = tables.ENCODE_NEIGHBOURHOOD_3D_KERNEL
        theirs = tables.create_table_neighbour_code_to_surface_area(spacing)
    weights = kernel.reshape(-1)
    codes = [sum(int(w) for bit, w in enumerate(weights) if code >> bit & 1) for code in range(len(theirs))]
    np.testing.assert_allclose(element_sizes(spacing), theirs[codes], rtol=1e-14)
