"""A target's checksum is that of its labels, however they are stored and in whatever parts they come."""

import zlib

import numpy as np
import pytest

from segmeter.metrics.measures.row import add_to_hash, hash_objects
from tests.data.crafted import THREE

RNG = np.random.default_rng(0)
MAP = RNG.integers(0, 3, (7, 5))
PLANES = THREE.replace(task="multilabel", ignore_index=None)


def hashes(target, spec, cut=None):
    """Of each plane, in one part or in two."""
    sums = [0] * (spec.num_classes if spec.is_multilabel else 1)
    for part in (target,) if cut is None else (target[..., :cut, :], target[..., cut:, :]):
        sums = add_to_hash(sums, part, spec)
    return sums


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int64", ">u2"])
def test_it_is_the_crc_of_the_labels(dtype):
    wanted = [zlib.crc32(MAP.astype(np.uint8).tobytes())]
    for target in (MAP, np.asfortranarray(MAP), MAP[None]):
        assert hashes(target.astype(dtype), THREE) == wanted


@pytest.mark.parametrize("cut", [1, 4])
def test_parts_give_the_checksum_of_the_whole(cut):
    planes = RNG.integers(0, 2, (3, 7, 5))
    assert hashes(MAP, THREE, cut) == hashes(MAP, THREE)
    assert hashes(planes, PLANES, cut) == [zlib.crc32(plane.astype(np.uint8).tobytes()) for plane in planes]


@pytest.mark.parametrize("renumber", [{1: 2, 2: 1}, {1: 10**12, 2: 5}, {1: -3, 2: 7}, {1: 200, 2: 900}], ids=str)
def test_objects_have_one_checksum_whatever_their_numbers(renumber):
    changed = MAP.astype(np.int64)
    for number, other in renumber.items():
        changed[number == MAP] = other
    assert hash_objects(changed) == hash_objects(MAP) == hash_objects(MAP.astype(np.uint16)[None])
    grown = changed.copy()
    grown[MAP == 0] = next(iter(renumber.values()))
    assert len({hash_objects(each) for each in (changed, grown, changed[::-1], changed * 0)}) == 4
