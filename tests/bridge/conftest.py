"""Copiers that every test of the copier is run with."""

import pytest

from segmeter.bridge.host_copier import HostCopier
from tests.bridge.fake_stream import FakeTransport

DEVICES = {"cpu": lambda: None, "fake stream": FakeTransport}


@pytest.fixture(params=DEVICES)
def open_copier(request):
    """Make a copier on the CPU, with plain copies or with those of the fake stream."""
    return lambda **more: HostCopier(device="cpu", transport=DEVICES[request.param](), **more)
