"""Draw docs/focal-loss.svg: loss and gradient of one pixel against its logit, for several gamma."""

from pathlib import Path

import matplotlib as mpl
import torch

mpl.use("svg")
import matplotlib.pyplot as plt

from segmeter import focal_loss

GAMMAS = (0.0, 0.5, 1.0, 2.0, 5.0)
COLOURS = ("#000000", "#e69f00", "#56b4e9", "#009e73", "#cc79a7")  # Okabe and Ito: apart for every kind of sight


def curves(gamma: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logit, loss and gradient of target 1, sigmoid."""
    logits = torch.linspace(-6, 6, 481, dtype=torch.float64).view(1, 1, 1, -1).requires_grad_()
    target = torch.ones(1, 1, logits.numel(), dtype=torch.uint8)
    losses = focal_loss(logits, target, task="binary", gamma=gamma, reduction="none")
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    return logits.detach().flatten(), losses.detach().flatten(), gradient.flatten()


def draw(path: Path) -> None:
    """Write the figure; the same bytes every time."""
    mpl.rcParams["svg.hashsalt"] = "segmeter"
    mpl.rcParams["svg.fonttype"] = "none"
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for gamma, colour in zip(GAMMAS, COLOURS, strict=True):
        logits, losses, gradient = curves(gamma)
        label = f"gamma = {gamma:g}" + (" (cross-entropy)" if gamma == 0 else "")
        left.plot(logits, losses, color=colour, label=label)
        right.plot(logits, gradient, color=colour)
    left.set(title="loss", ylim=(-0.1, 4), xlabel="logit of a pixel whose target is 1")
    right.set(title="gradient", xlabel="logit of a pixel whose target is 1")
    for axes in (left, right):
        axes.axvline(0, color="#cccccc", linewidth=0.8, zorder=0)
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw(Path(__file__).with_name("focal-loss.svg"))
