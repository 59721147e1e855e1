import json

import numpy as np
import pytest
from PIL import Image

from segmeter.data.config import FolderConfig
from segmeter.data.verification.report import describe_report, open_splits


@pytest.fixture
def described(tmp_path, monkeypatch):
    monkeypatch.setenv("SEGMETER_CACHE", str(tmp_path / "cache"))
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    image = np.full((4, 6, 3), (10, 20, 30), np.uint8)
    Image.fromarray(image).save(tmp_path / "images" / "a.png")
    mask = np.array([[0] * 6, [1] * 6, [1] * 6, [255] * 6], np.uint8)
    Image.fromarray(mask).save(tmp_path / "masks" / "a.png")
    classes = ("background", "cell", "border")
    config = FolderConfig(root=str(tmp_path), classes=classes, channels=("r", "g", "b"), ignore_index=255)
    _, (report,) = open_splits(config, ["all"])
    return describe_report(report, config)


def test_it_is_plain_json(described):
    assert json.loads(json.dumps(described)) == described


def test_classes_have_pixels_shares_and_cases(described):
    assert described["classes"] == {
        "background": {"pixels": 6, "share": pytest.approx(1 / 3), "cases": 1},
        "cell": {"pixels": 12, "share": pytest.approx(2 / 3), "cases": 1},
        "border": {"pixels": 0, "share": 0.0, "cases": 0},
    }
    assert described["ignored_share"] == 0.25
    assert described["sizes"] == [{"height": 4, "width": 6, "cases": 1}]


def test_channels_are_named(described):
    (values,) = described["intensities"]
    assert values["dtype"] == "uint8"
    assert {name: channel["mean"] for name, channel in values["channels"].items()} == {"r": 10, "g": 20, "b": 30}
    assert values["channels"]["g"]["std"] == 0
