"""The harness must catch what it is made for; otherwise the tests that use it prove nothing."""

import pytest
import torch

from tests.bridge.fake_stream import POISON, FakeTransport


def naive(transport, source):
    """What is often written: start a non-blocking copy and hand out its destination at once."""
    host = torch.empty_like(source)
    return host.numpy(), transport.start([(host, source)])


def test_reading_early_overwriting_and_freeing_the_source_show():
    transport, source = FakeTransport(), torch.arange(4.0)
    array, event = naive(transport, source)
    assert (array.view("uint8") == POISON).all()
    source.fill_(9)
    transport.wait(event)
    assert array.tolist() == [9, 9, 9, 9]
    _, event = naive(transport, torch.arange(4.0))
    with pytest.raises(AssertionError, match="freed while its copy was in flight"):
        transport.wait(event)
