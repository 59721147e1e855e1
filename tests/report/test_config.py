import pytest

from segmeter.errors import ConfigError
from segmeter.report.config import ReportConfig


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("overlays", (-1, 0), -2),
        ("panel", (128, 4096), 127),
        ("panel", (128, 4096), 4097),
        ("worst", (0, 100), -1),
        ("picture_mb", (0.1,), 0),
        ("pictures", ("embed", "link"), "none"),
    ],
)
def test_ranges_hold_at_their_ends(key, good, bad):
    for value in good:
        assert getattr(ReportConfig(**{key: value}), key) == value
    with pytest.raises(ConfigError, match=key):
        ReportConfig(**{key: bad})
