"""A model -> the same model, whose gradients are averaged over processes while they are computed."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from segmeter.distributed.ranks import World
from segmeter.progress import Pulse

_LOG = logging.getLogger(__name__)


class Averaged:
    """Runs a model in `DistributedDataParallel`; alone, it runs the model itself.

    What learns may change between steps, as where an encoder is frozen at first: the wrapper is then made anew, as it
    averages the gradients of those parameters only that learnt when it was made. It waits for the gradient of each of
    them; where some get none, as the last layers of some encoders do, it is told to look for those. Running statistics
    are each process's own, and rank 0's are saved; synchronised batch norm takes them over all.

    Parameters
    ----------
    model
        The same in all processes; rank 0's weights win.
    world
        The processes.
    """

    def __init__(self, model: nn.Module, world: World) -> None:
        self.model = model
        self.world = world
        self._wrapped: DistributedDataParallel | None = None
        self._learning: tuple[bool, ...] = ()

    def __call__(self, image: Tensor) -> Tensor:
        logits: Tensor = self.model(image) if self.world.size == 1 else self._parallel(image)(image)
        return logits

    @contextmanager
    def gathering(self, image: Tensor, *, last: bool) -> Iterator[None]:
        """Average in the last backward pass of a step only: until then gradients add up here; `image` is a batch."""
        Pulse.beat()
        if last or self.world.size == 1:
            yield
        else:
            with self._parallel(image).no_sync():
                yield

    def _parallel(self, image: Tensor) -> DistributedDataParallel:
        learning = tuple(parameter.requires_grad for parameter in self.model.parameters())
        if self._wrapped is None or learning != self._learning:
            self._wrapped = None  # its hooks go before there are new ones
            unused = find_unused(self.model, image[:1])
            if unused:
                _LOG.info("training: %d parameters get no gradient, such as %s.", len(unused), unused[0])
            with warnings.catch_warnings():  # of a name that torch 2.11 has no other for
                warnings.filterwarnings("ignore", message=".*broadcast_buffers", category=FutureWarning)
                self._wrapped = DistributedDataParallel(
                    self.model, broadcast_buffers=False, find_unused_parameters=bool(unused)
                )
            self._learning = learning
        return self._wrapped


def find_unused(model: nn.Module, image: Tensor) -> list[str]:
    """Name the parameters that learn and that the output for `image` does not depend on; nothing of the model changes.

    Parameters
    ----------
    image
        (1, C, H, W) of the model's dtype, on its device.
    """
    learning = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    modes = {module: module.training for module in model.modules()}
    try:  # in evaluation mode no running statistics change and nothing is drawn; compiling it for that would take long
        with torch.autocast(image.device.type, enabled=False), torch.compiler.set_stance("force_eager"):
            output = model.eval()(image)
        gradients = torch.autograd.grad(output.sum(), list(learning.values()), allow_unused=True)
    finally:
        for module, mode in modes.items():
            module.training = mode
    return [name for name, gradient in zip(learning, gradients, strict=True) if gradient is None]
