"""A process that follows takes the very steps that rank 0 announces, and writes nothing."""

import signal
from dataclasses import dataclass, field

import pytest

from segmeter.distributed.ranks import World
from segmeter.training.trainer import follow, train
from tests.training.tiny import TinyCases, assert_same, tiny_job, weights

SETTINGS = {"epochs": 3, "accumulate": 2, "val_cases": None}


@dataclass(frozen=True)
class Announced(World):
    """Keeps what rank 0 announces."""

    orders: list = field(default_factory=list)

    def tell(self, order, signal):
        self.orders.append(order)
        return signal


@dataclass(frozen=True)
class Told(World):
    """Gives orders out, and keeps the signals that come with each question; `action` runs during the second one."""

    orders: tuple = ()
    action: object = None
    heard: list = field(default_factory=list)

    def next_order(self, signal):
        if len(self.heard) == 1 and self.action:
            self.action()
        self.heard.append(signal)
        return self.orders[len(self.heard) - 1] if len(self.heard) <= len(self.orders) else None


@pytest.fixture(scope="module")
def led(tmp_path_factory):
    """The orders and the weights of a training that leads."""
    job = tiny_job(tmp_path_factory.mktemp("led"), world=Announced(), **SETTINGS)
    train(job)
    return tuple(job.world.orders), weights(job.segmenter)


def test_the_same_orders_lead_to_the_same_weights(led, tmp_path):
    """Mutations seen to fail: one batch for each step; the schedule at its start."""
    orders, expected = led
    assert [order.step for order in orders] == list(range(3))
    assert [order.progress for order in orders] == pytest.approx([0, 1 / 3, 2 / 3])
    job = tiny_job(tmp_path, world=Told(orders=orders), **SETTINGS)
    follow(job)
    assert_same(weights(job.segmenter), expected)
    assert job.world.heard == [0] * 4
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_run_is_joined_at_its_step(led, tmp_path):
    """The batches are those of the step that is announced first."""
    whole, cases = TinyCases(), TinyCases()
    for read, orders in ((whole, led[0]), (cases, led[0][2:])):
        follow(tiny_job(tmp_path, cases=read, world=Told(orders=orders), **SETTINGS))
    assert len(cases.read) >= 8
    assert cases.read == whole.read[16:]  # without the four cases of each of four batches


def test_a_signal_is_passed_on_and_the_step_taken(led, tmp_path):
    before = signal.getsignal(signal.SIGUSR1)
    world = Told(orders=led[0], action=lambda: signal.raise_signal(signal.SIGUSR1))
    job = tiny_job(tmp_path, world=world, **SETTINGS)
    follow(job)
    assert world.heard == [0, 0, signal.SIGUSR1, signal.SIGUSR1]
    assert_same(weights(job.segmenter), led[1])
    assert signal.getsignal(signal.SIGUSR1) == before
