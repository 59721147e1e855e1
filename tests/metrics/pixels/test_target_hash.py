"""A target's checksum is that of its labels, however they are stored and in whatever parts they come."""

import zlib

import numpy as np
import pytest

from segmeter.metrics.measures.row import TargetHash, hash_objects, hash_target
from tests.data.crafted import THREE

RNG = np.random.default_rng(0)
MAP = RNG.integers(0, 3, (7, 5))
PLANES = THREE.replace(task="multilabel", ignore_index=None)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int64", ">u2"])
def test_it_is_the_crc_of_the_labels(dtype):
    wanted = zlib.crc32(MAP.astype(np.uint8).tobytes())
    assert hash_target(MAP.astype(dtype), THREE) == wanted
    assert hash_target(np.asfortranarray(MAP.astype(dtype)), THREE) == wanted


@pytest.mark.parametrize("spec", [THREE, PLANES], ids=lambda spec: spec.task)
@pytest.mark.parametrize("cut", [1, 4])
def test_parts_give_the_checksum_of_the_whole(spec, cut):
    target = RNG.integers(0, 2, (3, 7, 5)) if spec.is_multilabel else MAP
    parts = TargetHash(spec)
    parts.add(target[..., :cut, :])
    parts.add(target[..., cut:, :])
    assert parts.value() == hash_target(target, spec)


def test_another_target_has_another_one():
    moved = MAP.copy()
    moved[0, :2], moved[1, :2] = MAP[1, :2], MAP[0, :2]
    planes = np.stack([k == MAP for k in range(3)]).astype(np.uint8)
    found = {hash_target(MAP, THREE), hash_target(moved, THREE)}
    assert len(found | {hash_target(planes, PLANES), hash_target(planes[::-1], PLANES)}) == 4
    assert hash_target(MAP[None], THREE) in found


@pytest.mark.parametrize("renumber", [{1: 2, 2: 1}, {1: 10**12, 2: 5}, {1: -3, 2: 7}, {1: 200, 2: 900}], ids=str)
def test_objects_have_one_checksum_whatever_their_numbers(renumber):
    changed = MAP.astype(np.int64)
    for number, other in renumber.items():
        changed[number == MAP] = other
    assert hash_objects(changed) == hash_objects(MAP) == hash_objects(MAP.astype(np.uint16)[None])
    grown = changed.copy()
    grown[MAP == 0] = next(iter(renumber.values()))
    assert len({hash_objects(each) for each in (changed, grown, changed[::-1], changed * 0)}) == 4
