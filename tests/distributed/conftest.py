"""The answers of one world of two spawned processes, for all tests of this folder: starting one takes seconds."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from segmeter.distributed.ranks import World, joined
from segmeter.distributed.shards import Place
from tests.distributed.asked import work
from tests.distributed.spawned import run_world


@pytest.fixture(scope="package")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_world(work, 2, tmp_path_factory.mktemp("world"))


AGENT = "TORCHELASTIC_USE_AGENT_STORE"  # "True" if the program that started the processes has the store
Work = Callable[[World, Path], Any]


def run_world(work: Work, size: int, folder: Path) -> list[Any]:
    """Run `work` in each process of a world on gloo; give what each returned."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), AGENT: "True"}
    try:
        mp.start_processes(_start, args=(work, size, folder), nprocs=size, start_method="spawn")
    finally:
        for name in ("MASTER_ADDR", "MASTER_PORT", AGENT):
            del os.environ[name]
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(size)]


def _start(rank: int, work: Work, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    with joined(Place(rank, size, rank), torch.device("cpu"), 300.0) as world:
        torch.save(work(world, folder), folder / f"rank{rank}.pt")
