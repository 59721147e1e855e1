"""shard=2/7: how it is read, what it takes, what a manifest says of it, what is refused; and the kinds of launch=."""

import hashlib
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from segmeter.data.sample import Sample
from segmeter.data.verification.splits import build_dataset
from segmeter.distributed.config import LAUNCHES
from segmeter.distributed.shards import (
    Rank,
    Shard,
    check_alone,
    describe_shard,
    find_rank,
    hash_names,
    own_batches,
    parse_shard,
    split_batches,
    take_batches,
)
from segmeter.errors import ConfigError, InputError
from segmeter.inference.batches import same_shape_groups
from tests.data.crafted import folder, make_folder


@pytest.mark.parametrize("text", ["", "2", "0/3", "4/3", "1/0", "01/3", "1/03", "-1/3", "1/3 ", "1/3\n", "1.0/3"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_shard(text)
    assert str(caught.value) == f"config: expected `shard` to be NUMBER/COUNT, such as 2/7, got {text!r}."


@pytest.mark.parametrize("count", [1, 2, 3, 5, 11, 14])
def test_shards_share_out_every_item_once_and_evenly(count: int) -> None:
    items = list(range(11))
    parts = [Shard(number, count).take(items) for number in range(1, count + 1)]
    assert sorted(item for part in parts for item in part) == items
    assert {item % count for item in parts[0]} == {0}
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_shard_is_read_and_written_alike() -> None:
    assert parse_shard("2/7") == Shard(2, 7)
    for text in ("1/1", "7/7", "999999999/999999999"):
        assert str(parse_shard(text)) == text


def test_a_manifest_names_the_place_and_the_cases_of_the_whole_run() -> None:
    names = ["b", "a", "ü", "c\udcff"]  # the last one as Python reads a file name that is not UTF-8
    digest = hashlib.sha256(b"a\nb\nc\xff\n\xc3\xbc").hexdigest()
    assert describe_shard(Shard(1, 2), names) == {"shard": "1/2", "cases": 4, "sha256": digest}
    assert hash_names(names[::-1]) == digest != hash_names(names[1:])


def test_variables_of_torchrun_and_srun_are_found() -> None:
    srun = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"}
    assert find_rank(srun) == Rank(5, 8, 1)
    here = {"SUBMITIT_LOCAL_GLOBALID": "1", "SUBMITIT_LOCAL_NTASKS": "2", "SUBMITIT_LOCAL_LOCALID": "1"}
    assert find_rank({**srun, **here}) == Rank(1, 2, 1)
    assert find_rank({}) is None
    assert find_rank({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}) is None


def test_several_processes_do_not_each_do_the_whole_job() -> None:
    torchrun = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
    check_alone("2/4", torchrun)
    check_alone(None, {**torchrun, "RANK": "0", "WORLD_SIZE": "1"})
    with pytest.raises(
        ConfigError, match=r"`shard` to be set where .*, got null in process 2/4\. Set shard=2/4 in this"
    ):
        check_alone(None, torchrun)


def grouped(kinds: list[int], size: int) -> list[list[int]]:
    """Items that follow each other and are of one kind, at most `size` of them, as the predictor groups images."""
    found = []
    for _, run in groupby(range(len(kinds)), key=lambda index: kinds[index]):
        items = list(run)
        found += [items[start : start + size] for start in range(0, len(items), size)]
    return found


@pytest.mark.parametrize("seed", range(30))
def test_the_parts_of_all_processes_are_the_batches_of_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 2, rng.integers(0, 25)).tolist()
    size, count = int(rng.integers(1, 5)), int(rng.integers(1, 8))
    assert [list(batch) for batch in split_batches(kinds, size)] == grouped(kinds, size)
    found = []
    for number in range(1, count + 1):
        mine, batches = own_batches(kinds, Shard(number, count), size)
        samples = [Sample(case_id=str(index), image=np.zeros((1 + kinds[index], 1, 1)), target=None) for index in mine]
        found += [[int(each.case_id) for each in group] for group in same_shape_groups(samples, size, batches)]
    assert sorted(found) == grouped(kinds, size)


def test_a_shard_takes_every_nth_batch_whole(tmp_path: Path) -> None:
    """No image is predicted beside others."""
    dataset = build_dataset(folder(make_folder(tmp_path, tuple("abcdefg"))))
    taken = [take_batches(dataset, Shard(number, 3), batch_size=2) for number in (1, 2, 3)]
    assert ["".join(part.case_ids) for part, _ in taken] == ["abg", "cd", "ef"]
    assert [batches for _, batches in taken] == [[0, 0, 3], [1, 1], [2, 2]]
    with pytest.raises(ConfigError, match="at most 4 shards"):
        take_batches(dataset, Shard(1, 5), batch_size=2)


def test_each_kind_is_registered_by_its_name_and_checks_its_keys() -> None:
    assert {name: LAUNCHES.schema(name)().name for name in LAUNCHES.names()} == {
        name: name for name in LAUNCHES.names()
    }
    with pytest.raises(ConfigError, match=r"launch: .*'slrum'.* Did you mean 'slurm'\?"):
        LAUNCHES.schema("slrum")
    with pytest.raises(ConfigError, match=r"launch: expected `devices` .*got 1025"):
        LAUNCHES.schema("processes")(devices=1025)
