"""A validation that several processes share out has the bits of one process, and its faults reach rank 0."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from segmeter.distributed.ranks import ALONE, Order, World
from segmeter.errors import DataError, OverflowedError
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.losses.build import build_loss
from segmeter.losses.config import FocalConfig
from segmeter.training.validation import Validation, validate
from tests.distributed.spawned import run_world
from tests.training.tiny import SPEC, TinyCases, tiny_segmenter

BATCHES = (1, 2, 4)


@dataclass
class TwoSizes(TinyCases):
    """Eleven cases, of which every fourth is larger: so that batches are not all full."""

    count: int = 11

    def __getitem__(self, index: int) -> Any:
        own = replace(TinyCases(), count=self.count, broken=self.broken, poisoned=self.poisoned)
        return replace(own, size=self.kinds()[index][0])[index]  # read by several threads

    def kinds(self) -> list[tuple[int, int, str]]:
        return [(20, 20, "float32") if index % 4 == 3 else (16, 16, "float32") for index in range(self.count)]


def scored(world: World, cases: TinyCases, batch_size: int) -> Validation | None:
    torch.manual_seed(0)
    config = InferenceConfig(precision="float32", batch_size=batch_size)
    predictor = Predictor(tiny_segmenter(), config, torch.device("cpu"))
    loss = build_loss(FocalConfig(class_weights=(0.2, 3.0, 11.0)), SPEC)
    return validate(predictor, cases, loss, stopped=lambda: False, world=world)


def faulty(world: World, **wrong: Any) -> str:
    try:
        return str(scored(world, TwoSizes(**wrong), 2))
    except (DataError, OverflowedError) as error:
        return f"{type(error).__name__}: {error}"


def work(world: World, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for size in BATCHES:
        result = scored(world, TwoSizes(), size)
        found[f"batches of {size}"] = result and asdict(result)
    found["few"] = scored(world, TwoSizes(count=1), 1) is None
    found["broken"] = faulty(world, broken=(7, 4))
    found["poisoned"] = faulty(world, poisoned=(9,))
    tensor = torch.full((2, 3, 4, 4), float(world.rank)).to(memory_format=torch.channels_last)
    world.copy_first([tensor])
    found["copied"] = float(tensor.abs().max())
    found["gathered"] = world.gather(world.rank)
    found["told"] = world.tell_validation(3, 0.5, 0) if world.leads else world.next_order(10 * world.rank)
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_world(work, 3, tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize("size", BATCHES)
def test_the_scores_are_those_of_one_process_to_the_bit(ranks: list[dict[str, Any]], size: int) -> None:
    """Mutation seen to fail: every n-th case instead of every n-th batch."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        alone = scored(ALONE, TwoSizes(), size)
    finally:
        torch.set_num_threads(threads)
    assert alone is not None
    assert ranks[0][f"batches of {size}"] == asdict(alone)
    assert not np.isnan(alone.values["loss"])
    assert [rank[f"batches of {size}"] for rank in ranks[1:]] == [None, None]


def test_processes_without_a_case_wait_for_the_others(ranks: list[dict[str, Any]]) -> None:
    assert [rank["few"] for rank in ranks] == [False, True, True]


def test_the_first_fault_of_any_process_is_raised_by_rank_0(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["broken"] == "DataError: images/case04.png: is truncated."
    assert ranks[0]["poisoned"].startswith("OverflowedError: ")
    assert "case09" in ranks[0]["poisoned"]
    assert [rank["broken"] for rank in ranks[1:]] == ["None", "None"]


def test_weights_orders_and_signals_go_around(ranks: list[dict[str, Any]]) -> None:
    assert [rank["copied"] for rank in ranks] == [0.0] * 3
    assert [rank["gathered"] for rank in ranks] == [[0, 1, 2]] * 3
    assert [rank["told"] for rank in ranks] == [20, *[Order(3, 0.5, validates=True)] * 2]
