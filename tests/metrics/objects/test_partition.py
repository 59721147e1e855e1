"""How a prediction cuts and joins objects: known values, and scikit-image on random maps."""

import numpy as np
import pytest
from skimage.metrics import adapted_rand_error, variation_of_information

from segmeter.metrics.objects.matching import find_overlaps, partition_scores


def scores(target, instances, missed="pixels"):
    return partition_scores(find_overlaps(np.array(target), np.array(instances)), missed)[0]


def test_known_values_of_the_variation_of_information():
    # two pixels of objects 1 and 2 in one segment of 2: 2/3 of the pixels with 1 bit each; 3 is missed
    found = scores([[1, 0], [2, 3]], [[1, 1], [1, 0]])
    assert (found["voi_split"], found["voi_merge"]) == (0, pytest.approx(2 / 3))
    found = scores([[1, 2, 3, 4]], [[1, 1, 8, 8]])
    assert (found["voi_split"], found["voi_merge"]) == (0, 1)


def test_known_values_of_the_adapted_rand_error():
    # 4 pixels: 1 pair in one segment and object at most; of the 2 pairs in objects 1 is found, and it is the only one
    found = scores([[2, 1], [1, 2]], [[1, 2], [3, 1]])
    assert found["are"] == pytest.approx(1 / 3)


def random_pair(seed):
    rng = np.random.default_rng(seed)
    target = rng.integers(0, 6, (3, 4))
    instances = np.where(
        rng.random((12, 16)) < 0.8, np.kron(target, np.ones((4, 4), int)), rng.integers(0, 9, (12, 16))
    )
    return np.kron(target, np.ones((4, 4), int)), instances


@pytest.mark.parametrize("seed", range(100))
def test_scikit_image_gives_the_same_under_its_rule_and_under_ours(seed):
    target, instances = random_pair(seed)
    alone = np.where(instances == 0, np.arange(instances.size).reshape(instances.shape) + 100, instances)
    for given, missed in ((instances, "segment"), (alone, "pixels")):  # every missed pixel a segment of its own
        found = scores(target, instances, missed)
        split, merge = variation_of_information(target, given, ignore_labels=[0])
        assert (found["voi_split"], found["voi_merge"]) == (
            pytest.approx(split, abs=1e-9),
            pytest.approx(merge, abs=1e-9),
        )
        error, _, _ = adapted_rand_error(target, given, ignore_labels=[0])
        assert found["are"] == pytest.approx(error)


def test_an_object_that_is_missed_is_not_found_whole():
    target, elsewhere = [[1, 1, 1, 0, 0]], [[0, 0, 0, 7, 7]]
    assert scores(target, elsewhere, "segment")["are"] == 0  # what scikit-image says
    assert scores(target, elsewhere)["are"] == 1
    assert scores(target, elsewhere)["voi_split"] == pytest.approx(np.log2(3))


def test_nothing_to_cut_has_no_score_and_an_empty_side_the_worst():
    assert np.isnan([*scores([[0, 0]], [[0, 0]]).values()]).all()
    for empty in (scores([[0, 0]], [[1, 0]]), scores([[1, 0]], [[0, 0]])):
        assert empty == {"voi": np.inf, "voi_split": np.inf, "voi_merge": np.inf, "are": 1.0}
