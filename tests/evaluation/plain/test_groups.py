"""Groups of pairs: each pair once and in order, as many at a time as are small."""

from pathlib import Path

import pytest

from segmeter.classes import ClassSpec
from segmeter.evaluation.pairing import MaskPair
from segmeter.evaluation.plain import groups
from segmeter.evaluation.plain.groups import split_groups

THREE = ClassSpec(task="multiclass", names=("a", "b", "c"), colours=((0, 0, 0),) * 3)


def pairs(folder: Path, count: int = 2000) -> list[MaskPair]:
    """All of one file of a byte."""
    file = folder / "a.png"
    file.write_bytes(b"x")
    return [MaskPair(case_id=f"{i:04}", stem="a", references=(file,), predictions=(file,)) for i in range(count)]


def sizes(given: list[MaskPair], spec: ClassSpec = THREE, *, plain: bool) -> list[int]:
    found = list(split_groups(given, spec, plain=plain))
    assert [pair for group in found for pair in group] == given
    return list(map(len, found))


@pytest.mark.parametrize(("classes", "largest"), [(3, 64), (60, 36), (250, 8)])
def test_the_counts_of_a_group_take_little_memory(tmp_path: Path, classes: int, largest: int) -> None:
    """Mutation seen to fail: 64 whatever their counts take."""
    spec = ClassSpec(task="multiclass", names=tuple(map(str, range(classes))), colours=((0, 0, 0),) * classes)
    assert max(sizes(pairs(tmp_path), spec, plain=True)) == largest


def test_groups_are_smaller_towards_the_end(tmp_path: Path) -> None:
    """Mutation seen to fail: all of one size."""
    found = sizes(pairs(tmp_path), plain=True)
    assert found == sorted(found, reverse=True)
    assert (found[0], found[-2]) == (64, 8)


def test_pairs_that_take_long_come_by_eight_and_large_files_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutations seen to fail: 64 of all small files; files of any size together."""
    given = pairs(tmp_path, 20)
    assert set(sizes(pairs(tmp_path), plain=False)) == {8}
    monkeypatch.setattr(groups, "_SMALL", 1)
    assert sizes(given, plain=True) == [1] * 20
    (tmp_path / "a.png").unlink()  # what is missing is said by who reads it
    assert sizes(given, plain=True) == [1] * 20
