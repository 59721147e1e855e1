"""Jobs of a sweep that run side by side on this machine."""

from typing import Any

import pytest
import torch

from segmeter.cli.runs import launchers
from segmeter.cli.runs.job import Job
from segmeter.cli.runs.shipped import Outcome, Shipped


def job(number: int, **values: Any) -> Shipped:
    return Shipped(job=Job("train", (f"seed={number}",), None), values=values, plugins=(), path=())


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that are not there."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


class InTurn:
    """Stands for joblib: runs the jobs here."""

    def __init__(self) -> None:
        self.devices: list[str] = []

    def Parallel(self, **options: Any) -> Any:
        return lambda calls: (call() for call in calls)

    def delayed(self, shipped: Shipped) -> Any:
        self.devices.append(shipped.values["device"])
        return lambda: lambda: Outcome(job=shipped.job)


@pytest.mark.usefixtures("gpus")
def test_jobs_take_the_gpus_in_turn_where_they_may_run_on_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation seen to fail: all on the first one."""
    given = [
        job(0, device="auto"),
        job(1, device="cpu"),
        job(2, device="cuda"),
        job(3, device="cuda:1"),
        job(4, device="auto"),
    ]
    joblib = InTurn()
    monkeypatch.setattr(launchers, "needed", lambda package, extra: joblib)
    found = list(launchers._by_joblib(launchers._spread(given), {"n_jobs": 2}))
    assert joblib.devices == ["cuda:0", "cpu", "cuda:1", "cuda:1", "cuda:0"]
    assert [outcome.job for outcome in found] == [each.job for each in given]


def test_without_gpus_or_a_device_jobs_stay_as_they_are() -> None:
    given = [job(0, device="auto"), job(1)]
    assert launchers._spread(given) == given
