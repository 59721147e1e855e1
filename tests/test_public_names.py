"""What `import segmeter` offers: every name is there, documented, and free of torch where it needs none."""

import subprocess
import sys

import pytest

import segmeter

OF_TORCH = {"focal_loss", "FocalLoss", "to_torch", "to_numpy", "labels_to_numpy", "probs_to_numpy", "Exporter"}
SHOWN = {
    "bootstrap",
    "boundary_iou",
    "calibration",
    "centreline_dice",
    "compare",
    "confusion_matrix",
    "match_instances",
    "overlap_scores",
    "surface_metrics",
    "surface_metrics_by_class",
}


@pytest.mark.parametrize("name", [name for name in segmeter.__all__ if name[0] != "_"])
def test_every_public_name_is_there_and_documented(name: str) -> None:
    found = getattr(segmeter, name)
    assert found.__doc__
    assert name in dir(segmeter)
    if name in SHOWN:
        assert "Examples\n" in found.__doc__
        assert "Raises\n" in found.__doc__


def test_measuring_imports_no_torch() -> None:
    names = [name for name in segmeter.__all__ if name not in OF_TORCH]
    code = f"import sys, segmeter; [getattr(segmeter, name) for name in {names!r}]; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'segmeter' has no attribute 'confusion'"):
        segmeter.confusion  # noqa: B018
