"""A case's row and the columns of its measures, equal to the public functions on hand-made masks."""

import math
import zlib
from types import SimpleNamespace

import numpy as np
import pytest

from segmeter.errors import ConfigError, InputError
from segmeter.metrics.cases.table import MeasureColumn
from segmeter.metrics.config.measures import BoundaryConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig, check_metrics
from segmeter.metrics.measures import row
from segmeter.metrics.measures.protocol import find_regions, measure_case
from segmeter.metrics.measures.row import hash_objects, make_row
from segmeter.metrics.shapes import boundary_iou
from segmeter.metrics.surfaces import surface_metrics
from tests.data.crafted import THREE
from tests.metrics.build import BINARY, class_spec, maps_of, measured


def blobs(num_classes=4, shape=(24, 30), seed=0, ignore=True):
    """Rectangles of every class, moved a little in the prediction, with a strip of ignored pixels."""
    rng = np.random.default_rng(seed)
    target, labels = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
    for k in range(1, num_classes):
        y, x = rng.integers(0, 14, 2)
        target[y : y + 7, x : x + 9] = k
        labels[y + 1 : y + 8, x : x + 8] = k
    if ignore:
        target[:, 20:23] = 255
    return target, labels


def test_classes_and_groups_equal_the_functions_on_masks():
    target, labels = blobs()
    measures, groups = (SurfaceConfig(tolerances=(2,)), BoundaryConfig(ratio=0.05)), {"traffic": ("road", "tree")}
    maps = maps_of(target, labels, class_spec(4), spacing=(2.0, 0.5))
    found = measured(measures, maps, background=False, groups=groups)
    members = {"road": [1], "car": [2], "tree": [3], "traffic": [1, 3]}
    assert {name.rpartition("/")[2] for name in found} == set(members)
    for name, held in members.items():
        masks = np.isin(target, held), np.isin(labels, held) & (target != 255)
        surface = surface_metrics(*masks, spacing=(2.0, 0.5), tolerances=(2,))
        metrics = ("hd", "hd95", "hd95_pooled", "assd", "masd")
        assert [found[f"{metric}/{name}"] for metric in metrics] == [getattr(surface, metric) for metric in metrics]
        assert found[f"nsd@2/{name}"] == surface.nsd[0]
        boundary = boundary_iou(*(mask.astype(np.uint8) for mask in masks), num_classes=2, width=2)
        assert found[f"boundary_iou/{name}"] == boundary.iou[1]
        common, union = (found[f"sum:boundary_{part}/{name}"] for part in ("common", "union"))
        assert 0 < common == boundary.counts[1, 1]
        assert common / union == boundary.iou[1]


def test_only_chosen_classes_are_measured():
    for spec, classes, names in (
        (class_spec(3), ("car",), ["car"]),
        (class_spec(3), None, ["sky", "road", "car"]),
        (class_spec(2, "binary"), None, ["road"]),
    ):
        found = find_regions(SurfaceConfig(classes=classes), MetricsConfig(background=True), spec)
        assert [region.name for region in found] == names


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"area/car": 1.0}, r"`measures` to give MeasureColumn\(metric, region, value, summed\), got 'area/car'"),
        ([("area", "car", 1.0, False)], "`measures` to give MeasureColumn"),
        ([MeasureColumn("area", "car", 1.0)] * 2, "to give each column once, .* got 1.0 for area/car"),
        ([MeasureColumn("area/all", "car", 1.0)], "without '/' and 'sum:' in the metric, .* got 1.0 for area/all/car"),
        ([MeasureColumn("sum:area", "car", 1.0)], "without '/' and 'sum:' in the metric, .* got 1.0 for sum:area/car"),
        (
            [MeasureColumn("area", "car", math.nan, summed=summed) for summed in (False, True)],
            "`measures` to .* and finite sums, got nan for sum:area/car",
        ),
    ],
    ids=["mapping", "tuple", "twice", "slash", "sum", "nan"],
)
def test_what_is_no_column_is_refused(columns, message):
    with pytest.raises(InputError, match=message):
        measure_case(maps_of(*blobs(), class_spec(4)), [lambda seen: columns])


def test_classes_and_names_are_checked_before_any_case():
    measures = (SurfaceConfig(classes=("cra",)), BoundaryConfig(), BoundaryConfig(ratio=0.05))
    config = MetricsConfig(measures=measures, groups={"road": ("car", "car")}, slices="cases.csv")
    with pytest.raises(ConfigError) as caught:
        check_metrics(config, class_spec(3))
    slices, first, group, twice, second = caught.value.problems
    assert "`slice_by` to name columns of metrics.slices, got []" in slices
    assert "`groups.road` to name each once, got ['car', 'car']" in group
    assert "`measures` to name each once, got ['surface', 'boundary', 'boundary']" in twice
    assert "`measures.surface.classes` to name classes, got 'cra'. Did you mean 'car'?" in first
    assert "other names than 'road'" in second


TARGET, LABELS = np.array([[[0, 1, 1], [255, 0, 1]], [[0, 1, 0], [1, 1, 1]]], np.uint8)
PLANES = THREE.replace(task="multilabel", ignore_index=None)


@pytest.mark.parametrize(
    ("target", "labels", "spec", "size", "counts"),
    [
        (TARGET, LABELS, BINARY, (None, 2, 3), [[1, 1], [1, 2]]),
        (np.stack([TARGET] * 4), np.stack([LABELS] * 4), BINARY, (4, 2, 3), [[4, 4], [4, 8]]),
        (np.stack([LABELS] * 3), np.zeros((3, 2, 3), np.uint8), PLANES, (None, 2, 3), [[[2, 0], [4, 0]]] * 3),
    ],
    ids=["image", "volume", "planes"],
)
def test_ignored_pixels_are_not_counted_and_volumes_alone_have_a_depth(target, labels, spec, size, counts):
    row = make_row(maps_of(target, labels, spec), ())
    assert (row.case_id, row.depth, row.height, row.width) == ("c", *size)
    assert row.counts.tolist() == counts
    assert (row.loss, row.spacing, row.unit, dict(row.extra)) == (None, None, "", {})


def test_a_pixel_outside_the_classes_is_refused():
    labels = LABELS.copy()
    labels[0, 0] = 5
    with pytest.raises(InputError, match="1 pixel of 5"):
        make_row(maps_of(TARGET, labels, BINARY), ())


RNG = np.random.default_rng(0)
MAP = RNG.integers(0, 3, (7, 5))


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
