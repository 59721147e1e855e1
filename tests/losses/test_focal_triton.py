"""The Triton kernels: their logic under Triton's interpreter here, and on a GPU where there is one."""

import pytest
import torch

from segmeter.errors import InputError
from segmeter.losses.focal import FocalLoss, focal_loss
from tests.fuzzing import record, rounds
from tests.interpreted import compiled_for_gpu, interpreted
from tests.losses import focal_fuzz
from tests.losses.cases import TASKS, make_case, run


def test_the_kernels_logic_agrees_with_the_definition_under_the_interpreter():
    """Mutations seen to fail: the gradient stored at the logits' strides, of either kernel; labels cut to 32 bits."""
    assert interpreted("tests.losses.focal_fuzz", "cpu", 24, 1)["compared"]["triton"] == 24


@pytest.mark.fuzz
def test_any_view_type_and_option_agrees_with_the_formula():
    count = rounds(20, 600)
    found = interpreted("tests.losses.focal_fuzz", "cpu", count, 0)
    assert found["compared"]["triton"] == count
    record("focal_kernels", **found)


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_the_kernel_compiles_for_a_gpu_that_is_not_here(softmax, backward, gamma):
    constants = {"GAMMA": gamma, "SOFTMAX": softmax, "BACKWARD": backward, "HAS_WEIGHTS": softmax}
    constants |= {"HAS_IGNORE": True, "BLOCK_P": 64, "BLOCK_K": 32}
    types = {"logits": "*bf16", "gradient": "*bf16", "target": "*u8", "negative": "fp32", "positive": "fp32"}
    types |= dict.fromkeys(("weights", "scale", "sums"), "*fp32")
    options = {"num_warps": 8, "enable_fp_fusion": True}
    assert compiled_for_gpu("segmeter.losses.focal_triton", "focal", types, constants, **options)


@pytest.mark.gpu
def test_any_view_agrees_with_the_formula_on_the_gpu():
    assert focal_fuzz.main("cuda", 200, 0)["compared"]["triton"] == 200


def on_the_gpu(task="multiclass", size=(64, 64)):
    case = make_case(task, size=size)
    return FocalLoss(task, ignore_index=255).cuda(), case.logits.float().cuda(), case.target.cuda()


@pytest.mark.gpu
@pytest.mark.parametrize("task", TASKS)
def test_two_runs_give_the_same_bits_on_the_gpu(task):
    loss, logits, target = on_the_gpu(task, (256, 256))
    first = run(lambda x: loss(x, target), logits)
    for _ in range(5):
        assert all(map(torch.equal, run(lambda x: loss(x, target), logits), first))


@pytest.mark.gpu
def test_training_does_not_wait_for_the_gpu():
    """torch raises where anything waits."""
    loss, logits, target = on_the_gpu()
    leaf = logits.requires_grad_()
    loss(leaf, target).backward()  # the first call compiles
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss(leaf, target).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert leaf.grad.isfinite().all()


@pytest.mark.gpu
def test_bad_labels_are_a_nan_and_a_name_on_the_gpu():
    loss, logits, target = on_the_gpu()
    target[1, 1, 2:4] = 7
    assert focal_loss(logits, target, task="multiclass", ignore_index=255).isnan()
    assert loss(logits, target).isnan()
    with pytest.raises(InputError, match="got 2 other labels"):
        loss.check_labels()


@pytest.mark.gpu
def test_the_loss_is_one_graph_on_the_gpu():
    loss, logits, target = on_the_gpu()
    graph = torch.compile(loss, fullgraph=True)
    torch.testing.assert_close(run(lambda x: graph(x, target), logits), run(lambda x: loss(x, target), logits))
