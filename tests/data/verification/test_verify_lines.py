import hashlib

import numpy as np
import pytest
import tifffile

from segmeter.data.config import FolderConfig
from segmeter.data.sample import count_classes, count_decided
from segmeter.data.verification import verify
from segmeter.data.verification.intensity import measure_image
from segmeter.data.verification.report import build_dataset


@pytest.fixture
def pair(tmp_path):
    rng = np.random.default_rng(3)
    image = rng.integers(0, 256, (70, 50, 3), dtype=np.uint8)
    mask = rng.choice([0, 1, 2, 255], (70, 50)).astype(np.uint8)
    for folder, values in (("images", image), ("masks", mask)):
        (tmp_path / folder).mkdir()
        tifffile.imwrite(
            tmp_path / folder / "a.tif", values, tile=(16, 16), photometric="rgb" if values.ndim == 3 else None
        )
    return tmp_path, image, mask


def test_blocks_of_rows_find_what_the_whole_case_holds(pair, monkeypatch):
    root, image, mask = pair
    monkeypatch.setattr(verify, "_LINES", 16)  # the last block is shorter
    dataset = build_dataset(FolderConfig(root=str(root), classes=("a", "b", "c"), ignore_index=255), split="all")
    row, problems = verify._verify_case(dataset, verify.row_dtype(dataset), frozenset([0]), 0)
    assert problems == []
    assert (row["size"].tolist(), verify.DTYPES[row["dtype"]]) == ([70, 50], "uint8")
    np.testing.assert_array_equal(row["classes"], count_classes(mask, dataset.spec))
    np.testing.assert_array_equal(row["counted"], count_decided(mask, dataset.spec))
    for name, expected in zip(("mean", "variance", "levels"), measure_image(image), strict=True):
        np.testing.assert_allclose(row[name], expected, rtol=1e-12)
    files = [root / "images" / "a.tif", root / "masks" / "a.tif"]
    wanted = [hashlib.sha256(path.read_bytes()).digest() for path in files]
    assert [bytes(each) for each in row["sha256"]] == wanted
