"""A device stream without a device: copies happen late, and whatever is read too early is poison."""

import random
import weakref

import torch

POISON = 0xA5


class FakeEvent:
    """Where in the stream it was recorded."""

    position = 0


class FakeTransport:
    """Queues copies and runs them when an event is waited for, or at any moment that `run_some` picks.

    Destinations are poisoned when a copy is queued. Sources are only referred to weakly, as a device does not keep
    them alive either: one that is gone when its copy runs is an error.
    """

    immediate = False

    def __init__(self, seed: int = 0) -> None:
        self.device = torch.device("cpu")
        self.queue = []
        self.done = 0
        self.starts = []  # bytes of the copies of each start
        self.waits = 0
        self._random = random.Random(seed)

    def start(self, sources):
        hosts = [torch.empty_like(source) for source in sources]
        for host, source in zip(hosts, sources, strict=True):
            bytes_of(host).fill_(POISON)
            self.queue.append((host, weakref.ref(source)))
        self.starts.append([bytes_of(host).numel() for host in hosts])
        event = FakeEvent()
        event.position = len(self.queue)
        return hosts, event

    def wait(self, event):
        self.waits += 1
        self._run_to(event.position)

    def run_some(self):
        self._run_to(self._random.randint(self.done, len(self.queue)))

    def _run_to(self, position):
        while self.done < position:
            host, source = self.queue[self.done]
            if source() is None:
                raise AssertionError("a source was freed while its copy was in flight")
            host.copy_(source())
            self.done += 1


def bytes_of(tensor):
    return tensor.reshape(-1).view(torch.uint8)
