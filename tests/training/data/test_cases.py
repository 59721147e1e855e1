import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from segmeter.classes import ClassSpec
from segmeter.data.planes import VolumeSet
from segmeter.data.sample import Pair, Reading
from segmeter.training.data.cases import Budget, CachedDataset, PlaneCases
from tests.training.tiny import TinyCases

CASE_BYTES = 16 * 16 * 3 * 4 + 16 * 16


def test_what_fits_is_read_once_and_the_rest_each_time():
    cases = TinyCases(count=4)
    cached = CachedDataset(cases, Budget(2 * CASE_BYTES + CASE_BYTES // 2))
    for _ in range(3):
        for index in range(4):
            assert cached[index].case_id == f"case{index:02d}"
    assert sorted(cases.read) == [0, 1, 2, 2, 2, 3, 3, 3]
    np.testing.assert_array_equal(cached[1].image, TinyCases()[1].image)
    with pytest.raises(ValueError, match="read-only"):
        cached[1].target[0, 0] = 1


def test_a_case_that_two_threads_read_at_once_takes_its_memory_once():
    both = threading.Barrier(2, timeout=30)

    class MeetingCases(TinyCases):
        def __getitem__(self, index):
            both.wait()
            return super().__getitem__(index)

    cached = CachedDataset(MeetingCases(), Budget(3 * CASE_BYTES))
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(cached.__getitem__, [1, 1]))
    assert cached._budget.left == 2 * CASE_BYTES


def test_caches_share_a_budget():
    budget = Budget(3 * CASE_BYTES)
    train, val = CachedDataset(TinyCases(count=2), budget), CachedDataset(TinyCases(count=2), budget)
    for cached in (train, val):
        _ = cached[0], cached[1]
    assert budget.left == 0
    _ = train[0], train[1], val[0], val[1]
    assert (len(train.cases.read), len(val.cases.read)) == (2, 3)


SPEC = ClassSpec(task="multiclass", names=("background", "organ", "lesion"), colours=((0, 0, 0), (9, 0, 0), (0, 9, 0)))


@pytest.fixture
def volumes(tmp_path):
    """Volumes of 8 and 6 planes of other sizes, whose planes 2 and 3 hold an organ; that of the second has a lesion."""
    pairs = []
    for number, depth in enumerate((8, 6)):
        image = np.arange(depth * 4 * (5 + number), dtype=np.float32).reshape(depth, 4, -1) + 1000 * number
        mask = np.zeros(image.shape, np.uint8)
        mask[2:4, 1:3, 1:3] = 1
        mask[3, 1, 1] += number
        paths = [tmp_path / f"{role}{number}.npy" for role in ("image", "mask")]
        for path, pixels in zip(paths, (image, mask), strict=True):
            np.save(path, pixels)
        pairs.append(Pair(case_id=f"v{number}", paths=tuple(map(str, paths))))
    return VolumeSet(reading=Reading(spec=SPEC), in_channels=1, split="train", pairs=tuple(pairs), planes="k")


def test_all_planes_are_cases_of_a_validation(volumes):
    planes = PlaneCases(volumes)
    assert planes.places == [(0, number) for number in range(8)] + [(1, number) for number in range(6)]
    assert (planes.case_ids[0], planes.case_ids[-1]) == ("v0-k0000", "v1-k0005")
    assert planes[9].image[0, 0, 0] == 1024
    assert planes.presence[[2, 3, 11]].tolist() == [[True, True, False], [True, True, False], [True, True, True]]
    assert planes.kinds() == [(4, 5, "float32")] * 8 + [(4, 6, "float32")] * 6
    assert planes.contents() == volumes.contents()
    assert len(PlaneCases(replace(volumes, pairs=()))) == 0


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
    assert part.kinds() == [(4, 6, "float32"), (4, 5, "float32")]


def test_the_fingerprint_knows_how_planes_are_chosen(volumes):
    planes = PlaneCases(volumes)
    others = [PlaneCases(volumes, empty=0.0), PlaneCases(volumes, empty=0.5), planes.subset([1, 0])]
    others += [PlaneCases(replace(volumes, **how)) for how in ({"context": 1}, {"planes": "j"})]
    assert len({each.fingerprint() for each in (planes, *others)}) == 6
    assert PlaneCases(volumes).fingerprint() == planes.fingerprint()


def test_every_class_of_multilabel_is_an_object(tmp_path, volumes):
    """The first one too, which in other tasks is the background."""
    paths = [tmp_path / f"{name}.npy" for name in ("image", "first", "second")]
    for path, planes in zip(paths, ((), (1,), ()), strict=True):
        np.save(path, np.isin(np.indices((3, 4, 5))[0], planes).astype(np.uint8))
    spec = ClassSpec(task="multilabel", names=("organ", "lesion"), colours=SPEC.colours[:2])
    pair = Pair(case_id="v", paths=tuple(map(str, paths)))
    assert PlaneCases(replace(volumes, reading=Reading(spec=spec), pairs=(pair,)), empty=0.0).places == [(0, 1)]
