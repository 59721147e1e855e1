"""What more than one comparison needs."""

import pytest

from tests.differential.peers import load


@pytest.fixture
def exact_quantile(monkeypatch):
    """Let MONAI's percentiles find their rank in float64; in float32, 0.95 (n - 1) is off by up to 1e-7 n points."""
    torch = load("torch")
    quantile = torch.quantile
    monkeypatch.setattr(torch, "quantile", lambda values, q, **options: quantile(values.double(), q, **options))
