"""The answers of one world of two spawned processes, for all tests of this folder: starting one takes seconds."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from segmeter.distributed.ranks import joined
from segmeter.distributed.shards import Rank
from tests.distributed.asked import work

AGENT = "TORCHELASTIC_USE_AGENT_STORE"  # "True" if the program that started the processes has the store


@pytest.fixture(scope="package")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process of a world on gloo answers."""
    folder = tmp_path_factory.mktemp("world")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), AGENT: "True"}.items():
            patch.setenv(name, value)
        mp.start_processes(_start, args=(folder,), nprocs=2, start_method="spawn")
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(2)]


def _start(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    with joined(Rank(rank, 2, rank), torch.device("cpu"), 300.0) as world:
        torch.save(work(world, folder), folder / f"rank{rank}.pt")
