"""The Triton kernels: their logic under Triton's interpreter here, and on a GPU where there is one."""

import importlib

import pytest
import torch

from segmeter.errors import InputError
from segmeter.losses.focal.focal import FocalLoss, focal_loss
from tests.fuzzing import record, rounds
from tests.interpreted import interpreted
from tests.losses.cases import make_case, run
from tests.losses.focal import focal_fuzz, step_grid, triton_grid

COMPARISONS = 16 + 3 * 40 + 6 + 6


def test_the_kernels_logic_agrees_with_the_closed_form_under_the_interpreter():
    """Mutations seen to fail: the gradient stored at the logits' strides, of either kernel; labels cut to 32 bits."""
    assert interpreted("tests.losses.focal.triton_grid", "cpu") == COMPARISONS


@pytest.mark.fuzz
def test_any_view_type_and_option_agrees_with_the_formula():
    """Mutations seen to fail: any stride of logits or gradient, in either kernel; weights as they lie."""
    count = rounds(60, 600)
    found = interpreted("tests.losses.focal.focal_fuzz", "cpu", count, 0)
    assert found["compared"]["triton"] == count
    record("focal_kernels", **found)


@pytest.mark.fuzz
def test_a_training_step_is_that_of_numba_where_logits_are_cut_to_the_image():
    assert interpreted("tests.losses.focal.step_grid") == len(step_grid.CASES)


FLOATS = ("weights", "losses", "sums", "scales")
CONSTANTS = {"HAS_IGNORE": True, "HAS_WEIGHTS": True, "BLOCK_P": 64, "BLOCK_K": 32}


@pytest.mark.parametrize("name", ["softmax_sums", "softmax_gradient", "sigmoid_sums", "sigmoid_gradient"])
@pytest.mark.parametrize("smooth", [False, True])
def test_the_kernels_compile_for_a_gpu_that_is_not_here(name, smooth):
    triton = pytest.importorskip("triton", reason="torch brings no Triton on this system")
    compiler = pytest.importorskip("triton.compiler")
    target = pytest.importorskip("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    kernel = getattr(importlib.import_module("segmeter.losses.focal.triton_kernels"), name)
    constants = {**CONSTANTS, "GAMMA": 0.5 if smooth else 2.0, "SMOOTH": smooth, "ELEMENTWISE": smooth}
    types = {"logits": "*bf16", "gradient": "*bf16", "target": "*u8", **dict.fromkeys(FLOATS, "*fp32")}
    types |= dict.fromkeys(("smoothing", "negative", "positive"), "fp32")
    constants = {argument: value for argument, value in constants.items() if argument in kernel.arg_names}
    types |= dict.fromkeys(constants, "constexpr")
    signature = {argument: types.get(argument, "i32") for argument in kernel.arg_names}
    source = compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants)
    compiled = triton.compile(source, target=target, options={"num_warps": 8, "enable_fp_fusion": True})
    assert compiled.asm["cubin"]


@pytest.fixture
def cuda():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    return "cuda"


@pytest.mark.gpu
def test_the_kernels_agree_with_the_closed_form_on_the_gpu(cuda):
    assert triton_grid.main(cuda) == COMPARISONS


@pytest.mark.gpu
def test_any_view_agrees_with_the_formula_on_the_gpu(cuda):
    assert focal_fuzz.main(cuda, 200, 0)["compared"]["triton"] == 200


@pytest.mark.gpu
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_two_runs_give_the_same_bits_on_the_gpu(cuda, task):
    case = make_case(task, size=(256, 256))
    logits, target = case.logits.float().to(cuda), case.target.to(cuda)
    loss = FocalLoss(task, ignore_index=255).to(cuda)
    first = run(lambda x: loss(x, target), logits)
    for _ in range(5):
        again = run(lambda x: loss(x, target), logits)
        assert torch.equal(again[0], first[0])
        assert torch.equal(again[1], first[1])


@pytest.mark.gpu
def test_training_does_not_wait_for_the_gpu(cuda):
    """torch raises where anything waits."""
    case = make_case("multiclass", size=(64, 64))
    leaf, target = case.logits.float().to(cuda).requires_grad_(), case.target.to(cuda)
    loss = FocalLoss("multiclass", ignore_index=255, label_smoothing=0.1).to(cuda)
    loss(leaf, target).backward()  # the first call compiles
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss(leaf, target).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert leaf.grad.isfinite().all()


@pytest.mark.gpu
def test_bad_labels_are_a_nan_and_a_name_on_the_gpu(cuda):
    case = make_case("multiclass")
    logits, target = case.logits.float().to(cuda), case.target.to(cuda)
    target[1, 1, 2:4] = 7
    assert focal_loss(logits, target, task="multiclass", ignore_index=255).isnan()
    loss = FocalLoss("multiclass", ignore_index=255).to(cuda)
    assert loss(logits, target).isnan()
    with pytest.raises(InputError, match="got 2 other labels"):
        loss.check_labels()


@pytest.mark.gpu
def test_the_loss_is_one_graph_on_the_gpu(cuda):
    case = make_case("multiclass", size=(64, 64))
    logits, target = case.logits.float().to(cuda), case.target.to(cuda)
    loss = FocalLoss("multiclass", ignore_index=255).to(cuda)
    graph = torch.compile(loss, fullgraph=True)
    torch.testing.assert_close(run(lambda x: graph(x, target), logits), run(lambda x: loss(x, target), logits))
