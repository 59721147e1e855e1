import logging
from contextlib import contextmanager

import pytest
import torch

from segmeter.bridge import host_copier
from segmeter.bridge.host_copier import CudaTransport, HostCopier, Transport, open_transport


@pytest.fixture
def cuda(monkeypatch):
    """A transport whose streams, events and tensors only note what is done in which order: `calls`."""
    calls, on_side = [], []

    def named(name, **methods):
        return type("Stand-in", (), {"__str__": lambda _: name, **methods})()

    def copy_of(name):
        return lambda _, source, non_blocking: calls.append((f"{source} to {name}", non_blocking, bool(on_side)))

    @contextmanager
    def enter(stream):
        on_side.append(stream)
        yield
        on_side.clear()

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "compute")
    monkeypatch.setattr(torch.cuda, "stream", enter)
    side = named("side", wait_stream=lambda _, other: calls.append(f"side waits for {other}"))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: side)
    event = {"record": lambda _, stream: calls.append(f"event on {stream}")}
    event |= {"synchronize": lambda _: calls.append("host waits for the event")}
    monkeypatch.setattr(torch.cuda, "Event", lambda: named("event", **event))
    made = CudaTransport(torch.device("cuda"))
    made.calls = calls
    made.host = lambda name: named(name, copy_=copy_of(name))
    made.source = lambda name: named(name, record_stream=lambda _, stream: calls.append(f"{name} kept for {stream}"))
    return made


def test_the_side_stream_waits_then_copies_then_records(cuda):
    assert cuda.device == torch.device("cuda", 0)
    event = cuda.start([(cuda.host("payload"), cuda.source("x")), (cuda.host("record"), cuda.source("y"))])
    assert cuda.calls == [
        "side waits for compute",
        ("x to payload", True, True),  # without blocking, on the side stream
        "x kept for side",
        ("y to record", True, True),
        "y kept for side",
        "event on side",
    ]
    cuda.wait(event)
    assert cuda.calls[6:] == ["host waits for the event"]


def test_where_pinning_fails_plain_memory_serves_with_one_warning(cuda, monkeypatch, caplog):
    host_copier._warn_once.cache_clear()
    real = torch.empty

    def refuse(*shape, pin_memory=False, **more):
        if pin_memory:
            raise RuntimeError("cannot pin")
        return real(*shape, **more)

    monkeypatch.setattr(torch, "empty", refuse)
    with caplog.at_level(logging.WARNING):
        assert [cuda.empty_like(torch.zeros(64)).shape for _ in range(3)] == [(64,)] * 3
    assert caplog.messages == ["host memory could not be pinned, copies are slower: cannot pin"]


def test_the_cpu_copies_at_once_and_says_so_once(caplog):
    """Who brings the transport knows it."""
    host_copier._warn_once.cache_clear()
    plain = open_transport(torch.device("cpu"))
    assert type(plain) is Transport
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            HostCopier(device="cpu")
            HostCopier(device="cpu", transport=plain)
    assert caplog.messages == ["results from cpu are copied at once: nothing overlaps, the values are the same"]
    host = torch.zeros(2)
    plain.start([(host, torch.ones(2))])
    assert host.tolist() == [1, 1]
