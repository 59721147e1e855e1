"""One training step with Triton's focal loss and one with numba's, where the segmenter cuts padded logits to the image.

It runs in a process of its own, as Triton reads TRITON_INTERPRET when it is imported.
"""

from unittest import mock

import torch

from segmeter.losses import focal, focal_triton
from segmeter.losses.focal import FocalLoss
from tests.models.parts import make_card, make_spec, make_tiny
from tests.views import GuardZones

SIZES = ((40, 64), (90, 160), (360, 480))
LAYOUTS = (torch.contiguous_format, torch.channels_last)
CASES = [("multiclass", 11, size, layout) for size in SIZES for layout in LAYOUTS]
CASES += [("multilabel", 3, SIZES[0], layout) for layout in LAYOUTS]


def step(task, classes, size, layout, *, backend):
    """Train on two images; give the logits' gradient and the weights after the step."""
    seeded = torch.Generator().manual_seed(3)
    model = make_tiny(card=make_card(make_spec(classes, task))).train().to(memory_format=layout)
    model.size_multiple = 32  # as that of a network five levels deep
    image = torch.rand(2, 3, *size, generator=seeded).contiguous(memory_format=layout)
    shape = (2, classes, *size) if task == "multilabel" else (2, *size)
    target = torch.randint(2 if task == "multilabel" else classes, shape, generator=seeded, dtype=torch.uint8)
    target[..., :3, :] = 255
    optimizer, zones = torch.optim.SGD(model.parameters(), lr=1.0), GuardZones()
    logits = model(image)
    logits.retain_grad()
    assert not logits.is_contiguous(memory_format=layout), "the logits are a view"
    with zones:
        FocalLoss(task, ignore_index=255, backend=backend)(logits, target).backward()
    optimizer.step()
    assert zones.check() >= (3 if backend == "triton" else 2), "the kernels' outputs are guarded"
    return [logits.grad, *(weight.detach() for weight in model.parameters())]


def main():
    """Compare all cases; give their number."""
    with (
        mock.patch.object(focal, "choose_backend", lambda logits, target, options: options.backend),
        mock.patch.object(focal_triton, "TILE", 1 << 18),  # the interpreter takes as long for a tile of any size
    ):
        for case in CASES:
            slope, *weights = step(*case, backend="triton")
            expected, *others = step(*case, backend="numba")
            torch.testing.assert_close(slope, expected, rtol=1e-5, atol=1e-6 * float(expected.abs().max()))
            torch.testing.assert_close(weights, others, rtol=1e-5, atol=1e-6)
    return len(CASES)


if __name__ == "__main__":
    print(main())
