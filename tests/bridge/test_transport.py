import logging

import pytest
import torch

from segmeter.bridge import host_copier
from segmeter.bridge.host_copier import CudaTransport, HostCopier, Transport, open_transport


class Recorder:
    """Stands for CUDA's streams, events and tensors, and notes what is done in which order."""

    def __init__(self):
        self.calls = []

    def stream(self, device):
        return type("Stream", (), {"wait_stream": lambda _, other: self.calls.append(f"side waits for {other}")})()

    def event(self):
        methods = {
            "record": lambda _, stream: self.calls.append("event recorded"),
            "synchronize": lambda _: self.calls.append("host waits for the event"),
        }
        return type("Event", (), methods)()

    def host(self, name):
        def copy(_, source, non_blocking=False):
            self.calls.append(f"copy {source} to {name}, non_blocking={non_blocking}, on side={self.on_side}")

        return type("Host", (), {"copy_": copy})()

    def source(self, name):
        kept = lambda _, stream: self.calls.append(f"{name} is kept for the side stream")  # noqa: E731
        return type("Source", (), {"__str__": lambda _: name, "record_stream": kept})()

    on_side = False


@pytest.fixture
def recorder(monkeypatch):
    recorder = Recorder()

    class OnSide:
        def __init__(self, stream):
            pass

        def __enter__(self):
            recorder.on_side = True

        def __exit__(self, *_):
            recorder.on_side = False

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "Stream", recorder.stream)
    monkeypatch.setattr(torch.cuda, "Event", recorder.event)
    monkeypatch.setattr(torch.cuda, "stream", OnSide)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "the compute stream")
    return recorder


def test_the_side_stream_waits_then_copies_then_records(recorder):
    """Mutations seen to fail: no wait_stream; the copies outside the side stream; the event before the copies."""
    cuda = CudaTransport(torch.device("cuda"))
    assert cuda.device == torch.device("cuda", 0)
    sources = [recorder.source(name) for name in "xy"]
    event = cuda.start(list(zip([recorder.host("payload"), recorder.host("record")], sources, strict=True)))
    assert recorder.calls == [
        "side waits for the compute stream",
        "copy x to payload, non_blocking=True, on side=True",
        "x is kept for the side stream",
        "copy y to record, non_blocking=True, on side=True",
        "y is kept for the side stream",
        "event recorded",
    ]
    cuda.wait(event)
    assert recorder.calls[6:] == ["host waits for the event"]


@pytest.mark.usefixtures("recorder")
def test_where_pinning_fails_plain_memory_serves_with_one_warning(monkeypatch, caplog):
    """Mutation seen to fail: the RuntimeError of torch passes through."""
    host_copier._warn_once.cache_clear()
    real = torch.empty

    def refuse(*shape, pin_memory=False, **more):
        if pin_memory:
            raise RuntimeError("cannot pin")
        return real(*shape, **more)

    monkeypatch.setattr(torch, "empty", refuse)
    cuda = CudaTransport(torch.device("cuda:0"))
    with caplog.at_level(logging.WARNING):
        assert [cuda.empty_like(torch.zeros(64)).shape for _ in range(3)] == [(64,)] * 3
    assert [record.message for record in caplog.records] == [
        "host memory could not be pinned, copies are slower: cannot pin"
    ]


def test_the_cpu_copies_at_once_and_says_so_once(caplog):
    """Where the caller brings the transport, he knows. Mutation seen to fail: the warning is given each time."""
    host_copier._warn_once.cache_clear()
    plain = open_transport(torch.device("cpu"))
    assert type(plain) is Transport
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            HostCopier(device="cpu")
            HostCopier(device="cpu", transport=plain)
    assert [record.message for record in caplog.records] == [
        "results from cpu are copied at once: nothing overlaps, the values are the same"
    ]
    host = torch.zeros(2)
    plain.start([(host, torch.ones(2))])
    assert host.tolist() == [1, 1]
