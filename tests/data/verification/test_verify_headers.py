"""Headers alone: every file that can't be used is named, before any pixel is decoded."""

import numpy as np

from segmeter.data import dataset
from segmeter.data.folder import build_folder
from segmeter.data.verification.verify import header_problems
from tests.data.crafted import folder, make_folder, noise, put


def test_each_bad_file_is_named_once_and_none_is_decoded(tmp_path, monkeypatch):
    make_folder(tmp_path)
    put(tmp_path / "masks" / "a.png", np.zeros((12, 11), np.uint8))
    (tmp_path / "masks" / "b.png").write_bytes(b"no picture")
    put(tmp_path / "images" / "c.png", noise(channels=None))
    monkeypatch.setattr(dataset, "image_of", None)
    monkeypatch.setattr(dataset, "read_target", None)
    found = header_problems(build_folder(folder(tmp_path), split="all"))
    assert [line.partition(": ")[0] for line in found] == [
        str(tmp_path / name) for name in ("masks/a.png", "masks/b.png", "images/c.png")
    ]
    assert "12 x 11 (height x width)" in found[0]
    assert "to have 3 channels" in found[2]
