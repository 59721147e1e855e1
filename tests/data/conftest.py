import pytest

from segmeter.data.files import pictures


@pytest.fixture(autouse=True)
def many_masks_were_read(monkeypatch):
    """Read masks as a long run does, by the compiled reader."""
    monkeypatch.setattr(pictures, "PLAIN_PIXELS", 0)
