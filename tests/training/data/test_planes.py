"""Planes of volumes as the cases of a training: all with an object, and a bounded number without."""

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.data.planes import VolumeSet
from segmeter.data.sample import Pair
from segmeter.training.data.cases import PlaneCases

SPEC = ClassSpec(task="multiclass", names=("background", "organ", "lesion"), colours=((0, 0, 0), (9, 0, 0), (0, 9, 0)))


@pytest.fixture
def volumes(tmp_path):
    """Two volumes of 8 and 6 planes, whose planes 2 and 3 hold an organ; that of the second has a lesion."""
    pairs = []
    for number, depth in enumerate((8, 6)):
        image = np.arange(depth * 20, dtype=np.float32).reshape(depth, 4, 5) + 1000 * number
        mask = np.zeros(image.shape, np.uint8)
        mask[2:4, 1:3, 1:3] = 1
        mask[3, 1, 1] += number
        paths = [tmp_path / f"{role}{number}.npy" for role in ("image", "mask")]
        for path, pixels in zip(paths, (image, mask), strict=True):
            np.save(path, pixels)
        pairs.append(Pair(case_id=f"v{number}", paths=tuple(map(str, paths))))
    return VolumeSet(spec=SPEC, in_channels=1, split="train", pairs=tuple(pairs), planes="k")


def test_all_planes_are_cases_of_a_validation(volumes):
    planes = PlaneCases(volumes)
    assert planes.places == [(0, number) for number in range(8)] + [(1, number) for number in range(6)]
    assert (planes.case_ids[0], planes.case_ids[-1]) == ("v0-k0000", "v1-k0005")
    assert planes[9].image[0, 0, 0] == 1020
    assert planes.presence[[2, 3, 11]].tolist() == [[True, True, False], [True, True, False], [True, True, True]]
    assert set(planes.kinds()) == {(4, 5, "float32")}


@pytest.mark.parametrize(("empty", "count"), [(0.0, 4), (0.5, 6), (1.0, 8), (100.0, 14)])
def test_planes_without_an_object_are_bounded(volumes, empty, count):
    planes = PlaneCases(volumes, empty=empty)
    assert len(planes) == count
    assert planes.presence[:, 1].sum() == 4, "every plane with an object is kept"
    assert [planes[index].target.any() for index in range(count)] == planes.presence[:, 1].tolist()


def test_a_subset_keeps_what_is_known_of_its_planes(volumes):
    part = PlaneCases(volumes).subset([11, 2])
    assert (part.case_ids, len(part)) == (("v1-k0003", "v0-k0002"), 2)
    assert part.presence[:, 2].tolist() == [True, False]
    np.testing.assert_array_equal(part[1].target, np.load(volumes.pairs[0].masks[0])[2])


def test_the_fingerprint_knows_how_planes_are_chosen(volumes):
    assert len({PlaneCases(volumes, empty=empty).fingerprint() for empty in (None, 0.0, 0.5)}) == 3
    assert PlaneCases(volumes).fingerprint() == PlaneCases(volumes).fingerprint()
