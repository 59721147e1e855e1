"""How many bytes cross, counted on the CPU into the buffers of a pool; test_gpu.py counts the real crossing."""

import pytest
import torch

from segmeter.bridge.host_copier import HostCopier
from segmeter.bridge.transport import PlainTransport
from tests.bridge.crossing import Crossing, inside

PIXELS = 1024 * 1024


class Across(PlainTransport):
    """Copies at once, but all of it, as from a device whose memory is not the host's."""

    immediate = False


@pytest.fixture
def copier():
    with HostCopier(device="cpu", slot_bytes=16 * PIXELS, transport=Across(torch.device("cpu"))) as opened:
        yield opened


def crossed(copier, submit):
    with Crossing(inside(host for slot in copier._pool.slots for host in (slot.buffer, slot.record))) as crossing:
        pending = submit()
    return crossing.nbytes, pending


def test_labels_of_19_classes_cross_as_one_byte_per_pixel(copier):
    """Mutation seen to fail: the int64 argmax crosses, as in Detectron2 and mmseg."""
    logits = torch.zeros(2, 19, 1024, 1024, dtype=torch.float16)
    nbytes, _ = crossed(copier, lambda: copier.submit_labels(logits, case_id="a", task="multiclass", num_classes=19))
    assert nbytes == 2 * PIXELS


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
def test_only_what_is_needed_crosses(copier, make, more, nbytes):
    """Mutation seen to fail: bfloat16 widened before it crosses."""
    assert crossed(copier, lambda: copier.submit(make(), case_id="a", **more))[0] == nbytes


def test_probs_cross_in_the_dtype_asked_for(copier):
    """Mutation seen to fail: probabilities cross as float32 always."""
    logits = torch.zeros(1, 3, 20, 20)
    for dtype, size in (("float32", 4), ("float16", 2), ("uint8", 1)):
        nbytes, _ = crossed(
            copier, lambda dtype=dtype: copier.submit_probs(logits, case_id="a", task="multiclass", dtype=dtype)
        )
        assert nbytes == 3 * 20 * 20 * size


def test_on_the_cpu_what_was_made_for_the_result_is_the_result():
    """A plain copy would cost a second of host memory's bandwidth per 10 GB and buy nothing.

    Mutation seen to fail: Slot.load copies always.
    """
    with HostCopier(device="cpu", slot_bytes=16 * PIXELS) as plain:
        logits = torch.zeros(1, 3, 20, 20)
        for submit in (plain.submit_labels, plain.submit_probs):
            more = {"num_classes": 3} if submit == plain.submit_labels else {}
            nbytes, pending = crossed(plain, lambda s=submit, m=more: s(logits, case_id="a", task="multiclass", **m))
            assert nbytes == 0
            assert pending.result().size in (400, 1200)
        nbytes, _ = crossed(plain, lambda: plain.submit(logits, case_id="a"))
        assert nbytes == 4 * 3 * 20 * 20, "the caller may write to this one"
