"""The network that the tests of predictions share."""

import pytest

from segmeter.models.segmenter import Segmenter
from tests.models.parts import make_tiny


@pytest.fixture(scope="session")
def tiny() -> Segmenter:
    return make_tiny()
