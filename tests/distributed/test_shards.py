"""shard=2/7: how it is read, what it takes, what a manifest says of it, and what is refused."""

import hashlib

import pytest

from segmeter.distributed.shards import Place, Shard, check_alone, describe_shard, find_place, hash_names, parse_shard
from segmeter.errors import ConfigError, InputError


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
    found = find_place(srun)
    assert found is not None
    assert (found.rank, found.size, found.local) == (5, 8, 1)
    here = {"SUBMITIT_LOCAL_GLOBALID": "1", "SUBMITIT_LOCAL_NTASKS": "2", "SUBMITIT_LOCAL_LOCALID": "1"}
    assert find_place({**srun, **here}) == Place(1, 2, 1)
    assert find_place({}) is None
    assert find_place({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}) is None
    for rank in ("4", "-1"):
        with pytest.raises(ConfigError, match=f"RANK={rank}, WORLD_SIZE=4"):
            find_place({"RANK": rank, "WORLD_SIZE": "4", "LOCAL_RANK": "1"})


def test_several_processes_do_not_each_do_the_whole_job() -> None:
    torchrun = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
    check_alone("2/4", torchrun)
    check_alone(None, {**torchrun, "RANK": "0", "WORLD_SIZE": "1"})
    with pytest.raises(
        ConfigError, match=r"`shard` to be set where .*, got null in process 2/4\. Set shard=2/4 in this"
    ):
        check_alone(None, torchrun)
