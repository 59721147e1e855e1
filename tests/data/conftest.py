import pytest

from segmeter.data.files import pictures


@pytest.fixture(autouse=True)
def every_mask_is_large(monkeypatch):
    """Read small masks as large ones are, by the compiled reader."""
    monkeypatch.setattr(pictures, "LEAST_COMPILED", 0)
