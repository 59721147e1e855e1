"""One pair of files -> its maps and row: what each file is checked for, and what the row keeps."""

import pickle

import numpy as np
import pytest

from segmeter.data.labels_config import LabelsConfig
from segmeter.data.sample import Reading
from segmeter.errors import DataError
from segmeter.evaluation.cases import CaseScorer
from segmeter.evaluation.manifest import Entry
from segmeter.evaluation.pairing import MaskPair
from segmeter.metrics.config.measures import BoundaryConfig, ErrorTypesConfig, InstancesConfig
from segmeter.metrics.config.metrics import MetricsConfig
from tests.data.crafted import THREE, put
from tests.evaluation.masks import LABELS, TARGETS, pair_masks, two_cases


def scorer(flag_missing=False, **metrics):
    reading = Reading(spec=THREE, label_map={}, max_pixels=10_000, key=None, instances=False)
    return CaseScorer(reading, MetricsConfig(bootstrap=0, **metrics), flag_missing=flag_missing)


def pairs_of(root, **options):
    return pair_masks(root / "predictions", root / "references", spec=THREE, **options).pairs


def test_the_maps_are_those_of_the_files(tmp_path):
    maps = scorer().read(pairs_of(two_cases(tmp_path))[0])
    assert (maps.case_id, maps.shape, maps.spacing, maps.spec) == ("a", (2, 3), (1.0, 1.0), THREE)
    np.testing.assert_array_equal(maps.target, TARGETS["a"])
    np.testing.assert_array_equal(maps.labels, LABELS["a"])
    assert maps.instances is maps.target_instances is None


def test_a_row_has_the_counts_the_spacing_that_was_given_and_measures(tmp_path):
    measured = scorer(flag_missing=True, spacing=(0.5, 2.0), measures=(BoundaryConfig(width=1),))
    found = pickle.loads(pickle.dumps(measured))(pairs_of(two_cases(tmp_path))[0])
    assert isinstance(found, Entry)
    row = found.row
    assert row.counts.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 1]]  # 255 is in none
    assert (row.height, row.width, row.depth, row.spacing, row.loss) == (2, 3, None, (0.5, 2.0), None)
    assert row.extra["missing"] == 0
    assert {name.partition("/")[0] for name in row.scores if "boundary_iou" in name} == {"boundary_iou"}


def test_a_missing_prediction_is_class_0_everywhere_and_says_so(tmp_path):
    two_cases(tmp_path)
    (tmp_path / "predictions" / "b.png").unlink()
    rows = [scorer(flag_missing=True)(pair).row for pair in pairs_of(tmp_path, missing="as_background")]
    assert [row.extra["missing"] for row in rows] == [0.0, 1.0]
    assert rows[1].counts[:, 1:].sum() == 0
    assert rows[1].counts.sum() == 6


@pytest.mark.parametrize("side", ["references", "predictions"])
def test_the_file_with_a_value_that_is_no_label_is_named(tmp_path, side):
    two_cases(tmp_path)
    put(tmp_path / side / "a.png", np.full((2, 3), 7, np.uint8))
    pair = pairs_of(tmp_path)[0]
    problems = scorer()(pair)
    assert isinstance(problems, tuple)
    assert len(problems) == 1
    assert f"{side}/a.png" in problems[0]
    assert "7 (6 pixels)" in problems[0]
    with pytest.raises(DataError, match=r"7 \(6 pixels\)"):
        scorer().read(pair)


def test_a_measure_that_can_not_be_taken_is_said_as_such_and_not_as_a_wrong_label(tmp_path):
    for side in ("references", "predictions"):
        (tmp_path / side).mkdir()
        np.save(tmp_path / side / "v.npy", np.zeros((3, 4, 5), np.uint8))
    problems = scorer(measures=(ErrorTypesConfig(),))(pairs_of(tmp_path)[0])
    assert problems == (
        "v: error_types: expected `target` to have two spatial axes for error types, got (3, 4, 5). Leave out this "
        "measure.",
    )


@pytest.mark.parametrize("hidden", [False, True])
def test_a_label_that_only_ignored_pixels_hide_is_refused_too(hidden, tmp_path):
    """Mutation seen to fail: it is counted."""
    root = two_cases(tmp_path)
    labels = np.array(LABELS["a"], np.uint8)
    labels[tuple(np.argwhere((np.array(TARGETS["a"]) == 255) == hidden)[0])] = 77
    put(root / "predictions" / "a.png", labels)
    (problem,) = scorer()(pairs_of(root)[0])
    assert "77 (1 pixels)" in problem


@pytest.mark.parametrize("side", [True, "predictions"])
def test_a_missing_prediction_is_class_0_whatever_the_label_map_makes_of_0(side, tmp_path):
    put(tmp_path / "references" / "a.png", np.array([[1, 1, 0], [0, 1, 1]], np.uint16))
    reading = Reading(
        spec=THREE, label_map={"0": 1, "1": 0, "255": 255}, max_pixels=10_000, instances=side, divisor=1000
    )
    pair = MaskPair(case_id="a", stem="a", references=(tmp_path / "references" / "a.png",), predictions=())
    found = CaseScorer(reading, MetricsConfig(bootstrap=0))(pair)
    assert isinstance(found, Entry), found
    assert found.row.counts.tolist() == [[4, 0, 0], [2, 0, 0], [0, 0, 0]]


def test_a_missing_prediction_of_cityscapes_has_no_pixel_of_a_class_that_0_is_not(tmp_path):
    labels = LabelsConfig(preset="cityscapes", instances=True)
    put(tmp_path / "references" / "a.png", np.array([[7, 26001, 26002]], np.uint16))
    reading = Reading(
        spec=labels.spec(),
        label_map=labels.label_map,
        max_pixels=10_000,
        instances=True,
        divisor=labels.instance_divisor,
    )
    pair = MaskPair(case_id="a", stem="a", references=(tmp_path / "references" / "a.png",), predictions=())
    found = CaseScorer(reading, MetricsConfig(bootstrap=0, measures=(InstancesConfig(objects="maps"),)))(pair)
    assert isinstance(found, Entry), found
    assert found.row.counts[:, 0].nonzero()[0].tolist() == [0, 13]  # road and car
    assert found.row.counts.sum() == found.row.counts[:, 0].sum() == 3
