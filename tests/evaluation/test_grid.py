"""A map on the grid of another one, against a loop over its pixels; what can't be brought there is left or refused."""

from pathlib import Path

import numpy as np
import pytest

from segmeter.data.files.geometry import Geometry
from segmeter.errors import DataError
from segmeter.evaluation.spacings import NOTE, onto_grid

PATHS = {"path": Path("p.mha"), "reference": Path("r.mha")}


def place(*edges, origin=(0.0, 0.0, 0.0), angle=0.0, **more):
    """The place of a map with these edges along x, y and z in mm, turned about z."""
    cosine, sine = np.cos(angle), np.sin(angle)
    affine = np.eye(4)
    affine[:3, :3] = np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]]) * edges
    affine[:3, 3] = origin
    return Geometry(spacing=tuple(edges[::-1]), unit="mm", source="ITK header", affine=affine, **more)


def by_loop(values, geometry, wanted, shape):
    """The value whose centre is nearest to each new centre, one after the other; 0 outside."""
    found = np.zeros(shape, values.dtype)
    for index in np.ndindex(shape):
        backwards = np.array([*index[::-1], *[0] * (3 - len(shape)), 1.0])
        there = np.linalg.solve(geometry.affine, wanted.affine @ backwards)[: len(shape)][::-1]
        nearest = [int(np.floor(each + 0.5)) for each in there]
        if all(0 <= each < size for each, size in zip(nearest, values.shape, strict=True)):
            found[index] = values[tuple(nearest)]
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("axes", [2, 3])
def test_each_pixel_has_the_value_at_the_nearest_centre(seed, axes):
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 9, (5, 9, 11)[-axes:]).astype(np.uint8)
    origin = (*rng.uniform(-1, 1, 2), 0.0)
    geometry = place(0.8, 0.6, 2.1, origin=origin, angle=rng.uniform(-1, 1))
    wanted, shape = place(0.5, 0.7, 1.9, origin=(0.3, -0.4, 0.1)), (6, 8, 10)[-axes:]
    found, now = onto_grid(**PATHS, values=values, geometry=geometry, wanted=wanted, shape=shape)
    expected = by_loop(values, geometry, wanted, shape)
    assert found.dtype == values.dtype
    assert 0 < np.count_nonzero(expected) < expected.size or seed > 1
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(now.affine, wanted.affine)
    assert now.note == NOTE


def test_a_cut_volume_is_laid_where_it_was():
    whole = np.arange(1, 1 + 4 * 3 * 2).reshape(4, 3, 2)
    found, now = onto_grid(
        **PATHS,
        values=whole[1:3],
        geometry=place(1, 1, 3, origin=(0, 0, 3)),
        wanted=place(1, 1, 3, note="The header says so"),
        shape=whole.shape,
    )
    whole[[0, 3]] = 0
    np.testing.assert_array_equal(found, whole)
    assert now.note == f"The header says so; {NOTE}"


MAP, HERE = np.ones((4, 5), np.uint8), place(1, 1, 1)


@pytest.mark.parametrize(
    ("geometry", "wanted", "shape"),
    [
        pytest.param(HERE, HERE, (4, 5), id="one grid"),
        pytest.param(HERE.having(affine=None), place(2, 2, 1), (2, 2), id="no place"),
        pytest.param(HERE, place(2, 2, 1).having(affine=None), (2, 2), id="no place of the reference"),
        pytest.param(HERE, place(2, 2, 1).having(source="OME metadata"), (2, 2), id="another world"),
        pytest.param(HERE.having(crs="EPSG:1"), place(2, 2, 1).having(crs="EPSG:2"), (2, 2), id="another system"),
        pytest.param(HERE, place(2, 2, 1), (2, 2, 2), id="another number of axes"),
    ],
)
def test_what_need_not_or_can_not_be_brought_there_is_left(geometry, wanted, shape):
    assert onto_grid(**PATHS, values=MAP, geometry=geometry, wanted=wanted, shape=shape) is None


@pytest.mark.parametrize("origin", [(100.0, 0.0, 0.0), (0.0, 0.0, 0.6)], ids=["far away", "in another slice"])
def test_grids_without_a_common_pixel_are_refused(origin):
    wanted = place(1, 1, 1, origin=origin)
    with pytest.raises(DataError) as error:
        onto_grid(**PATHS, values=MAP, geometry=HERE, wanted=wanted, shape=(4, 5))
    (line,) = error.value.problems
    assert line.startswith("p.mha: expected `grid` to overlap that of its reference r.mha, got 4 x 5, ")
