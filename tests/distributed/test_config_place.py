"""Which process of how many this is, by the variables of what started it."""

import pytest

from segmeter.distributed.config import Place, check_alone, find_place
from segmeter.errors import ConfigError


def test_variables_of_torchrun_and_srun_are_found() -> None:
    srun = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"}
    found = find_place(srun)
    assert found is not None
    assert (found.rank, found.size, found.local) == (5, 8, 1)
    here = {"SUBMITIT_LOCAL_GLOBALID": "1", "SUBMITIT_LOCAL_NTASKS": "2", "SUBMITIT_LOCAL_LOCALID": "1"}
    assert find_place({**srun, **here}) == Place(1, 2, 1)
    assert find_place({}) is None
    assert find_place({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}) is None
    with pytest.raises(ConfigError, match="RANK=9, WORLD_SIZE=4"):
        find_place({"RANK": "9", "WORLD_SIZE": "4", "LOCAL_RANK": "1"})


def test_several_processes_do_not_each_do_the_whole_job() -> None:
    torchrun = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
    check_alone("2/4", torchrun)
    check_alone(None, {**torchrun, "RANK": "0", "WORLD_SIZE": "1"})
    with pytest.raises(
        ConfigError, match=r"`shard` to be set where .*, got null in process 2/4\. Set shard=2/4 in this"
    ):
        check_alone(None, torchrun)
