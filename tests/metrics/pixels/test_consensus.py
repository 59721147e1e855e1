"""Majority and STAPLE of several label maps."""

from collections import Counter

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.metrics.summary.agreement import majority_vote, staple
from tests.data.crafted import BINARY, THREE

TWO = BINARY.replace(ignore_index=255)
PLANES = ClassSpec(task="multilabel", names=("a", "b"), colours=((0, 0, 0),) * 2, ignore_index=255)


def readers(seed: int, count: int, shape: tuple[int, ...], values: int) -> list[np.ndarray]:
    """Maps of readers who mostly agree."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, values, shape)
    return [
        np.where(rng.random(shape) < 0.7, truth, rng.integers(0, values, shape)).astype(np.uint8) for _ in range(count)
    ]


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_a_majority_is_the_label_with_most_votes_and_undecided_on_a_tie(count: int) -> None:
    maps = readers(count, count, (9, 8), 3)
    maps[0][2, 2] = 255
    found = majority_vote(maps, THREE)
    for place in np.ndindex(9, 8):
        votes = Counter(int(one[place]) for one in maps).most_common()
        tied = len(votes) > 1 and votes[0][1] == votes[1][1]
        assert found[place] == (255 if tied or place == (2, 2) else votes[0][0])


def test_planes_of_a_multilabel_map_are_voted_on_one_by_one() -> None:
    maps = readers(1, 3, (2, 5, 5), 2)
    assert (majority_vote(maps, PLANES) == (sum(maps) >= 2)).all()


def test_staple_is_simpleitks_for_two_classes_several_and_planes() -> None:
    sitk = pytest.importorskip("SimpleITK")
    two, three, planes = readers(2, 4, (12, 9), 2), readers(3, 4, (12, 9), 3), readers(4, 3, (2, 6, 7), 2)

    def ours_and_theirs(maps: list[np.ndarray]) -> np.ndarray:
        return sitk.GetArrayFromImage(sitk.STAPLE([sitk.GetImageFromArray(one) for one in maps], 1.0)) >= 0.5

    assert (staple(two, TWO) == ours_and_theirs(two)).all()
    theirs = sitk.GetArrayFromImage(sitk.MultiLabelSTAPLE([sitk.GetImageFromArray(one) for one in three], 255))
    assert (staple(three, THREE) == theirs).all()
    assert (staple(planes, PLANES) == np.stack([ours_and_theirs([one[k] for one in planes]) for k in (0, 1)])).all()


def test_staple_of_empty_maps_is_empty_and_keeps_ignored_pixels() -> None:
    pytest.importorskip("SimpleITK")
    maps = [np.zeros((4, 4), np.uint8) for _ in range(3)]
    maps[1][0, 0] = 255
    found = staple(maps, TWO)
    assert found[0, 0] == 255
    assert found.sum() == 255
