"""The harness must catch what it is made for; otherwise the tests that use it prove nothing."""

import pytest
import torch

from tests.bridge.fake_stream import FakeTransport, is_poison


def naive(transport, source):
    """What is often written: start a non-blocking copy and hand out its destination at once."""
    host = torch.empty_like(source)
    return host.numpy(), transport.start([(host, source)])


def test_reading_before_the_wait_sees_poison():
    transport, source = FakeTransport(), torch.arange(4.0)
    array, event = naive(transport, source)
    assert is_poison(array)
    transport.wait(event)
    assert array.tolist() == [0, 1, 2, 3]


def test_overwriting_the_source_in_flight_shows():
    transport, source = FakeTransport(), torch.arange(4.0)
    array, event = naive(transport, source)
    source.fill_(9)
    transport.wait(event)
    assert array.tolist() == [9, 9, 9, 9]


def test_freeing_the_source_in_flight_shows():
    transport = FakeTransport()
    _, event = naive(transport, torch.arange(4.0))
    with pytest.raises(AssertionError, match="freed while its copy was in flight"):
        transport.wait(event)


def test_some_copies_run_on_their_own():
    transport = FakeTransport(seed=1)
    sources = [torch.full((2,), float(n)) for n in range(20)]
    arrays = [naive(transport, source)[0] for source in sources]
    transport.run_some()
    assert 0 < transport.done < 20
    assert not is_poison(arrays[0])
    assert is_poison(arrays[-1])
