"""Two processes are one training: one decides, all hear signals and validate, and gradients are those of one."""

import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from segmeter.distributed.ranks import ALONE, Order, World, find_unused, joined
from segmeter.distributed.shards import Rank
from segmeter.errors import PeerError
from segmeter.losses.config import LOSSES
from tests.distributed.asked import LOSS_CASES, Unfinished, batches, gradient_of, three_steps, validate_each_way


def test_rank_0_decides_and_hears_the_signals_of_all(answers: list[dict[str, Any]]) -> None:
    assert answers[0]["heard"] == [0, int(signal.SIGUSR1)]
    assert answers[1]["heard"] == [(0, 0.25, False), (1, 0.5, True), None]


def test_tensors_of_a_gpu_are_shared_by_the_cpu(answers: list[dict[str, Any]]) -> None:
    """Each process then copies them to its own GPU."""
    for answer in answers:
        assert answer["of a GPU"]["step"] == 3
        assert torch.equal(answer["of a GPU"]["weights"][0], torch.arange(4.0))


def test_a_step_of_several_processes_reads_nothing_off_the_device(answers: list[dict[str, Any]]) -> None:
    assert [answer["waits"] for answer in answers] == [[], []]


def test_orders_go_by_the_cpu_whatever_the_gpus_use(monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[str] = []
    monkeypatch.setattr(dist, "get_backend", lambda: "nccl")
    monkeypatch.setattr(dist, "all_reduce", lambda values, op: devices.append(values.device.type))
    assert World(0, 2).tell(Order(3, 0.5, validates=False), int(signal.SIGTERM)) == signal.SIGTERM
    assert World(1, 2).next_order(0) is None
    assert devices == ["cpu"] * 2


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `joined` sets is gone after the test."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize(("device", "backend"), [("cpu", "gloo"), ("cuda:1", "cpu:gloo,cuda:nccl")])
def test_gpus_have_nccl_and_their_hosts_gloo(device: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **values: asked.append((backend, values["rank"])))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: asked.append("left"))
    monkeypatch.setattr(torch.cuda, "set_device", asked.append)
    monkeypatch.setattr(dist, "rendezvous", lambda url, timeout: iter([(dist.HashStore(), 1, 2)]))
    with joined(Rank(1, 2, 1), torch.device(device), None) as world:
        assert (world.rank, world.size) == (1, 2)
        world.store.set("last", "")  # as rank 0 does
    own = [torch.device(device)] if device != "cpu" else []
    assert asked == [*own, (backend, 1), "left"]


@pytest.mark.parametrize("hangs", [0, 1, 2])
def test_one_that_hangs_after_its_last_step_keeps_nobody_waiting(hangs: int) -> None:
    """Whoever depends on it fails; all others end well."""
    store = dist.HashStore()

    def ends(rank: int) -> bool:
        try:
            World(rank, 3, store).leave(timedelta(seconds=0.5))
        except PeerError:
            return False
        return True

    others = [rank for rank in range(3) if rank != hangs]
    with ThreadPoolExecutor(2) as threads:
        ended = dict(zip(others, threads.map(ends, others), strict=True))
    assert ended == ({1: False, 2: False} if hangs == 0 else {0: False, 3 - hangs: True})


@pytest.mark.usefixtures("restored")
def test_one_that_failed_after_its_last_step_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others fail at once, before a wait ends."""
    store = dist.HashStore()
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **values: None)
    monkeypatch.setattr(dist, "rendezvous", lambda url, timeout: iter([(store, 0, 2)]))
    monkeypatch.setattr("segmeter.distributed.ranks._trainings", iter([7]))
    with pytest.raises(OSError, match="disk full"), joined(Rank(0, 2, 0), torch.device("cpu"), None):
        raise OSError("disk full")
    with pytest.raises(PeerError, match="another process failed after its last step"):
        World(1, 2, dist.PrefixStore("segmeter/0/7", store)).leave(timedelta(seconds=5))


def test_a_validation_is_the_same_whoever_takes_part(answers: list[dict[str, Any]], tmp_path: Path) -> None:
    ((scores, pictures), none), error, *given_up = answers[0]["validations"]
    (expected, drawn), _ = validate_each_way(ALONE, tmp_path)[0]
    assert scores == expected
    assert {name: path.name for name, path in pictures.items()} == {name: path.name for name, path in drawn.items()}
    assert len(drawn) == 4
    assert none == 0
    assert "NaN or infinite at step 7 (lr 0.1; validation case 'case02')" in error
    assert given_up == [(None, int(signal.SIGUSR1))] * 2


def test_no_loss_is_left_out() -> None:
    assert {options["name"] for options in LOSS_CASES.values()} == set(LOSSES.names())


@pytest.mark.parametrize("count", [2, 6])
@pytest.mark.parametrize("name", LOSS_CASES)
def test_the_gradient_of_two_processes_is_that_of_accumulation(name, count, answers):
    value, gradient = gradient_of(LOSS_CASES[name], batches(count, seed=1), ALONE)
    for answer in answers:
        theirs, found = answer[f"{name}, {count}"]
        assert theirs == pytest.approx(value, rel=1e-10)
        torch.testing.assert_close(found, gradient, rtol=1e-10, atol=1e-12)


def test_only_the_last_pass_of_a_step_is_averaged(answers: list[dict[str, Any]]) -> None:
    """Until then nothing is sent."""
    (here, mean), (elsewhere, other_mean) = (answer["gathered"] for answer in answers)
    assert not torch.allclose(here, elsewhere)
    assert torch.equal(mean, other_mean)
    torch.testing.assert_close(mean, here + elsewhere, rtol=1e-10, atol=1e-12)  # half of two passes of each


def test_what_begins_to_learn_is_averaged_too(answers: list[dict[str, Any]]) -> None:
    (first, second), (other_first, other_second) = (answer["frozen first"] for answer in answers)
    assert torch.equal(first, other_first)
    assert torch.equal(second, other_second)
    assert len(second) > len(first)


def test_parameters_that_get_no_gradient_are_left_out(answers: list[dict[str, Any]]) -> None:
    expected = three_steps(ALONE)
    for answer in answers:
        torch.testing.assert_close(answer["unused"], expected, rtol=1e-10, atol=1e-12)


def test_the_look_for_unused_parameters_changes_nothing() -> None:
    model = Unfinished().train()  # so that its dropout draws
    model.last.eval()
    model.used[0].requires_grad_(False)
    before, random = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    modes = [module.training for module in model.modules()]
    assert find_unused(model, torch.ones(1, 3, 4, 4)) == ["last.weight", "last.bias"]
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), random)
