"""How many bytes cross, counted on the CPU by the copies that are started; test_gpu.py counts the real crossing."""

import pytest
import torch

from segmeter.bridge.host_copier import HostCopier
from tests.bridge.fake_stream import FakeTransport


def crossed(submit):
    """The bytes that cross while the result of `submit(copier)` is kept."""
    copier = HostCopier(device="cpu", transport=FakeTransport())
    _pending = submit(copier)
    return sum(map(sum, copier._transport.starts))


def test_labels_of_19_classes_cross_as_one_byte_per_pixel():
    """Mutation seen to fail: the int64 argmax crosses, as in Detectron2 and mmseg."""
    logits, options = torch.zeros(2, 19, 1024, 1024, dtype=torch.float16), {"task": "multiclass", "num_classes": 19}
    assert crossed(lambda copier: copier.submit_labels(logits, case_id="a", **options)) == 2 * 1024 * 1024


@pytest.mark.parametrize(
    ("make", "more", "nbytes"),
    [
        (lambda: torch.zeros(100, 100, dtype=torch.bfloat16), {}, 2 * 100 * 100),
        (lambda: torch.zeros(100, 100, dtype=torch.bfloat16), {"dtype": "float32"}, 2 * 100 * 100),
        (lambda: torch.zeros(100, dtype=torch.float8_e5m2), {}, 100),
        (lambda: torch.zeros(100, 100, dtype=torch.int64), {"dtype": "uint8"}, 100 * 100),
        (lambda: torch.zeros(100, 100)[10:20, ::2], {}, 4 * 10 * 50),
        (lambda: torch.full((3,), 256), {"dtype": "uint8"}, 3 + 48),
    ],
    ids=["bfloat16", "bfloat16 as float32", "float8", "int64 as uint8", "slice", "with a record"],
)
def test_only_what_is_needed_crosses(make, more, nbytes):
    assert crossed(lambda copier: copier.submit(make(), case_id="a", **more)) == nbytes


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("float16", 2), ("uint8", 1)])
def test_probs_cross_in_the_dtype_asked_for(dtype, size):
    logits, options = torch.zeros(1, 3, 20, 20), {"task": "multiclass", "dtype": dtype}
    assert crossed(lambda copier: copier.submit_probs(logits, case_id="a", **options)) == 3 * 20 * 20 * size
