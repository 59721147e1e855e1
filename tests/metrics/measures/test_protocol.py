"""Measures of a case: columns by class and group, equal to the public functions on hand-made masks."""

import math

import numpy as np
import pytest

from segmeter.errors import ConfigError, InputError
from segmeter.metrics.cases.table import MeasureColumn
from segmeter.metrics.config.measures import MEASURES, BoundaryConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig, check_metrics
from segmeter.metrics.measures.protocol import Region, build_measures, find_regions, measure_case
from segmeter.metrics.shapes import boundary_iou
from segmeter.metrics.surfaces import surface_metrics
from tests.metrics.build import class_spec, maps_of, measured


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


def test_multilabel_planes_are_measured_one_by_one():
    planes = [blobs(2, seed=seed) for seed in (1, 2)]
    target, labels = (np.stack(maps) for maps in zip(*planes, strict=True))
    measures = SurfaceConfig(), BoundaryConfig()
    found = measured(measures, maps_of(target, labels, class_spec(2, "multilabel")))
    for name, plane in zip(("sky", "road"), planes, strict=True):
        alone = measured(measures, maps_of(*plane))
        assert found[f"assd/{name}"] == alone["assd/road"]
        assert found[f"boundary_iou/{name}"] == alone["boundary_iou/road"]


def test_a_volume_has_surfaces_in_the_unit_of_its_spacing():
    target, labels = np.zeros((2, 5, 6, 7), np.uint8)
    target[1, 2, 3], labels[3, 2, 3] = 1, 1
    assert measured((SurfaceConfig(),), maps_of(target, labels, spacing=(2.5, 1.0, 1.0)))["hd/road"] == 5.0


def test_what_a_target_leaves_out_is_in_no_mask():
    first, second = maps_of([[1, 255, 0]], [[1, 1, 1]]).masks(Region(name="road", members=(1,)))
    assert first.tolist() == [[True, False, False]]
    assert second.tolist() == [[True, False, True]]


def test_only_chosen_classes_are_measured():
    for spec, classes, names in (
        (class_spec(3), ("car",), ["car"]),
        (class_spec(3), None, ["sky", "road", "car"]),
        (class_spec(2, "binary"), None, ["road"]),
    ):
        found = find_regions(SurfaceConfig(classes=classes), MetricsConfig(background=True), spec)
        assert [region.name for region in found] == names


def test_two_measures_of_one_column_are_refused():
    maps = maps_of(*blobs(), class_spec(4))
    measures = build_measures(MetricsConfig(measures=(SurfaceConfig(),)), maps.spec)
    with pytest.raises(InputError, match=r"`measures` to give each column once, .* for hd/sky"):
        measure_case(maps, [*measures, *measures])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"area/car": 1.0}, r"`measures` to give MeasureColumn\(metric, region, value, summed\), got 'area/car'"),
        ([("area", "car", 1.0, False)], "`measures` to give MeasureColumn"),
        ([MeasureColumn("area/all", "car", 1.0)], "without '/' and 'sum:' in the metric, .* got 1.0 for area/all/car"),
        ([MeasureColumn("sum:area", "car", 1.0)], "without '/' and 'sum:' in the metric, .* got 1.0 for sum:area/car"),
        (
            [MeasureColumn("area", "car", math.nan, summed=summed) for summed in (False, True)],
            "`measures` to .* and finite sums, got nan for sum:area/car",
        ),
    ],
    ids=["mapping", "tuple", "slash", "sum", "nan"],
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
    assert {"boundary", "surface"} <= set(MEASURES.names())
