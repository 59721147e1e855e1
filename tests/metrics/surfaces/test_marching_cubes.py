"""Surface elements equal lengths worked out by hand, and the tables of DeepMind's surface-distance."""

import numpy as np
import pytest

from segmeter.metrics.surfaces.distances import element_sizes


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
