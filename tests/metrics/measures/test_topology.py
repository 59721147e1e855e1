"""Objects, holes, tunnels and cavities, and errors in their numbers: by hand, and as scikit-image counts them."""

import math

import numpy as np
import pytest
from scipy import ndimage
from skimage.measure import euler_number, label

from segmeter.metrics.config.measures import TopologyConfig
from segmeter.metrics.measures.masks import betti_numbers
from tests.metrics.build import BINARY, class_spec, maps_of, measured

RING = np.array([[0, 0, 0, 0, 0], [0, 1, 1, 1, 0], [0, 1, 0, 1, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0]], np.uint8)
FULL = np.pad(np.ones((3, 3), np.uint8), 1)


def solid(shape=(5, 5, 5)):
    return np.pad(np.ones(tuple(side - 2 for side in shape), bool), 1)


def test_a_cavity_a_tunnel_and_two_parts_of_a_volume():
    hollow, bored, two = solid(), solid(), solid((5, 5, 9))
    hollow[2, 2, 2] = False
    bored[2, 2, :] = False
    two[:, :, 4] = False
    assert betti_numbers(hollow) == (1, 0, 1)
    assert betti_numbers(bored) == (1, 1, 0)
    assert betti_numbers(two) == (2, 0, 0)


def test_corners_join_objects_of_8_neighbours_and_holes_of_4():
    diagonal = np.eye(2, dtype=bool)
    assert (betti_numbers(diagonal, 8), betti_numbers(diagonal, 4)) == ((1, 0), (2, 0))
    ring = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], bool)  # its hole is enclosed by corners
    assert (betti_numbers(ring, 8), betti_numbers(ring, 4)) == ((1, 1), (4, 0))
    assert betti_numbers(np.ones((3, 3), bool)) == (1, 0)  # what lies outside of the image is background
    assert betti_numbers(np.zeros((3, 3), bool)) == (0, 0)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("shape", [(13, 17), (7, 8, 9)], ids=["image", "volume"])
def test_the_euler_number_is_that_of_scikit_image_and_of_the_betti_numbers(shape, seed):
    rng = np.random.default_rng(seed)
    mask = ndimage.uniform_filter(rng.random(shape), 1 + seed % 3) < rng.uniform(0.3, 0.7)
    for connectivity, theirs in ((8, len(shape)), (4, 1)):
        numbers = betti_numbers(mask, connectivity)
        assert min(numbers) >= 0
        euler = sum((-1) ** i * number for i, number in enumerate(numbers))
        assert euler == euler_number(np.pad(mask, 1), connectivity=theirs)


def errors(target, labels, *, spec=BINARY, **options):
    return measured((TopologyConfig(**options),), maps_of(target, labels, spec), background=False)


def test_a_closed_hole_and_a_further_object_by_hand():
    assert errors(RING, FULL) == {"betti0_error/road": 0, "betti1_error/road": 1, "euler_error/road": 1}
    more = RING.copy()
    more[0, 4] = 1  # joined through a corner
    assert errors(RING, more) == dict.fromkeys(errors(RING, RING), 0)
    assert errors(RING, more, connectivity=4) == {
        "betti0_error/road": 1, "betti1_error/road": 0, "euler_error/road": 1
    }  # fmt: skip


def test_a_cavity_of_a_volume_has_a_number_of_its_own():
    full = solid().astype(np.uint8)
    hollow = full.copy()
    hollow[2, 2, 2] = 0
    wanted = {"betti0": 0, "betti1": 0, "betti2": 1, "euler": 1}
    assert errors(full, hollow) == {f"{name}_error/road": value for name, value in wanted.items()}


def test_what_is_missed_or_made_up_is_infinite_and_nothing_on_both_sides_undefined():
    nothing = np.zeros_like(RING)
    for pair in ((RING, nothing), (nothing, RING), (np.where(RING, 1, 255).astype(np.uint8), nothing)):
        assert set(errors(*pair).values()) == {math.inf}
    assert all(math.isnan(value) for value in errors(nothing, nothing).values())
    ignored = np.full_like(RING, 255)
    assert all(math.isnan(value) for value in errors(ignored, RING).values())


@pytest.mark.parametrize("seed", range(12))
def test_errors_are_differences_of_what_scikit_image_counts(seed):
    """Far from the edge and in a corner alike. Mutation seen to fail: each side cut to a box of its own, without it."""
    rng = np.random.default_rng(seed)
    spec = class_spec(3)
    target, labels = (
        np.digitize(ndimage.gaussian_filter(rng.normal(size=(24, 26)), 1.2), (-0.1, 0.1)).astype(np.uint8)
        for _ in range(2)
    )
    found = errors(target, labels, spec=spec)
    for k in (1, 2):
        one, other = (np.pad(maps == k, 1) for maps in (target, labels))
        euler = [euler_number(mask, connectivity=2) for mask in (one, other)]
        objects = [label(mask, connectivity=2).max() for mask in (one, other)]
        holes = [count - number for count, number in zip(objects, euler, strict=True)]
        expected = [abs(pair[0] - pair[1]) for pair in (objects, holes, euler)]
        assert [found[f"{name}_error/{spec.names[k]}"] for name in ("betti0", "betti1", "euler")] == expected
