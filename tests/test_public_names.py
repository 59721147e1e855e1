"""What `import segmeter` offers: every name is there, documented, and free of torch where it needs none."""

import inspect
import subprocess
import sys
import typing

import pytest

import segmeter

OF_TORCH = {
    "load", "Model", "focal_loss", "FocalLoss", "to_torch", "to_numpy", "labels_to_numpy", "probs_to_numpy",
    "HostCopier", "PendingArray", "Transport",
}  # fmt: skip
SHOWN = {
    "evaluate", "bootstrap", "boundary_iou", "calibration", "centreline_dice", "compare", "confusion_matrix",
    "match_instances", "overlap_scores", "surface_metrics", "surface_metrics_by_class",
}  # fmt: skip


def our_classes(hint: object) -> set[type]:
    """Classes of this package anywhere within a type."""
    own = {hint} if isinstance(hint, type) and hint.__module__.startswith("segmeter") else set()
    return own.union(*(our_classes(part) for part in typing.get_args(hint)))


@pytest.mark.parametrize("name", [name for name in segmeter.__all__ if name[0] != "_"])
def test_every_public_name_is_there_and_documented_and_so_is_every_class_in_its_signature(name: str) -> None:
    found = getattr(segmeter, name)
    assert found.__doc__
    assert name in dir(segmeter)
    if name in SHOWN:
        assert "Examples\n" in found.__doc__
        assert "Raises\n" in found.__doc__
    shown = [found]
    if isinstance(found, type):
        called = name not in ("PendingArray", "Model")  # a copier and `load` make them
        methods = {n: f for n, f in vars(found).items() if inspect.isfunction(f)}
        shown += [f for n, f in methods.items() if n[0] != "_" or (n == "__init__" and called)]
    classes = {kind for one in shown for hint in typing.get_type_hints(one).values() for kind in our_classes(hint)}
    assert {kind.__name__ for kind in classes} <= set(segmeter.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'segmeter' has no attribute 'confusion'"):
        segmeter.confusion  # noqa: B018


def test_measuring_imports_no_torch() -> None:
    names = [name for name in segmeter.__all__ if name not in OF_TORCH]
    code = f"import sys, segmeter; [getattr(segmeter, name) for name in {names!r}]; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
