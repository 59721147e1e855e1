"""Masks of COCO's objects: run lengths and polygons as pycocotools has them."""

import numpy as np
import pytest

from segmeter.data.masks.coco import expand_runs
from segmeter.export.objects import compress_runs
from tests.data.formats_written import library
from tests.data.masks.test_coco import OPTIONS, of_shapes, put, read_coco
from tests.differential.peers import quiet


@pytest.mark.parametrize("seed", range(20))
def test_run_lengths_are_those_of_pycocotools(seed):
    mask = np.random.default_rng(seed).random((17, 23)) < 0.1 + 0.04 * seed
    text = library("pycocotools.mask").encode(np.asfortranarray(mask, np.uint8))["counts"].decode()
    found = expand_runs(text)
    assert np.array_equal(np.repeat(np.arange(len(found)) % 2 == 1, found).reshape(23, 17).T, mask)
    assert compress_runs(found) == text


@pytest.mark.parametrize("seed", range(5))
def test_polygons_are_filled_as_pycocotools_does(seed, tmp_path):
    tools = library("pycocotools.coco")
    rng = np.random.default_rng(seed)
    polygons = [(rng.random((5, 2)) * [30, 20]).ravel().tolist() for _ in range(2)]
    path = put(tmp_path, of_shapes(polygons))
    theirs = tools.COCO(str(path))
    with quiet():
        wanted = theirs.annToMask(theirs.anns[0])
    assert np.array_equal(read_coco(path / "x", **OPTIONS), wanted)


def test_a_long_outline_within_its_bound_is_filled(tmp_path):
    """Corners on every pixel's edge, as tools write them that trace pixels."""
    tools = library("pycocotools.mask")
    comb = [[x + 0.01 * (y % 2), y] for x in range(0, 30, 2) for y in (range(20), range(20, 0, -1))[x // 2 % 2]]
    polygon = np.array([*comb, [30, 20], [30, 0]], float).ravel().tolist()
    path = put(tmp_path, of_shapes([polygon]))
    with quiet():
        wanted = tools.decode(tools.merge(tools.frPyObjects([polygon], 20, 30)))
    assert np.array_equal(read_coco(path / "x", **OPTIONS), wanted)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("o" * 500_000, "can't be read"),  # of which each digit said that another follows
        ("52203~", "can't be read"),
        ("5220/", "can't be read"),
        ("5220o", "ends within a number"),
    ],
)
def test_a_text_that_is_no_run_lengths_is_refused(text, fault):
    with pytest.raises(ValueError, match=fault):
        expand_runs(text)


def test_run_lengths_of_any_int64_are_read():
    runs = [2**63 - 1, 0, 2**63 - 1, 5]
    assert expand_runs(compress_runs(runs)) == runs
