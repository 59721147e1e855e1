"""A row of maps, counted by hand, and checksums of its target, in whatever form and parts it comes."""

import zlib
from types import SimpleNamespace

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.metrics.cases.table import MeasureColumn
from segmeter.metrics.measures import row
from segmeter.metrics.measures.row import hash_objects, make_row
from tests.data.crafted import THREE
from tests.metrics.build import maps_of

GREY = (1, 1, 1)
BINARY = ClassSpec(task="binary", names=("ground", "cell"), colours=((0, 0, 0), GREY), ignore_index=9)
LABELLED = ClassSpec(task="multilabel", names=("a", "b", "c"), colours=(GREY,) * 3)
TARGET = np.array([[0, 1, 1], [9, 0, 1]], np.uint8)
LABELS = np.array([[0, 1, 0], [1, 1, 1]], np.uint8)


def test_an_image_has_its_counts_without_ignored_pixels_and_no_depth():
    row = make_row(maps_of(TARGET, LABELS, BINARY), ())
    assert (row.case_id, row.height, row.width, row.depth) == ("c", 2, 3, None)
    assert row.counts.tolist() == [[1, 1], [1, 2]]
    assert (row.loss, row.spacing, row.unit, dict(row.extra)) == (None, None, "", {})


def test_a_volume_has_a_depth():
    row = make_row(maps_of(np.stack([TARGET] * 4), np.stack([LABELS] * 4), BINARY), ())
    assert (row.depth, row.height, row.width) == (4, 2, 3)
    assert row.counts.tolist() == [[4, 4], [4, 8]]


def test_planes_of_multilabel_are_no_depth():
    target = np.zeros((3, 2, 5), np.uint8)
    target[1, 0] = 1
    row = make_row(maps_of(target, np.zeros_like(target), LABELLED), ())
    assert (row.height, row.width, row.depth) == (2, 5, None)
    assert row.counts[:, 1, 0].tolist() == [0, 5, 0]


def test_measures_leave_their_columns():
    def area(maps):
        return (MeasureColumn("area", "cell", float((maps.labels == 1).sum())),)

    assert make_row(maps_of(TARGET, LABELS, BINARY), (area,)).scores == {"area/cell": 4.0}


def test_a_pixel_outside_the_classes_is_refused():
    labels = LABELS.copy()
    labels[0, 0] = 5
    with pytest.raises(InputError, match="1 pixel of 5"):
        make_row(maps_of(TARGET, labels, BINARY), ())


RNG = np.random.default_rng(0)
MAP = RNG.integers(0, 3, (7, 5))
PLANES = THREE.replace(task="multilabel", ignore_index=None)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int64", ">u2"])
def test_it_is_the_crc_of_the_labels(dtype):
    wanted = zlib.crc32(MAP.astype(np.uint8).tobytes())
    for target in (MAP, np.asfortranarray(MAP), MAP[None]):
        given = target.astype(dtype)
        assert make_row(maps_of(given, given, THREE), ()).target_crc32 == wanted


@pytest.mark.parametrize("lines", [1, 4])
def test_bands_give_the_counts_and_the_checksum_of_the_whole(monkeypatch, lines):
    monkeypatch.setattr(row, "_LINES", lines)
    planes = RNG.integers(0, 2, (3, 7, 5))
    for target, spec in ((MAP, THREE), (planes, PLANES)):
        array = SimpleNamespace(shape=target.shape, read=lambda top, stop, given=target: given[..., top:stop, :])
        found = make_row(row.BandedMaps(case_id="c", target=array, labels=array, spec=spec), ())
        whole = make_row(maps_of(target, target, spec), ())
        np.testing.assert_array_equal(found.counts, whole.counts)
        assert found.target_crc32 == whole.target_crc32
    each = [zlib.crc32(plane.astype(np.uint8).tobytes()) for plane in planes]
    assert whole.target_crc32 == zlib.crc32(np.array(each, "<u4").tobytes())


@pytest.mark.parametrize("renumber", [{1: 2, 2: 1}, {1: 10**12, 2: 5}, {1: -3, 2: 7}, {1: 200, 2: 900}], ids=str)
def test_objects_have_one_checksum_whatever_their_numbers(renumber):
    changed = MAP.astype(np.int64)
    for number, other in renumber.items():
        changed[number == MAP] = other
    assert hash_objects(changed) == hash_objects(MAP) == hash_objects(MAP.astype(np.uint16)[None])
    grown = changed.copy()
    grown[MAP == 0] = next(iter(renumber.values()))
    assert len({hash_objects(each) for each in (changed, grown, changed[::-1], changed * 0)}) == 4
