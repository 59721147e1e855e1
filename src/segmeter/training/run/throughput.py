"""Images, seconds and waiting -> rates, since the last reading and over the whole process."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from segmeter.parallel import peak_bytes


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Images per second of training, the part of that time in which the loop waited for a batch, seconds per stage."""

    images_per_second: float
    data_wait: float
    stages: Mapping[str, float] = field(default_factory=dict, compare=False)


class Throughput:
    """A stopwatch that stands still during validations and saves."""

    def __init__(self) -> None:
        self._images = self._all_images = 0
        self._waited = self._all_waited = 0.0
        self._spent = self._all_spent = 0.0
        self._since: float | None = None
        self._stages: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time of the block as that of a stage beside the steps, for which the stopwatch stands still."""
        self.hold()
        start = time.perf_counter()
        try:
            yield
        finally:
            self._stages[name] = self._stages.get(name, 0.0) + time.perf_counter() - start

    def add(self, images: int, waited: float) -> None:
        """Count a step whose batches took `waited` seconds to come."""
        self._images += images
        self._waited += waited

    def run(self) -> None:
        """Go on, unless it runs already."""
        if self._since is None:
            self._since = time.perf_counter()

    def hold(self) -> None:
        """Stand still until `run`."""
        if self._since is not None:
            self._spent += time.perf_counter() - self._since
            self._since = None

    def read(self) -> Rates:
        """The rates since the last reading."""
        self.hold()
        spent = {"data": self._waited, "step": self._spent - self._waited, **self._stages}
        stages = {name: round(seconds, 3) for name, seconds in spent.items()}
        rates = replace(_rates(self._images, self._spent, self._waited), stages=stages)
        self._stages = {}
        self._all_images += self._images
        self._all_spent += self._spent
        self._all_waited += self._waited
        self._images, self._spent, self._waited = 0, 0.0, 0.0
        return rates

    def overall(self) -> Rates:
        """The rates over everything that was read."""
        return _rates(self._all_images, self._all_spent, self._all_waited)


def _rates(images: int, seconds: float, waited: float) -> Rates:
    seconds = max(seconds, 1e-9)
    return Rates(images_per_second=round(images / seconds, 3), data_wait=round(min(waited / seconds, 1.0), 4))


def peak_memory_mb(device: torch.device) -> float:
    """The most memory that the process has used so far: torch's on a GPU, else all of it."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
    return round(peak_bytes() / 1e6, 1)
