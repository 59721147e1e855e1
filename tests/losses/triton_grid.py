"""The Triton kernels at extreme logits, on the device given; `focal_fuzz` compares layouts, types and options.

It runs in a process of its own, as Triton reads TRITON_INTERPRET when it is imported.
"""

import itertools
import sys

import torch

from segmeter.losses import focal_triton
from segmeter.losses.focal_torch import FocalOptions
from tests.losses.extreme import extreme

GAMMAS = (0.0, 0.5, 1.0, 2.0, 3.7)


def check_digits(task: str, gamma: float, device: str) -> None:
    """Compare with 60 digits at extreme logits."""
    case = extreme(task, gamma)
    logits, target = case.logits.to(device), case.target.to(device)
    if task == "binary":
        target = target.unsqueeze(1)
    options = FocalOptions(task, gamma)
    places = range(0, logits.shape[-1], 9)  # one at a time, which takes long under the interpreter
    losses = [focal_triton.compute(logits[..., [p]], target[..., [p]], options)[0] for p in places]
    (gradient,) = focal_triton.compute(logits, target, options, torch.ones((), device=device))
    case._replace(loss=case.loss[::9]).check(torch.stack(losses).cpu(), gradient.cpu())


def check_extremes(device: str) -> int:
    """No NaN for finite logits."""
    values = torch.tensor([0.0, 1e-3, 17, 89, 104, 1e4, 3e38])
    values = torch.cat([values, -values])
    logits = torch.cartesian_prod(values, values).T.reshape(1, 2, -1, 1).contiguous().to(device)
    done = 0
    for softmax, gamma in itertools.product([True, False], [0.0, 0.5, 2.0, 8.0]):
        shape = (1, *logits.shape[2:]) if softmax else logits.shape
        target = torch.ones(shape, dtype=torch.uint8, device=device)
        task = "multiclass" if softmax else "multilabel"
        options = FocalOptions(task, gamma)
        total = focal_triton.compute(logits, target, options)[0]
        assert not total.isnan(), options
        (gradient,) = focal_triton.compute(logits, target, options, torch.ones_like(total))
        assert gradient.isfinite().all(), options
        done += 1
    return done


def main(device: str) -> int:
    """Run everything; give the number of comparisons."""
    digits = list(itertools.product(("binary", "multiclass"), (0.0, 0.5, 2.0)))
    for task, gamma in digits:
        check_digits(task, gamma, device)
    return check_extremes(device) + len(digits)


if __name__ == "__main__":
    print(main(sys.argv[1]))
