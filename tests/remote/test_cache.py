from pathlib import Path

import pytest

from segmeter.errors import ConfigError
from segmeter.remote.cache import cache_folder, most_bytes


def test_the_bound_is_in_gigabytes(monkeypatch):
    monkeypatch.delenv("SEGMETER_CACHE_GB", raising=False)
    assert most_bytes() == 20_000_000_000
    monkeypatch.setenv("SEGMETER_CACHE_GB", "1.5")
    assert most_bytes() == 1_500_000_000


@pytest.mark.parametrize("given", ["", "0", "-1", "many", "nan", "inf"])
def test_a_bound_that_is_none_is_refused(given, monkeypatch):
    monkeypatch.setenv("SEGMETER_CACHE_GB", given)
    with pytest.raises(ConfigError, match=f"SEGMETER_CACHE_GB` to be the size .* above 0, got '{given}'"):
        most_bytes()


def test_the_folder_is_the_users(monkeypatch):
    monkeypatch.delenv("SEGMETER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/segmeter")
