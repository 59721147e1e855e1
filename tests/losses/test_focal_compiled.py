"""Under torch.compile the loss is one graph, with the same result."""

import pytest
import torch

from segmeter.errors import InputError
from segmeter.losses.additive import check_labels
from segmeter.losses.config import FocalConfig, FocalTverskyConfig, LovaszConfig, SumConfig, build_loss
from segmeter.losses.focal import FocalLoss, focal_loss
from tests.losses.cases import TASKS, make_case, make_spec, run


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()


def test_the_function_is_one_graph():
    case = make_case("multiclass")

    def step(x):
        options = {"task": "multiclass", "class_weights": [1.0, 2.0, 3.0, 4.0, 5.0], "ignore_index": 255}
        return focal_loss(x * 2, case.target, label_smoothing=0.1, **options)

    graph = torch.compile(step, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(run(graph, case.logits.float()), run(step, case.logits.float()))


@pytest.mark.parametrize(
    ("config", "task"),
    [
        *((FocalConfig(), task) for task in TASKS),
        (FocalTverskyConfig(), "binary"),
        (LovaszConfig(), "multiclass"),
        (SumConfig(), "multilabel"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_every_kind_of_loss_is_one_graph(config, task):
    """The others differ from these in their options only."""
    case, loss = make_case(task, num_classes=3), build_loss(config, make_spec(task))
    graph = torch.compile(loss, fullgraph=True, backend="aot_eager")
    eager = run(lambda x: loss(x, case.target), case.logits.float())
    torch.testing.assert_close(run(lambda x: graph(x, case.target), case.logits.float()), eager)


def test_a_loss_assigns_no_buffer_as_a_hook_that_a_failed_export_left_would_break_its_graph():
    case, seen = make_case("multiclass"), []
    hook = torch.nn.modules.module.register_module_buffer_registration_hook(lambda _, name, __: seen.append(name))
    loss = FocalLoss("multiclass", ignore_index=255)
    built = len(seen)
    loss(case.logits.float(), case.target)
    hook.remove()
    assert built == len(seen) > 0


def test_bad_labels_make_a_compiled_loss_nan_and_are_named_when_asked():
    case = make_case("multiclass")
    loss = FocalLoss("multiclass", ignore_index=255)
    graph = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert graph(case.logits.float(), case.target).isfinite()
    loss.check_labels()
    bad = case.target.clone()
    bad[1, 1, 2:4] = 7
    assert graph(case.logits.float(), bad).isnan()
    with pytest.raises(InputError, match="got 2 other labels"):
        check_labels(torch.nn.Sequential(loss))
    check_labels(loss)
